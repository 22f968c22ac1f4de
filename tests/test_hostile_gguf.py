"""A GGUF that is not what it says ends in one line, before the engine reads it and ends the process."""

from __future__ import annotations

import copy
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broken_gguf import Entry, File, Stored, mutate, put_together, take_apart
from engine_worker import try_judge
from gguf import GGML_QUANT_SIZES

from vrt_lite.errors import ModelError
from vrt_lite.models import bundled_names, find
from vrt_lite.models.gguf_check import BLOCKS

JUDGE = find("vrt-tiny-2")
TEXT, PROJECTOR = take_apart(JUDGE.text), take_apart(JUDGE.projector)
SECONDS = 60.0


class Worker:
    """A child process that loads one judge after another; `alive` is whether the engine has not ended it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("engine_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )

    def try_judge(self, text: Path, projector: Path) -> str:
        """What became of it: "ok", the kind of an error and its text, or "died"."""
        assert self._process.stdin
        assert self._process.stdout
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        self._process.stdin.write(f"{text}\t{projector}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        timer.cancel()
        if not line:
            self.close()
            self.__init__()
        return line or "died"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


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
    (PROJECTOR, drop("v.blk.1.attn_q.weight"), "it has no tensor v.blk.1.attn_q.weight"),
    (PROJECTOR, drop("v.blk.0.attn_v.bias"), "it has no tensor v.blk.0.attn_v.bias"),
    (PROJECTOR, add_tensor("v.patch_embd.bias", "v.post_ln.weight"), "it has the tensor 'v.patch_embd.bias', which no"),
    (PROJECTOR, reshape("v.blk.0.ffn_up.weight", [256, 128]), "has the dimensions 256x128, not 128x256"),
    (PROJECTOR, reshape("mm.0.bias", [512], 1), "mm.0.bias is of type 1; F32 is needed"),
    (PROJECTOR, reshape("mm.0.weight", [512, 512], 26), "mm.0.weight is of the type 26, which the engine cannot use"),
    (PROJECTOR, reshape("v.patch_embd.weight", [14, 14, 3, 128], 30), "is of type 30; F32 or F16 is needed"),
    (PROJECTOR, cut, "has 64 bytes of 150528"),
    (PROJECTOR, put("clip.vision.attention.head_count", 3), "is 3, which does not divide 128"),
    (PROJECTOR, put("clip.vision.attention.head_count", 64), "its heads have a width of 2; it must be a multiple of 4"),
    (PROJECTOR, put("clip.vision.embedding_length", 64), "dimensions"),
    (PROJECTOR, put("clip.vision.patch_size", 7), "clip.vision.patch_size is 7; it must be 14"),
    (PROJECTOR, put("clip.vision.n_wa_pattern", 1), "clip.vision.n_wa_pattern is 1; it must be 2 to"),
    (PROJECTOR, put("clip.vision.attention.layer_norm_epsilon", -1e-6), "layer_norm_epsilon is -"),
    (PROJECTOR, put("clip.vision.block_count", 3.0, 6), "is of type float32; uint32 is needed"),
    (PROJECTOR, put("general.name", True, 7), "general.name is of type bool; string is needed"),
    (PROJECTOR, put("clip.has_vision_encoder", False), "clip.has_vision_encoder must be true"),
    (PROJECTOR, add(Entry("clip.has_audio_encoder", 7, value=True)), "clip.has_audio_encoder must be false"),
    (PROJECTOR, put("clip.vision.image_std", [0.0, 1.0, 1.0]), "clip.vision.image_std must be above 0"),
    (TEXT, drop("blk.2.ffn_gate.weight"), "it has no tensor blk.2.ffn_gate.weight"),
    (TEXT, reshape("blk.1.attn_k.bias", [192], 1), "blk.1.attn_k.bias is of type 1; F32 is needed"),
    (TEXT, put("qwen2vl.attention.head_count_kv", 2), "qwen2vl.attention.head_count_kv is 2, which does not divide 3"),
    (TEXT, put("qwen2vl.block_count", 2**31), "qwen2vl.block_count is 2147483648; it must be 1 to 512"),
    (TEXT, put("qwen2vl.attention.layer_norm_rms_epsilon", float("nan")), "is nan; it must be 0 or more"),
    (TEXT, put("qwen2vl.rope.dimension_sections", [99, 1, 1, 0]), "is (99, 1, 1, 0); their sum must be 32"),
    (TEXT, add(Entry("qwen2vl.rope.scaling.type", 8, b"x")), "rope.scaling.type is 'x'; it must be none or linear"),
    (
        TEXT,
        add(Entry("qwen2vl.expert_used_count", 4, 7)),
        "it has qwen2vl.expert_used_count, which no judge has",
    ),
    (TEXT, add(Entry("general.alignment", 4, 1)), "general.alignment is 1; it must be a multiple of 32"),
    (TEXT, put("tokenizer.ggml.model", b"llama"), "tokenizer.ggml.model is 'llama'; it must be gpt2"),
    (TEXT, put("tokenizer.ggml.token_type", [1] * 9), "tokenizer.ggml.token_type has 9 items for 1024 tokens"),
    (TEXT, twice, "tokenizer.ggml.tokens has 1024 tokens, and only 1023 different ones"),
]


@pytest.mark.parametrize(
    ("whole", "change", "reason"), BROKEN, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, whole: File, change: Callable[[File], None], reason: str
) -> None:
    file = copy.deepcopy(whole)
    change(file)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(put_together(file))
    text, projector = (broken, JUDGE.projector) if whole is TEXT else (JUDGE.text, broken)
    with pytest.raises(ModelError) as caught:
        find(text, projector=projector)
    message = str(caught.value)
    assert message.startswith(f"{broken} ")
    assert reason in message
    assert "\n" not in message


def mutated(seed: int, folder: Path, judge: str) -> tuple[str, Path, Path]:
    """Change one of a judge's two files as the seed says; returns what was done, and the paths of the pair."""
    files, draw = find(judge), random.Random(seed)
    paths = [files.text, files.projector]
    at = draw.randrange(2)
    done, data = mutate(take_apart(paths[at]), draw)
    paths[at] = folder / "mutant.gguf"
    paths[at].write_bytes(data)
    return done, paths[0], paths[1]


def assert_none_ends_the_process(seeds: range, judge: str, folder: Path, worker: Worker) -> None:
    shutil.copy(find(judge).text.with_name("profile.toml"), folder)
    kinds = {"ok": 0, "unusable_model": 0}
    for seed in seeds:
        done, text, projector = mutated(seed, folder, judge)
        kind = worker.try_judge(text, projector).partition(":")[0]
        assert kind in {*kinds, "context_full"}, f"seed {seed}: {done}: {kind}"
        kinds[kind] = kinds.get(kind, 0) + 1
    # Some changes do no harm, and most do.
    assert 0 < kinds["ok"] < kinds["unusable_model"]


def test_no_mutated_file_ends_the_process(tmp_path: Path, worker: Worker) -> None:
    assert_none_ends_the_process(range(40), "vrt-tiny-2", tmp_path, worker)


@pytest.mark.nightly
@pytest.mark.parametrize("judge", bundled_names())
def test_none_of_a_thousand_mutated_files_ends_the_process(tmp_path: Path, worker: Worker, judge: str) -> None:
    first = random.SystemRandom().randrange(10**9)
    assert_none_ends_the_process(range(first, first + 1000), judge, tmp_path, worker)


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


def test_the_sizes_of_blocks_are_those_of_ggml() -> None:
    known = {kind.value: size for kind, size in GGML_QUANT_SIZES.items()}
    assert {kind: known[kind] for kind in BLOCKS} == BLOCKS


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
    assert worker.try_judge(paths[0], JUDGE.projector) == "ok"
    _, second = split(copy.deepcopy(TEXT))
    second.entries.append(Entry("general.alignment", 4, 1))
    paths[1].write_bytes(put_together(second))
    assert "general.alignment is 1" in worker.try_judge(paths[0], JUDGE.projector)
    for seed in range(12):
        parts = split(copy.deepcopy(TEXT))
        for path, part in zip(paths, parts, strict=True):
            path.write_bytes(put_together(part))
        done, data = mutate(parts[seed % 2], random.Random(seed))
        paths[seed % 2].write_bytes(data)
        kind = worker.try_judge(paths[0], JUDGE.projector).partition(":")[0]
        assert kind in {"ok", "unusable_model", "context_full"}, f"seed {seed}: {done}"


@pytest.mark.parametrize("what", ["keys", "tensors", "texts"])
def test_a_header_that_takes_long_to_read_is_refused(tmp_path: Path, what: str) -> None:
    file = copy.deepcopy(TEXT)
    if what == "keys":
        file.entries += [Entry(f"k{i}", 7, value=True) for i in range(70_000)]
    elif what == "tensors":
        file.tensors += [Stored(f"t{i}", [], 0, b"") for i in range(70_000)]
    else:
        file.entries.append(Entry("tokenizer.ggml.more", 9, [b""] * (2**20 + 1), 8))
    path = tmp_path / "long.gguf"
    path.write_bytes(put_together(file))
    with pytest.raises(ModelError, match=r"it claims \d+ entries in \d+ bytes"):
        find(path, projector=JUDGE.projector)
