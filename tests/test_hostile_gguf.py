"""A GGUF that is not what it says ends in one line: it is refused, or it ends the worker that reads it."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broken_gguf import Entry, File, Stored, mutate, put_together, take_apart
from engine_worker import try_judge
from split_gguf import split

from vrt_lite.cli import run
from vrt_lite.errors import WorkerEndedError
from vrt_lite.models import bundled_names, find
from vrt_lite.worker import Worker

JUDGE = find("vrt-tiny-2")
TEXT, PROJECTOR = take_apart(JUDGE.text), take_apart(JUDGE.projector)
SECONDS = 60.0
CLIPS = [str(Path(__file__).parent.parent / "examples" / name) for name in ("a.mp4", "b.mp4")]
REFUSED = {"unusable_model", "ended"}


def outcome(worker: Worker, text: Path, projector: Path) -> str:
    """What became of a judge: "ok", "ended", or the kind of an error; its message is one line."""
    try:
        said: str = worker.call(try_judge, text, projector, seconds=SECONDS)
    except WorkerEndedError as error:
        said = f"ended: {error}"
    assert "\n" not in said
    return said.partition(":")[0]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def test_a_file_that_was_taken_apart_and_put_together_is_the_same() -> None:
    assert put_together(TEXT) == JUDGE.text.read_bytes()
    assert put_together(PROJECTOR) == JUDGE.projector.read_bytes()


def drop(name: str) -> Callable[[File], None]:
    return lambda file: file.tensors.remove(file.find(name))


def put(name: str, **values: Any) -> Callable[[File], None]:
    """Give an entry or a tensor other values."""
    return lambda file: vars(file.find(name)).update(values)


def add(part: Entry | Stored) -> Callable[[File], None]:
    return lambda file: (file.entries if isinstance(part, Entry) else file.tensors).append(part)


TOKENS = TEXT.find("tokenizer.ggml.tokens").value
BROKEN = [
    (PROJECTOR, drop("v.blk.1.attn_q.weight")),
    (PROJECTOR, drop("v.blk.0.attn_v.bias")),
    (PROJECTOR, add(replace(PROJECTOR.find("v.post_ln.weight"), name="v.patch_embd.bias"))),
    (PROJECTOR, put("v.blk.0.ffn_up.weight", dimensions=[256, 128])),
    (PROJECTOR, put("mm.0.bias", dimensions=[512], kind=1)),
    (PROJECTOR, put("mm.0.weight", dimensions=[512, 512], kind=26)),
    (PROJECTOR, put(PROJECTOR.tensors[-1].name, data=PROJECTOR.tensors[-1].data[:64])),
    (PROJECTOR, put("clip.vision.attention.head_count", value=3)),
    (PROJECTOR, put("clip.vision.attention.head_count", value=64)),
    (PROJECTOR, put("clip.vision.embedding_length", value=64)),
    (PROJECTOR, put("clip.vision.patch_size", value=7)),
    (PROJECTOR, put("clip.vision.n_wa_pattern", value=1)),
    (PROJECTOR, put("clip.vision.attention.layer_norm_epsilon", value=-1e-6)),
    (PROJECTOR, put("clip.vision.block_count", value=3.0, kind=6)),
    (PROJECTOR, put("general.name", value=True, kind=7)),
    (PROJECTOR, put("clip.has_vision_encoder", value=False)),
    (PROJECTOR, add(Entry("clip.has_audio_encoder", 7, value=True))),
    (PROJECTOR, put("clip.vision.image_std", value=[0.0, 1.0, 1.0])),
    (TEXT, drop("blk.2.ffn_gate.weight")),
    (TEXT, put("blk.1.attn_k.bias", dimensions=[192], kind=1)),
    (TEXT, put("qwen2vl.attention.head_count_kv", value=2)),
    (TEXT, put("qwen2vl.block_count", value=2**31)),
    (TEXT, put("qwen2vl.rope.dimension_sections", value=[99, 1, 1, 0])),
    (TEXT, add(Entry("qwen2vl.rope.scaling.type", 8, b"x"))),
    (TEXT, add(Entry("qwen2vl.expert_used_count", 4, 7))),
    (TEXT, add(Entry("general.alignment", 4, 1))),
    (TEXT, put("tokenizer.ggml.model", value=b"llama")),
    (TEXT, put("tokenizer.ggml.token_type", value=[1] * 9)),
    (TEXT, put("tokenizer.ggml.tokens", value=[*TOKENS[:7], TOKENS[8], *TOKENS[8:]])),
]


@pytest.mark.parametrize(("whole", "change"), BROKEN)
def test_what_is_wrong_is_one_line(tmp_path: Path, worker: Worker, whole: File, change: Callable[[File], None]) -> None:
    file = copy.deepcopy(whole)
    change(file)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(put_together(file))
    text, projector = (broken, JUDGE.projector) if whole is TEXT else (JUDGE.text, broken)
    assert outcome(worker, text, projector) in REFUSED


def assert_each_is_one_line(seeds: range, judge: str, folder: Path, worker: Worker) -> None:
    """Change one of a judge's two files as each seed says."""
    files = find(judge)
    shutil.copy(files.text.with_name("profile.toml"), folder)
    kinds = {"ok": 0, "unusable_model": 0, "context_full": 0, "ended": 0}
    for seed in seeds:
        draw = random.Random(seed)
        paths = [files.text, files.projector]
        at = draw.randrange(2)
        done, data = mutate(take_apart(paths[at]), draw)
        paths[at] = folder / "mutant.gguf"
        paths[at].write_bytes(data)
        kind = outcome(worker, *paths)
        assert kind in kinds, f"seed {seed}: {done}: {kind}"
        kinds[kind] += 1
    assert 0 < kinds["ok"] < len(seeds)


def test_each_mutated_file_is_one_line(tmp_path: Path, worker: Worker) -> None:
    assert_each_is_one_line(range(12), "vrt-tiny-2", tmp_path, worker)


@pytest.mark.nightly
@pytest.mark.parametrize("judge", bundled_names())
def test_each_of_a_thousand_mutated_files_is_one_line(tmp_path: Path, worker: Worker, judge: str) -> None:
    first = random.SystemRandom().randrange(10**9)
    assert_each_is_one_line(range(first, first + 1000), judge, tmp_path, worker)


def test_attention_that_was_written_as_one_tensor_is_a_judge_too(tmp_path: Path, worker: Worker) -> None:
    file = copy.deepcopy(TEXT)
    for layer in range(4):
        for end in ("weight", "bias"):
            q, k, v = (file.find(f"blk.{layer}.attn_{part}.{end}") for part in "qkv")
            q.name, q.data = f"blk.{layer}.attn_qkv.{end}", q.data + k.data + v.data
            q.dimensions[-1] += k.dimensions[-1] + v.dimensions[-1]
            file.tensors = [tensor for tensor in file.tensors if tensor is not k and tensor is not v]
    path = tmp_path / "fused.gguf"
    path.write_bytes(put_together(file))
    assert outcome(worker, path, JUDGE.projector) == "ok"


def test_each_part_of_a_split_file_is_checked(tmp_path: Path, worker: Worker) -> None:
    paths = split(JUDGE.text, tmp_path / "judge.gguf", tensors=30)
    parts = {path: take_apart(path) for path in paths}
    odd = copy.deepcopy(parts[paths[1]])
    odd.entries.append(Entry("general.alignment", 4, 1))
    paths[1].write_bytes(put_together(odd))
    assert outcome(worker, paths[0], JUDGE.projector) in REFUSED
    for seed in range(4):
        for path, part in parts.items():
            path.write_bytes(put_together(part))
        path = paths[seed % 2]
        done, data = mutate(copy.deepcopy(parts[path]), random.Random(seed))
        path.write_bytes(data)
        kind = outcome(worker, paths[0], JUDGE.projector)
        assert kind in {"ok", "unusable_model", "context_full", "ended"}, f"seed {seed}: {done}: {kind}"


def test_a_file_that_ends_the_engine_is_one_line_of_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named, and ends no other process."""
    file = copy.deepcopy(PROJECTOR)
    drop("v.blk.1.attn_q.weight")(file)
    shutil.copytree(JUDGE.text.parent, folder := tmp_path / "judge")
    (folder / JUDGE.projector.name).write_bytes(put_together(file))
    assert run(["compare", *CLIPS, "--model", str(folder), "--prompt", "A red square.", "--json"]) == 4
    out, err = capfd.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("vrt-lite: The judge's process ended by")
    assert f"Nothing was judged with {folder} yet: if its files are damaged, pull or copy them again." in line
