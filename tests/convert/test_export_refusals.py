"""What cannot be exported is refused in one line, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from surroundings import small_disk
from synthetic_checkpoint import TextShape, make, read_json, read_safetensors, write_json, write_safetensors

from vrt_lite.conversion.convert_folder import convert_folder, export_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models.hub import Unseen

SHARD, INDEX = "model-00002-of-00003.safetensors", "model.safetensors.index.json"
Damage = Callable[[Path], object]


def delete(*patterns: str) -> Damage:
    return lambda folder: [path.unlink() for pattern in patterns for path in folder.glob(pattern)]


def text(name: str, value: str) -> Damage:
    return lambda folder: (folder / name).write_text(value, "utf-8")


def put(name: str, *keys: str | int, value: Any) -> Damage:
    """Set one value deep in a JSON file."""

    def edit(folder: Path) -> None:
        whole = parent = read_json(folder / name)
        for key in keys[:-1]:
            parent = parent[key]
        parent[keys[-1]] = value
        write_json(folder / name, whole)

    return edit


def shard(change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of the second shard."""
    return lambda folder: (folder / SHARD).write_bytes(change((folder / SHARD).read_bytes()))


def header(value: bytes, data: bytes = b"") -> bytes:
    """A shard of this header."""
    return len(value).to_bytes(8, "little") + value + data


def entry(**values: Any) -> Damage:
    """Change the first tensor's entry in the second shard's header."""

    def change(data: bytes) -> bytes:
        start = 8 + int.from_bytes(data[:8], "little")
        known = json.loads(data[8:start])
        known[next(name for name in known if name != "__metadata__")] |= values
        return header(json.dumps(known).encode(), data[start:])

    return shard(change)


CASES: dict[str, tuple[Damage, str]] = {
    "no folder": (shutil.rmtree, "config.json is missing"),
    "no config": (delete("config.json"), "config.json is missing"),
    "config no JSON": (text("config.json", "{"), "cannot be read"),
    "config a list": (text("config.json", "[]"), "cannot be read"),
    "config nested without end": (text("config.json", "[" * 200_000), "cannot be read"),
    "another architecture": (put("config.json", "model_type", value="llava"), "'qwen2_5_vl'"),
    "text_config a word": (put("config.json", "text_config", value="no"), "cannot be read"),
    "no hidden size": (put("config.json", "text_config", "hidden_size", value=None), "hidden_size is None"),
    "layers without end": (put("config.json", "text_config", "num_hidden_layers", value=10**9), "1023"),
    "another vision tower": (put("config.json", "vision_config", "window_size", value=64), "window_size"),
    "uneven attention": (put("config.json", "vision_config", "fullatt_block_indexes", value=[1, 2]), "every n-th"),
    "projector of another model": (put("config.json", "vision_config", "out_hidden_size", value=32), "needs 64"),
    "rope scaling": (put("config.json", "text_config", "rope_parameters", "rope_type", value="yarn"), "'yarn'"),
    "another vocabulary size": (put("config.json", "text_config", "vocab_size", value=400), r"says \(400, 64\)"),
    "a block too many": (put("config.json", "vision_config", "depth", value=6), "tensors are missing"),
    "no preprocessor": (delete("preprocessor_config.json"), "preprocessor_config.json is missing"),
    "no colours": (put("preprocessor_config.json", "image_mean", value=[1]), "image_mean"),
    "no tokenizer": (delete("tokenizer.json"), "tokenizer.json is missing"),
    "another pre-tokenizer": (put("tokenizer.json", "pre_tokenizer", value={"type": "Whitespace"}), "not Qwen2's"),
    "token past the embedding": (
        put("tokenizer.json", "added_tokens", 0, "id", value=10**12),
        "tokenizer.json cannot be read",
    ),
    "broken merges": (put("tokenizer.json", "model", "merges", value=[["a"]]), "Unknown tokenizer merges"),
    "lone surrogate": (put("tokenizer.json", "model", "vocab", "\ud800", value=300), "surrogates"),
    "no end of turn": (
        lambda folder: (
            put("config.json", "text_config", "eos_token_id", value=None)(folder),
            put("tokenizer_config.json", "eos_token", value=None)(folder),
        ),
        "eos_token",
    ),
    "odd model card": (text("README.md", "---\nlicense: [\n---\n"), "README.md"),
    "odd model card value": (text("README.md", "---\nversion: 1.5\n---\n"), "a value of README"),
    "missing shard": (delete(SHARD), f"{SHARD} is missing"),
    "missing shard, no index": (delete(SHARD, INDEX), r"model\.safetensors is missing"),
    "no shards": (delete("model*"), r"model\.safetensors is missing"),
    "shard elsewhere": (put(INDEX, "weight_map", "x", value="../secret.safetensors"), "same folder"),
    "index of another": (put(INDEX, "weight_map", "x", value=SHARD), "none that config.json describes"),
    "shard without a tensor": (
        shard(lambda data: data.replace(b".bias", b".bird", 1)),
        "1 tensors are missing, first ",
    ),
    "truncated shard": (shard(lambda data: data[:-1]), "ends at byte"),
    "empty shard": (shard(lambda data: b""), "cannot be read"),
    "shard of 7 bytes": (shard(lambda data: data[:7]), "cannot be read"),
    "header past the end": (shard(lambda data: (10**7).to_bytes(8, "little") + data[8:]), "cannot be read"),
    "header of 2**63": (shard(lambda data: (2**63).to_bytes(8, "little") + data[8:]), "cannot be read"),
    "header cut in two": (shard(lambda data: (100).to_bytes(8, "little") + data[8:]), "cannot be read"),
    "header no object": (shard(lambda data: header(b"[]", data)), "cannot be read"),
    "header nested": (shard(lambda data: header(b"[" * 200_000, data)), "cannot be read"),
    "another number type": (entry(dtype="F8_E4M3"), "is F8_E4M3, needs to be F32, F16 or BF16"),
    "shape and bytes disagree": (entry(shape=[1, 3]), r"is \(1, 3\), config"),
    "hostile shape": (entry(shape=[2**62, 2**62]), "ends at byte"),
    "negative shape": (entry(shape=[-1, -96, 64]), "config.json says"),
    "shape of many axes": (entry(shape=[1] * 100_000), "config.json says"),
    "offsets backwards": (entry(data_offsets=[10**6, 0]), "ends at byte"),
    "tensors past the last layer": (
        put("config.json", "text_config", "num_hidden_layers", value=1),
        "none that config.json describes",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "c"
    make(folder, shards=3)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_line_with_nothing_left(tmp_path: Path, whole: Path, case: str) -> None:
    damage, message = CASES[case]
    shutil.copytree(whole, tmp_path / "c")
    damage(tmp_path / "c")
    with pytest.raises(ModelError, match=message) as caught:
        export_pair(tmp_path / "c", tmp_path / "out")
    assert len(str(caught.value)) < 600
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("value", "fits"), [(70000.0, True), (np.inf, False), (np.nan, False)])
def test_a_weight_that_the_type_cannot_hold(tmp_path: Path, value: float, fits: bool) -> None:
    make(tmp_path / "c", dtype="F32")
    tensors = read_safetensors(tmp_path / "c" / "model.safetensors")
    tensors["model.embed_tokens.weight"][16, 0] = value
    write_safetensors(tmp_path / "c" / "model.safetensors", tensors, "F32")
    out = tmp_path / "out"
    for kind in ("f16", "f32", "bf16", "q8_0"):
        if fits and kind != "f16":
            export_pair(tmp_path / "c", out, text_type=kind)
            continue
        holds = "F16 holds up to 65504" if kind == "f16" else ""
        with pytest.raises(ModelError, match=f"token_embd.weight is {value}.*{holds}"):
            export_pair(tmp_path / "c", out, text_type=kind)
        assert list(out.iterdir()) == []


def test_an_interrupt_leaves_the_old_pair_and_the_next_run_ends_whole(tmp_path: Path, whole: Path) -> None:
    old = {path: file_sha256(path) for path in export_pair(whole, tmp_path, name="n")}
    make(tmp_path / "untied", tied=False)

    class Interrupt(Unseen):
        def begin(self, words: str, total: int) -> None:
            self.left = total // 2

        def advance(self, count: int) -> None:
            self.left -= count
            if self.left < 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_pair(tmp_path / "untied", tmp_path, name="n", progress=Interrupt())
    assert sorted(p.name for p in tmp_path.glob("*.gguf")) == ["mmproj-n-F16.gguf", "n-Q8_0.gguf"]
    assert {path: file_sha256(path) for path in old} == old
    new = export_pair(tmp_path / "untied", tmp_path, name="n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mmproj-n-F16.gguf", "n-Q8_0.gguf", "untied"]
    again = export_pair(tmp_path / "untied", tmp_path / "again", name="n")
    assert [file_sha256(file) for file in new] == [file_sha256(file) for file in again]


@pytest.mark.parametrize("name", ["a/b", "..", "-x", "a\nb", "c:d"])
def test_a_name_that_is_no_file_name(tmp_path: Path, whole: Path, name: str) -> None:
    with pytest.raises(UsageError, match="plain file name"):
        export_pair(whole, tmp_path / "out", name=name)


def test_a_file_in_the_way(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"/file/.* or give another folder"):
        export_pair(whole, tmp_path / "file")


def test_a_full_disk(tmp_path: Path) -> None:
    make(tmp_path / "c", shape=TextShape(width=256, rows=1 << 13), dtype="F32", shards=2)
    whole = convert_folder(tmp_path / "c", tmp_path / "whole")
    disk = tmp_path / "disk"
    other, out = disk / "of another program", disk / "out"

    class Filler(Unseen):
        def advance(self, count: int) -> None:
            if not other.exists():
                other.write_bytes(bytes(shutil.disk_usage(disk).free - (1 << 20)))

    disk.mkdir()
    with small_disk(disk, megabytes=20):
        with pytest.raises(UsageError, match=r"No space left on device.* and run again"):
            convert_folder(tmp_path / "c", out, progress=Filler())
        assert list(out.iterdir()) == []
        other.unlink()
        again = convert_folder(tmp_path / "c", out)
        assert [file_sha256(file) for file in again] == [file_sha256(file) for file in whole]
