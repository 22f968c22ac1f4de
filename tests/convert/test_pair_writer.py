"""A pair that is written shard by shard: the same bytes as in two steps, whatever the order of the shards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from surroundings import small_disk
from synthetic_checkpoint import TextShape, make

from convert.quantize import quantize_pair
from vrt_lite.conversion.convert_folder import PairPlan, begin, convert_folder, export_pair, plan_pair, write_shard
from vrt_lite.errors import ModelError, UsageError

SHAPE = TextShape(width=256, feed_forward=288, heads=4, kv_heads=1, layers=8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer") / "c"
    make(folder, shape=SHAPE, shards=3, tied=False)
    return folder


@pytest.fixture
def planned(checkpoint: Path, tmp_path: Path) -> PairPlan:
    """Planned with all but the shards."""
    shutil.copytree(checkpoint, tmp_path / "c", ignore=shutil.ignore_patterns("*.safetensors"))
    plan = plan_pair(tmp_path / "c", text_type="q4_k_m", projector_type="q8_0")
    begin(plan, tmp_path / "out")
    return plan


def test_shards_in_any_order_give_the_bytes_of_two_steps(tmp_path: Path, checkpoint: Path, planned: PairPlan) -> None:
    export_pair(checkpoint, tmp_path / "two", text_type="bf16", projector_type="bf16")
    quantize_pair(tmp_path / "two", text_type="q4_k_m", projector_type="q8_0")
    assert planned.shards == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    advanced: list[int] = []
    for shard in reversed(planned.shards):
        write_shard(planned, tmp_path / "out", checkpoint / shard, advanced.append)
    assert sum(advanced) == planned.weight_bytes(planned.shards)
    assert [file.name for file in planned.files] == ["c-Q4_K_M.gguf", "mmproj-c-Q8_0.gguf"]
    for file in planned.files:
        assert (tmp_path / "out" / file.name).read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("00001", b"mlp.2.bias", b"mlp.9.bias", r"1 tensors are missing, first visual\.merger\.mlp\.2\.bias"),
        ("00001", b'"dtype": "BF16"', b'"dtype": "F8_E"', "is F8_E, needs to be F32, F16 or BF16"),
        ("00001", b"[256, 288]", b"[288, 256]", r"is \(288, 256\), config\.json says \(256, 288\)"),
        ("00009", b"", b"", r"model-00009.* is none that config\.json describes"),
    ],
)
def test_a_shard_that_is_not_as_planned(
    tmp_path: Path, checkpoint: Path, planned: PairPlan, name: str, old: bytes, new: bytes, message: str
) -> None:
    data = (checkpoint / planned.shards[0]).read_bytes()
    assert old in data
    shard = tmp_path / f"model-{name}-of-00003.safetensors"
    shard.write_bytes(data.replace(old, new, 1))
    with pytest.raises(ModelError, match=message):
        write_shard(planned, tmp_path / "out", shard)


def test_a_full_disk(tmp_path: Path) -> None:
    make(tmp_path / "c", shape=TextShape(width=256, rows=1 << 13), dtype="F32", shards=2)
    whole = convert_folder(tmp_path / "c", tmp_path / "whole")
    disk = tmp_path / "disk"
    other, out = disk / "of another program", disk / "out"

    def fill(done: int, total: int) -> None:
        if not other.exists():
            other.write_bytes(bytes(shutil.disk_usage(disk).free - (1 << 20)))

    disk.mkdir()
    with small_disk(disk, megabytes=20):
        with pytest.raises(UsageError, match=r"No space left on device.* and run again"):
            convert_folder(tmp_path / "c", out, progress=fill)
        assert list(out.iterdir()) == []
        other.unlink()
        for mine, theirs in zip(convert_folder(tmp_path / "c", out), whole, strict=True):
            assert mine.path.read_bytes() == theirs.path.read_bytes()
