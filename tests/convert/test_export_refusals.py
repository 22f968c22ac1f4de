"""What cannot be exported is refused in one line, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_checkpoint import make, write_json, write_shard

from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError, UsageError

SHARD = "model-00002-of-00003.safetensors"


def edit_json(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        value = json.loads((folder / name).read_text("utf-8"))
        write_json(folder / name, change(value) or value)

    return edit


def put(name: str, *keys: str, value: Any) -> Callable[[Path], None]:
    """Set one value deep in a JSON file."""

    def change(parent: Any) -> None:
        for key in keys[:-1]:
            parent = parent[key]
        parent[keys[-1]] = value

    return edit_json(name, change)


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Edit the second shard's JSON header; `change` may return bytes to put in its place."""

    def edit(folder: Path) -> None:
        data = (folder / SHARD).read_bytes()
        length = int.from_bytes(data[:8], "little")
        value = json.loads(data[8 : 8 + length])
        changed = change(value)
        new = changed if isinstance(changed, bytes) else json.dumps(value).encode()
        write_shard(folder / SHARD, new, data[8 + length :])

    return edit


def entry(**values: Any) -> Callable[[Path], None]:
    """Edit the first tensor's entry in the second shard."""
    return header(lambda value: value[next(n for n in value if n != "__metadata__")].update(values))


def cut(size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:size]) and None


def claim(length: int) -> Callable[[Path], None]:
    """A header length that is not the header's."""

    def edit(folder: Path) -> None:
        data = (folder / SHARD).read_bytes()
        (folder / SHARD).write_bytes(length.to_bytes(8, "little") + data[8:])

    return edit


def rope(value: dict[str, Any]) -> None:
    value["text_config"]["rope_parameters"]["rope_type"] = "yarn"


def redirect(value: dict[str, Any]) -> None:
    value["weight_map"] = dict.fromkeys(value["weight_map"], "../secret.safetensors")


def grow_id(value: dict[str, Any]) -> None:
    value["added_tokens"][0]["id"] = 10**12


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "config.json is missing"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config no JSON": (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
    "config a list": (lambda f: write_json(f / "config.json", []), "cannot be read"),
    "config nested without end": (lambda f: (f / "config.json").write_text("[" * 200_000), "cannot be read"),
    "another architecture": (put("config.json", "model_type", value="llava"), "'qwen2_5_vl'"),
    "text_config a word": (put("config.json", "text_config", value="no"), "cannot be read"),
    "no hidden size": (put("config.json", "text_config", "hidden_size", value=None), "hidden_size is None"),
    "layers without end": (put("config.json", "text_config", "num_hidden_layers", value=10**9), "1023"),
    "another vision tower": (put("config.json", "vision_config", "window_size", value=64), "window_size"),
    "uneven attention": (put("config.json", "vision_config", "fullatt_block_indexes", value=[1, 2]), "every n-th"),
    "projector of another model": (put("config.json", "vision_config", "out_hidden_size", value=32), "needs 64"),
    "rope scaling": (edit_json("config.json", rope), "'yarn'"),
    "another vocabulary size": (put("config.json", "text_config", "vocab_size", value=400), r"says \(400, 64\)"),
    "a block too many": (put("config.json", "vision_config", "depth", value=6), "tensors are missing"),
    "no preprocessor": (lambda f: (f / "preprocessor_config.json").unlink(), "preprocessor_config.json is missing"),
    "no colours": (put("preprocessor_config.json", "image_mean", value=[1]), "image_mean"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "another pre-tokenizer": (put("tokenizer.json", "pre_tokenizer", value={"type": "Whitespace"}), "not Qwen2's"),
    "token past the embedding": (edit_json("tokenizer.json", grow_id), "tokenizer.json cannot be read"),
    "broken merges": (put("tokenizer.json", "model", "merges", value=[["a"]]), "Unknown tokenizer merges"),
    "lone surrogate": (put("tokenizer.json", "model", "vocab", "\ud800", value=300), "surrogates"),
    "no end of turn": (
        lambda f: (
            put("config.json", "text_config", "eos_token_id", value=None)(f),
            put("tokenizer_config.json", "eos_token", value=None)(f),
        ),
        "eos_token",
    ),
    "odd model card": (lambda f: (f / "README.md").write_text("---\nlicense: [\n---\n"), "README.md"),
    "odd model card value": (lambda f: (f / "README.md").write_text("---\nversion: 1.5\n---\n"), "a value of README"),
    "missing shard": (lambda f: (f / SHARD).unlink(), f"{SHARD} is missing"),
    "missing shard, no index": (
        lambda f: [(f / n).unlink() for n in (SHARD, "model.safetensors.index.json")],
        r"model\.safetensors is missing",
    ),
    "no shards": (lambda f: [p.unlink() for p in f.glob("model*")], r"model\.safetensors is missing"),
    "shard elsewhere": (edit_json("model.safetensors.index.json", redirect), "same folder"),
    "index of another": (
        put("model.safetensors.index.json", "weight_map", "x", value=SHARD),
        "none that config.json describes",
    ),
    "truncated shard": (cut(-1), "ends at byte"),
    "empty shard": (cut(0), "cannot be read"),
    "shard of 7 bytes": (cut(7), "cannot be read"),
    "header past the end": (claim(10**7), "cannot be read"),
    "header of 2**63": (claim(2**63), "cannot be read"),
    "header cut in two": (claim(100), "cannot be read"),
    "header no object": (header(lambda h: b"[]"), "cannot be read"),
    "header nested": (header(lambda h: b"[" * 200_000), "cannot be read"),
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
    shard = tmp_path / "c" / "model.safetensors"
    data = bytearray(shard.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")  # of the embedding, first by name
    data[start + 4096 : start + 4100] = np.float32(value).tobytes()
    shard.write_bytes(data)
    out = tmp_path / "out"
    with pytest.raises(ModelError, match=r"token_embd.weight is (7|inf|nan).*F16 holds up to 65504"):
        export_pair(tmp_path / "c", out, text_type="f16")
    assert list(out.iterdir()) == []
    for kind in ("f32", "bf16", "q8_0"):
        if fits:
            export_pair(tmp_path / "c", out, text_type=kind)
        else:
            with pytest.raises(ModelError, match=r"is (inf|nan)"):
                export_pair(tmp_path / "c", out, text_type=kind)


def test_an_interrupt_leaves_the_old_pair_and_the_next_run_ends_whole(tmp_path: Path, whole: Path) -> None:
    old = export_pair(whole, tmp_path, name="n")
    make(tmp_path / "untied", tied=False)

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_pair(tmp_path / "untied", tmp_path, name="n", progress=interrupt)
    assert sorted(p.name for p in tmp_path.glob("*.gguf")) == ["mmproj-n-F16.gguf", "n-Q8_0.gguf"]
    assert [file_sha256(file.path) for file in old] == [file.sha256 for file in old]
    new = export_pair(tmp_path / "untied", tmp_path, name="n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mmproj-n-F16.gguf", "n-Q8_0.gguf", "untied"]
    again = export_pair(tmp_path / "untied", tmp_path / "again", name="n")
    assert [file.sha256 for file in new] == [file.sha256 for file in again]


@pytest.mark.parametrize("name", ["a/b", "..", "-x", "a\nb", "c:d"])
def test_a_name_that_is_no_file_name(tmp_path: Path, whole: Path, name: str) -> None:
    with pytest.raises(UsageError, match="plain file name"):
        export_pair(whole, tmp_path / "out", name=name)


def test_a_file_in_the_way(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"/file/.* or give another folder"):
        export_pair(whole, tmp_path / "file")
