"""A pair that is written shard by shard: the same bytes as in two steps, and nothing lost when a run is stopped."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.pair_plan import PairPlan, plan_pair
from vrt_lite.conversion.pair_writer import PairWriter
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


def plan(folder: Path, text_type: str = "q4_k_m") -> PairPlan:
    return plan_pair(folder, text_type=text_type, projector_type="q8_0", folder_name="c")


def write_all(planned: PairPlan, checkpoint: Path, out: Path) -> list[Path]:
    with PairWriter(planned, out) as writer:
        for shard in writer.missing_shards():
            writer.write_shard(checkpoint / shard)
        return [file.path for file in writer.finish()]


def test_shards_in_any_order_give_the_bytes_of_two_steps(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    planned = plan(documents_of(checkpoint, tmp_path / "documents"))
    assert (planned.digest, planned.shards) == (plan(checkpoint).digest, plan(checkpoint).shards)
    advanced: list[int] = []
    with PairWriter(planned, tmp_path / "out") as writer:
        assert writer.missing_shards() == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        for shard in reversed(writer.missing_shards()):
            assert writer.missing_shards()[-1] == shard
            with pytest.raises(ModelError, match="shards are not converted yet, first model-00001"):
                writer.finish()
            writer.write_shard(checkpoint / shard, advanced.append)
        files = writer.finish()
    assert sum(advanced) == planned.weight_bytes(planned.shards)
    assert [file.size for file in files] == [planned_file.size for planned_file in planned.files]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["c-Q4_K_M.gguf", "mmproj-c-Q8_0.gguf"]
    for file in files:
        assert file.path.read_bytes() == (two_steps / file.path.name).read_bytes()


def test_a_stopped_run_goes_on_with_the_next_shard(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    planned, out = plan(checkpoint), tmp_path / "out"
    first, second, third = planned.shards
    with PairWriter(planned, out) as writer:
        writer.write_shard(checkpoint / first)
    seen: list[int] = []

    def stop(size: int) -> None:
        seen.append(size)
        if len(seen) > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), PairWriter(planned, out) as writer:
        assert writer.missing_shards() == [second, third]
        writer.write_shard(checkpoint / second, stop)
    # A journal whose last line was cut off names fewer shards, and no other.
    shutil.copytree(out, tmp_path / "copy")
    journal = next((tmp_path / "copy").glob("*.vrt-journal"))
    text = journal.read_bytes()
    for cut in (1, len(first), len(first) + 1, len(text)):
        journal.write_bytes(text[:-cut])
        with PairWriter(planned, tmp_path / "copy") as writer:
            assert writer.missing_shards() == [first, second, third]
    for folder in (out, tmp_path / "copy"):
        for path in write_all(planned, checkpoint, folder):
            assert path.read_bytes() == (two_steps / path.name).read_bytes()
        assert len(list(folder.iterdir())) == 2


def test_another_plan_begins_anew(tmp_path: Path, checkpoint: Path) -> None:
    planned, out = plan(checkpoint), tmp_path / "out"
    with PairWriter(planned, out) as writer:
        writer.write_shard(checkpoint / writer.missing_shards()[0])
        assert len(writer.missing_shards()) == 2
    revised = plan_pair(checkpoint, text_type="q4_k_m", projector_type="q8_0", origin="another revision")
    with PairWriter(revised, out) as writer:
        assert len(writer.missing_shards()) == 3


def test_pairs_of_two_types_share_a_projector_and_no_unfinished_file(
    tmp_path: Path, checkpoint: Path, two_steps: Path
) -> None:
    out = tmp_path / "out"
    with PairWriter(plan(checkpoint), out) as writer:
        writer.write_shard(checkpoint / writer.missing_shards()[0])
    with PairWriter(plan(checkpoint, "q6_k"), out) as writer:
        assert len(writer.missing_shards()) == 3
    with PairWriter(plan(checkpoint), out) as writer:
        assert len(writer.missing_shards()) == 2
    for path in write_all(plan(checkpoint), checkpoint, out):
        assert path.read_bytes() == (two_steps / path.name).read_bytes()


def test_a_run_that_was_stopped_between_two_names(tmp_path: Path, checkpoint: Path, two_steps: Path) -> None:
    planned, out = plan(checkpoint), tmp_path / "out"
    with PairWriter(planned, out) as writer:
        for shard in writer.missing_shards():
            writer.write_shard(checkpoint / shard)
        journal = next(out.glob("*.vrt-journal"))
        kept = journal.read_bytes()
        writer.finish()
    journal.write_bytes(kept)
    shutil.copytree(out, tmp_path / "lost")
    first, second = (planned_file.name for planned_file in planned.files)
    (out / second).rename(out / f"{first}.1.vrt-unfinished")
    with PairWriter(planned, out) as writer:
        assert writer.missing_shards() == []
        assert [file.path.name for file in writer.finish()] == [planned_file.name for planned_file in planned.files]
    assert sorted(path.name for path in out.iterdir()) == [first, second]
    assert (out / second).read_bytes() == (two_steps / second).read_bytes()
    (tmp_path / "lost" / second).unlink()  # by another hand
    with PairWriter(planned, tmp_path / "lost") as writer:
        assert len(writer.missing_shards()) == 3


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def test_a_shard_that_is_not_as_planned(tmp_path: Path, checkpoint: Path) -> None:
    planned = plan(documents_of(checkpoint, tmp_path / "documents"))
    name = next(iter(planned.shards))
    shard = tmp_path / name
    with PairWriter(planned, tmp_path / "out") as writer:
        for old, new, message in (
            (b"mlp.2.bias", b"mlp.9.bias", r"has no tensor visual\.merger\.mlp\.2\.bias"),
            (b'"shape": [256]', b'"shape": [128]', "is broken"),
            (b'"dtype": "BF16"', b'"dtype": "F8_E"', "allowed are F32, F16, BF16"),
            (b"[256, 288]", b"[288, 256]", r"is \(288, 256\), config\.json says \(256, 288\)"),
        ):
            shutil.copy(checkpoint / name, shard)
            edit(shard, old, new)
            with pytest.raises(ModelError, match=message):
                writer.write_shard(shard)
        with pytest.raises(ModelError, match="none of the shards that are needed"):
            writer.write_shard(shard.rename(tmp_path / "model-00009-of-00003.safetensors"))
        assert len(writer.missing_shards()) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system that is smaller than the result."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)]
    if not mount or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    make(tmp_path / "c", shape=TextShape(width=256, rows=1 << 14), dtype="F32", shards=2)
    planned = plan_pair(tmp_path / "c", text_type="q8_0", projector_type="f16")
    whole = write_all(planned, tmp_path / "c", tmp_path / "whole")
    other, out = small_disk / "of another program", small_disk / "out"
    other.write_bytes(bytes(20 << 20))
    with pytest.raises(UsageError, match=r"are still to come and .* has 62\.9 MB free"), PairWriter(planned, out):
        pass
    other.unlink()
    with PairWriter(planned, out) as writer:
        for free in (1 << 20, 1 << 20, 2 << 20):
            other.unlink(missing_ok=True)
            other.write_bytes(bytes(shutil.disk_usage(small_disk).free - free))
            with pytest.raises(UsageError, match=r"No space left on device.* run again: it goes on"):
                for shard in writer.missing_shards():
                    writer.write_shard(tmp_path / "c" / shard)
    other.unlink()
    for mine, theirs in zip(write_all(planned, tmp_path / "c", out), whole, strict=True):
        assert mine.read_bytes() == theirs.read_bytes()
