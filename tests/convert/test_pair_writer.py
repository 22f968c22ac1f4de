"""A pair that is written shard by shard: the same bytes as in two steps, and nothing lost when a run is stopped."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from surroundings import small_disk
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import UNFINISHED, convert_folder, export_pair
from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import JOURNAL, begin, write_shard
from vrt_lite.errors import ModelError, UsageError

SHAPE = TextShape(width=256, feed_forward=288, heads=4, kv_heads=1, layers=8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer") / "c"
    make(folder, shape=SHAPE, shards=3, tied=False)
    return folder


@pytest.fixture(scope="module")
def two_steps(checkpoint: Path) -> Path:
    out = checkpoint.parent / "two"
    export_pair(checkpoint, out, text_type="bf16", projector_type="bf16")
    quantize_pair(out, text_type="q4_k_m", projector_type="q8_0")
    return out


def documents_of(checkpoint: Path, folder: Path) -> Path:
    """Copy all but the shards."""
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def plan(folder: Path, text_type: str = "q4_k_m", origin: str = "") -> PairPlan:
    types = {"text_type": text_type, "projector_type": "q8_0"}
    return plan_pair(folder, **types, folder_name="c", origin=origin)


def finish(planned: PairPlan, checkpoint: Path, out: Path, two_steps: Path) -> None:
    """Write what is missing. The files must have the bytes of two steps."""
    for shard in begin(planned, out):
        write_shard(planned, out, checkpoint / shard)
    assert begin(planned, out) == []
    assert sorted(path.name for path in out.iterdir()) == ["c-Q4_K_M.gguf", JOURNAL, "mmproj-c-Q8_0.gguf"]
    for file in planned.files:
        assert (out / file.name).read_bytes() == (two_steps / file.name).read_bytes()


def test_shards_in_any_order_give_the_bytes_of_two_steps(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    planned, out = plan(documents_of(checkpoint, tmp_path / "documents")), tmp_path / "out"
    assert (planned.digest, planned.shards) == (plan(checkpoint).digest, plan(checkpoint).shards)
    assert planned.shards == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    advanced: list[int] = []
    assert begin(planned, out) == planned.shards
    for number, shard in enumerate(reversed(planned.shards)):
        write_shard(planned, out, checkpoint / shard, advanced.append)
        assert begin(planned, out) == planned.shards[: 2 - number]
    assert sum(advanced) == planned.weight_bytes(planned.shards)
    finish(planned, checkpoint, out, two_steps)


def test_a_stopped_run_goes_on_with_the_next_shard(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    planned, out = plan(checkpoint), tmp_path / "out"
    first, second, third = begin(planned, out)
    write_shard(planned, out, checkpoint / first)
    seen: list[int] = []

    def stop(size: int) -> None:
        seen.append(size)
        if len(seen) > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(planned, out, checkpoint / second, stop)
    assert begin(planned, out) == [second, third]
    # A journal that is broken, or beside a file that is not as it was, counts as none.
    for name, damage in ((JOURNAL, b"{"), (JOURNAL, b"[]"), ("c-Q4_K_M.gguf", b"GGUF")):
        copy = Path(shutil.copytree(out, tmp_path / "copy"))
        (copy / name).write_bytes(damage)
        assert begin(planned, copy) == planned.shards
        finish(planned, checkpoint, copy, two_steps)
        shutil.rmtree(copy)
    finish(planned, checkpoint, out, two_steps)


def test_another_plan_begins_anew(tmp_path: Path, checkpoint: Path) -> None:
    planned, out = plan(checkpoint), tmp_path / "out"
    begin(planned, out)
    write_shard(planned, out, checkpoint / planned.shards[0])
    assert len(begin(planned, out)) == 2
    assert len(begin(plan(checkpoint, origin="another revision"), out)) == 3


def test_a_folder_that_was_stopped_goes_on(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    """Pairs of two text types share the projector's name, but no unfinished file."""
    out, types = tmp_path / "out", {"projector_type": "q8_0"}

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    for kind in ("q4_k_m", "q6_k"):
        with pytest.raises(KeyboardInterrupt):
            convert_folder(checkpoint, out, text_type=kind, **types, progress=stop)
    assert sorted(path.name for path in out.iterdir()) == [f"c-Q{k}.gguf{UNFINISHED}" for k in ("4_K_M", "6_K")]
    seen: list[int] = []
    files = convert_folder(checkpoint, out, text_type="q4_k_m", **types, progress=lambda done, _: seen.append(done))
    assert seen[0] > 10_000
    for file in files:
        assert file.path.read_bytes() == (two_steps / file.path.name).read_bytes()


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def test_a_shard_that_is_not_as_planned(tmp_path: Path, checkpoint: Path) -> None:
    planned, out = plan(documents_of(checkpoint, tmp_path / "documents")), tmp_path / "out"
    name = begin(planned, out)[0]
    shard = tmp_path / name
    for old, new, message in (
        (b"mlp.2.bias", b"mlp.9.bias", r"has no tensor visual\.merger\.mlp\.2\.bias"),
        (b'"shape": [256]', b'"shape": [128]', "is broken"),
        (b'"dtype": "BF16"', b'"dtype": "F8_E"', "Invalid enum value 'F8_E'"),
        (b"[256, 288]", b"[288, 256]", r"is \(288, 256\), config\.json says \(256, 288\)"),
    ):
        shutil.copy(checkpoint / name, shard)
        edit(shard, old, new)
        with pytest.raises(ModelError, match=message):
            write_shard(planned, out, shard)
    with pytest.raises(ModelError, match=r"model-00009.* is none that config\.json describes"):
        write_shard(planned, out, shard.rename(tmp_path / "model-00009-of-00003.safetensors"))
    assert len(begin(planned, out)) == 3


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A file system that is smaller than the result."""
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", megabytes=80):
        yield tmp_path / "disk"


def test_a_full_disk(tmp_path: Path, disk: Path) -> None:
    make(tmp_path / "c", shape=TextShape(width=256, rows=1 << 14), dtype="F32", shards=2)
    types = {"text_type": "q8_0", "projector_type": "f16"}
    whole = convert_folder(tmp_path / "c", tmp_path / "whole", **types)
    other, out = disk / "of another program", disk / "out"

    def fill(done: int, total: int) -> None:
        if not other.exists():
            other.write_bytes(bytes(shutil.disk_usage(disk).free - (1 << 20)))

    for _ in range(3):
        with pytest.raises(UsageError, match=r"No space left on device.* run again: it goes on"):
            convert_folder(tmp_path / "c", out, **types, progress=fill)
        other.unlink()
    for mine, theirs in zip(convert_folder(tmp_path / "c", out, **types), whole, strict=True):
        assert mine.path.read_bytes() == theirs.path.read_bytes()
