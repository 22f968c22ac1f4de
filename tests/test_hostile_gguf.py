"""A GGUF that is not what it says ends in one line: it is refused, or it ends the worker that reads it."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broken_gguf import Entry, File, Stored, mutate, put_together, take_apart
from engine_worker import try_judge

from vrt_lite.cli import run
from vrt_lite.errors import WorkerEndedError
from vrt_lite.models import bundled_names, find
from vrt_lite.worker import Worker

JUDGE = find("vrt-tiny-2")
TEXT, PROJECTOR = take_apart(JUDGE.text), take_apart(JUDGE.projector)
SECONDS = 60.0
CLIPS = [str(Path(__file__).parent.parent / "examples" / name) for name in ("a.mp4", "b.mp4")]


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
    return lambda file: file.tensors.remove(file.tensor(name))


def put(key: str, value: object, kind: int | None = None) -> Callable[[File], None]:
    def change(file: File) -> None:
        entry = file.entry(key)
        entry.value, entry.kind = value, entry.kind if kind is None else kind

    return change


def add(*entries: Entry) -> Callable[[File], None]:
    return lambda file: file.entries.extend(entries)


def reshape(name: str, dimensions: list[int], kind: int | None = None) -> Callable[[File], None]:
    def change(file: File) -> None:
        tensor = file.tensor(name)
        tensor.dimensions, tensor.kind = dimensions, tensor.kind if kind is None else kind

    return change


def add_tensor(name: str, like: str) -> Callable[[File], None]:
    def change(file: File) -> None:
        near = file.tensor(like)
        file.tensors.append(Stored(name, near.dimensions, near.kind, near.data))

    return change


def twice(file: File) -> None:
    tokens = file.entry("tokenizer.ggml.tokens").value
    tokens[7] = tokens[8]


def cut(file: File) -> None:
    file.tensors[-1].data = file.tensors[-1].data[:64]


BROKEN = [
    (PROJECTOR, drop("v.blk.1.attn_q.weight")),
    (PROJECTOR, drop("v.blk.0.attn_v.bias")),
    (PROJECTOR, add_tensor("v.patch_embd.bias", "v.post_ln.weight")),
    (PROJECTOR, reshape("v.blk.0.ffn_up.weight", [256, 128])),
    (PROJECTOR, reshape("mm.0.bias", [512], 1)),
    (PROJECTOR, reshape("mm.0.weight", [512, 512], 26)),
    (PROJECTOR, cut),
    (PROJECTOR, put("clip.vision.attention.head_count", 3)),
    (PROJECTOR, put("clip.vision.attention.head_count", 64)),
    (PROJECTOR, put("clip.vision.embedding_length", 64)),
    (PROJECTOR, put("clip.vision.patch_size", 7)),
    (PROJECTOR, put("clip.vision.n_wa_pattern", 1)),
    (PROJECTOR, put("clip.vision.attention.layer_norm_epsilon", -1e-6)),
    (PROJECTOR, put("clip.vision.block_count", 3.0, 6)),
    (PROJECTOR, put("general.name", True, 7)),
    (PROJECTOR, put("clip.has_vision_encoder", False)),
    (PROJECTOR, add(Entry("clip.has_audio_encoder", 7, value=True))),
    (PROJECTOR, put("clip.vision.image_std", [0.0, 1.0, 1.0])),
    (TEXT, drop("blk.2.ffn_gate.weight")),
    (TEXT, reshape("blk.1.attn_k.bias", [192], 1)),
    (TEXT, put("qwen2vl.attention.head_count_kv", 2)),
    (TEXT, put("qwen2vl.block_count", 2**31)),
    (TEXT, put("qwen2vl.rope.dimension_sections", [99, 1, 1, 0])),
    (TEXT, add(Entry("qwen2vl.rope.scaling.type", 8, b"x"))),
    (TEXT, add(Entry("qwen2vl.expert_used_count", 4, 7))),
    (TEXT, add(Entry("general.alignment", 4, 1))),
    (TEXT, put("tokenizer.ggml.model", b"llama")),
    (TEXT, put("tokenizer.ggml.token_type", [1] * 9)),
    (TEXT, twice),
]


@pytest.mark.parametrize(("whole", "change"), BROKEN)
def test_what_is_wrong_is_one_line(tmp_path: Path, worker: Worker, whole: File, change: Callable[[File], None]) -> None:
    file = copy.deepcopy(whole)
    change(file)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(put_together(file))
    text, projector = (broken, JUDGE.projector) if whole is TEXT else (JUDGE.text, broken)
    assert outcome(worker, text, projector) in {"unusable_model", "ended"}


def mutated(seed: int, folder: Path, judge: str) -> tuple[str, Path, Path]:
    """Change one of a judge's two files as the seed says; returns what was done, and the paths of the pair."""
    files, draw = find(judge), random.Random(seed)
    paths = [files.text, files.projector]
    at = draw.randrange(2)
    done, data = mutate(take_apart(paths[at]), draw)
    paths[at] = folder / "mutant.gguf"
    paths[at].write_bytes(data)
    return done, paths[0], paths[1]


def assert_each_is_one_line(seeds: range, judge: str, folder: Path, worker: Worker) -> None:
    shutil.copy(find(judge).text.with_name("profile.toml"), folder)
    kinds = {"ok": 0, "unusable_model": 0, "context_full": 0, "ended": 0}
    for seed in seeds:
        done, text, projector = mutated(seed, folder, judge)
        kind = outcome(worker, text, projector)
        assert kind in kinds, f"seed {seed}: {done}: {kind}"
        kinds[kind] += 1
    assert 0 < kinds["ok"] < len(seeds)


def test_each_mutated_file_is_one_line(tmp_path: Path, worker: Worker) -> None:
    assert_each_is_one_line(range(40), "vrt-tiny-2", tmp_path, worker)


@pytest.mark.nightly
@pytest.mark.parametrize("judge", bundled_names())
def test_each_of_a_thousand_mutated_files_is_one_line(tmp_path: Path, worker: Worker, judge: str) -> None:
    first = random.SystemRandom().randrange(10**9)
    assert_each_is_one_line(range(first, first + 1000), judge, tmp_path, worker)


def test_attention_that_was_written_as_one_tensor_is_a_judge_too(tmp_path: Path) -> None:
    file = copy.deepcopy(TEXT)
    for layer in range(4):
        for end in ("weight", "bias"):
            q, k, v = (file.tensor(f"blk.{layer}.attn_{part}.{end}") for part in "qkv")
            q.name, q.data = f"blk.{layer}.attn_qkv.{end}", q.data + k.data + v.data
            q.dimensions[-1] += k.dimensions[-1] + v.dimensions[-1]
            file.tensors = [tensor for tensor in file.tensors if tensor is not k and tensor is not v]
    path = tmp_path / "fused.gguf"
    path.write_bytes(put_together(file))
    assert try_judge(path, JUDGE.projector) == "ok"


def split(file: File) -> tuple[File, File]:
    """Two parts of a text model, as llama-gguf-split makes them."""
    parts = (
        File(copy.deepcopy(file.entries), file.tensors[:20]),
        File([Entry("general.tags", 9, [b"a", b"b"], 8)], file.tensors[20:]),
    )
    for number, part in enumerate(parts):
        split_entries = (("split.no", 2, number), ("split.count", 2, 2), ("split.tensors.count", 5, len(file.tensors)))
        part.entries += [Entry(key, kind, value) for key, kind, value in split_entries]
    return parts


def test_each_part_of_a_split_file_is_checked(tmp_path: Path, worker: Worker) -> None:
    paths = [tmp_path / f"judge-{number:05}-of-00002.gguf" for number in (1, 2)]
    for path, part in zip(paths, split(TEXT), strict=True):
        path.write_bytes(put_together(part))
    assert outcome(worker, paths[0], JUDGE.projector) == "ok"
    _, second = split(copy.deepcopy(TEXT))
    second.entries.append(Entry("general.alignment", 4, 1))
    paths[1].write_bytes(put_together(second))
    assert outcome(worker, paths[0], JUDGE.projector) in {"unusable_model", "ended"}
    for seed in range(12):
        parts = split(copy.deepcopy(TEXT))
        for path, part in zip(paths, parts, strict=True):
            path.write_bytes(put_together(part))
        done, data = mutate(parts[seed % 2], random.Random(seed))
        paths[seed % 2].write_bytes(data)
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
