"""Embeddings on disk: bit for bit what was put there or nothing, whatever happens to the folder and its processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_worker import KEYS, SHARED_BYTES, expected, same, work
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.vision import Vision, content_key, engine_key
from vrt_lite.cli import run
from vrt_lite.embeddings import DISK_BYTES, EmbeddingCache, clear, most_bytes_of, usage
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings

A, B = (Path(__file__).parent.parent / "examples" / name for name in ("a.mp4", "b.mp4"))
FEW = np.array([[0.1, -0.0, np.inf], [np.nan, 1e-45, 3.0]], np.float32)


def put(disk: Path, key: str, array: NDArray[np.float32], most_bytes: int = DISK_BYTES) -> None:
    EmbeddingCache(disk, most_bytes=most_bytes).put(key, array)


def got(disk: Path, key: str) -> NDArray[np.float32] | None:
    """What a process that starts now finds."""
    return EmbeddingCache(disk).get(key)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.embedding"))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "some" / "embeddings"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.randoms(use_true_random=False), st.text())
def test_what_is_put_is_got_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, bits: random.Random, key: str
) -> None:
    disk = tmp_path_factory.mktemp("bits")
    whole = np.frombuffer(bits.randbytes(16 * rows * columns), np.float32).reshape(2 * rows, 2 * columns)
    array = whole[::2, ::-2]
    here = EmbeddingCache(disk)
    assert here.get(key) is None
    here.put(key, array)
    for found in (here.get(key), got(disk, key)):
        assert same(found, array)
        assert found is not None
        with pytest.raises(ValueError, match="read-only"):
            found[:] = 1
    assert got(disk, f"{key}.") is None


def test_one_key_in_two_namespaces_is_two(disk: Path) -> None:
    asked: list[str] = []

    def projector(name: str) -> str:
        asked.append(name)
        return name

    one, two = (EmbeddingCache(disk, namespace=lambda name=name: projector(name)) for name in ("one", "two"))
    assert not asked
    one.put("key", FEW)
    assert two.get("key") is None
    two.put("key", FEW + 1)
    assert same(EmbeddingCache(disk, namespace=lambda: "one").get("key"), FEW)
    assert asked == ["one", "two"]
    if sys.platform != "win32":
        assert disk.stat().st_mode & 0o777 == 0o700, "the folder is the user's alone"


def test_a_damaged_or_foreign_file_is_absent_and_dropped(disk: Path) -> None:
    put(disk, "key", FEW)
    [path] = entries(disk)
    whole = path.read_bytes()
    put(disk, "two", FEW + 1)
    [two] = set(entries(disk)) - {path}
    cut_or_grown = [*(whole[:length] for length in range(len(whole))), whole + b"\0", whole * 2]
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    for damaged in (*cut_or_grown, *flipped, two.read_bytes()):
        path.write_bytes(damaged)
        assert got(disk, "key") is None, damaged
        assert not path.exists()
    put(disk, "key", FEW)
    assert same(got(disk, "key"), FEW)


def test_the_least_recently_used_go_and_the_bound_holds(tmp_path: Path) -> None:
    disk, most = tmp_path, 1_000_000
    arrays = {f"{i}": np.full((20, 256), i, np.float32) for i in range(80)}  # 20 KB each: 1.6 MB
    cache = EmbeddingCache(disk, most_bytes=most, memory_bytes=0)
    before, began = set[Path](), time.time() - 1000
    for i, (key, array) in enumerate(arrays.items()):
        cache.put(key, array)
        [path] = set(entries(tmp_path)) - before
        os.utime(path, (began + i, began + i))  # the system's own times may be equal for some milliseconds
        cache.trim()
        assert i < 5 or cache.get("5") is not None, "what is used stays"
        cache.trim()
        before = set(entries(tmp_path))
        assert usage(tmp_path)[1] <= most
    left = [key for key in arrays if got(disk, key) is not None]
    assert left == ["5", *(key for key in arrays if int(key) >= 80 - len(left) + 1)]
    assert len(left) >= 40
    assert all(same(got(disk, key), arrays[key]) for key in left)
    put(tmp_path, "one more", np.zeros((20, 256), np.float32), 200_000)
    assert usage(tmp_path)[1] <= 200_000, "a lower bound later is kept to"
    assert got(disk, "one more") is not None


def test_memory_is_bounded_but_for_what_is_in_use_or_would_push_out_everything(disk: Path) -> None:
    cache = EmbeddingCache(memory_bytes=3 * FEW.nbytes)
    for key in "abcdef":
        cache.put(key, FEW)
    cache.put("a", FEW)
    assert all(cache.get(key) is not None for key in "abcdef")
    cache.get("b")
    cache.trim(frozenset("c"))
    assert [key for key in "abcdef" if cache.get(key) is not None] == ["b", "c", "f"]
    cache.trim(frozenset("abcdef"))
    assert cache.get("c") is not None
    cache, large = EmbeddingCache(disk, most_bytes=100_000), np.zeros((256, 256), np.float32)
    cache.put("large", large)
    assert same(cache.get("large"), large)
    assert usage(disk) == (0, 0)


def test_what_dead_processes_left_goes_as_the_oldest_and_foreign_files_stay(disk: Path) -> None:
    put(disk, "folder", FEW)
    [taken] = entries(disk)
    taken.unlink()
    taken.mkdir()
    names = ("notes.txt", "abc.embedding", f"{'0' * 40}.embedding.txt", f"{'A' * 40}.embedding", ".embedding")
    foreign = [place / name for place in (disk, taken) for name in names]
    for path in foreign:
        path.write_text("mine", encoding="utf-8")
    left = disk / f".{'0' * 16}.embedding"
    left.write_bytes(bytes(9_000))
    for path in (*foreign, left):
        os.utime(path, (0, 0))
    assert usage(disk)[0] == 0
    assert got(disk, "folder") is None
    put(disk, "key", FEW)
    put(disk, "other", FEW, 10_000)
    assert not left.exists()
    assert same(got(disk, "key"), FEW)
    for i in range(40):
        for key in ("folder", f"{i}"):
            put(disk, key, np.full((5, 16), i, np.float32), 10_000)
    clear(disk)
    assert usage(disk) == (0, 0)
    assert all(path.read_text(encoding="utf-8") == "mine" for path in foreign)


FULL = """
import resource, sys, pathlib, numpy as np
from vrt_lite.embeddings import EmbeddingCache
cache = EmbeddingCache(pathlib.Path(sys.argv[1]))
cache.put("small", np.zeros((8, 8), np.float32))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
cache.put("large", np.ones((99, 99), np.float32))
assert cache.get("large").sum() == 99 * 99
"""


def test_a_disk_that_is_full_half_way_is_a_cache_in_memory(disk: Path) -> None:
    pytest.importorskip("resource", reason="this system has no such limit")
    subprocess.run([sys.executable, "-c", FULL, str(disk)], check=True, timeout=60)
    assert got(disk, "small") is not None
    assert got(disk, "large") is None
    assert usage(disk)[0] == len(list(disk.iterdir())) == 1


@pytest.fixture
def processes() -> Iterator[list[BaseProcess]]:
    started: list[BaseProcess] = []
    yield started
    for process in started:
        process.kill()
        process.join()


@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_processes_leave_nothing_wrong(tmp_path: Path, processes: list[BaseProcess], kills: int) -> None:
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["vrt_lite.embeddings"])  # what takes long
    chance = random.Random(7)
    folder, stop = tmp_path / "embeddings", tmp_path / "stop"

    def start(seed: int) -> tuple[BaseProcess, Any]:
        began, found = context.Event(), context.Value("q", 0, lock=False)
        process = context.Process(target=work, args=(folder, seed, stop, began, found))
        processes.append(process)
        process.start()
        assert began.wait(60)
        return process, found

    survivor, found = start(0)
    for kill in range(kills):
        victim, _ = start(kill + 1)
        time.sleep(chance.uniform(0, 0.05))
        assert victim.exitcode is None, "a wrong embedding was read"
        victim.kill()
        victim.join()
        assert survivor.exitcode is None, "a wrong embedding was read"
    late, found_late = start(kills + 1)
    before, end = found.value, time.monotonic() + 60
    while not (found.value > before and found_late.value) and time.monotonic() < end:
        time.sleep(0.01)
    stop.touch()
    for process in (survivor, late):
        process.join(60)
        assert process.exitcode == 0
    assert min(found.value - before, found_late.value) > 0, "both went on"

    kept = {key: array for key in range(KEYS) if (array := got(folder, f"{key}")) is not None}
    assert kept
    assert all(same(array, expected(key)) for key, array in kept.items())
    # Two processes may each have been about to write one when the other looked.
    assert usage(folder)[1] <= SHARED_BYTES + 2 * expected(KEYS).nbytes
    for path in folder.glob(".*"):
        os.utime(path, (0, 0))
    put(folder, "after", FEW, SHARED_BYTES // 2)
    assert list(folder.glob(".*")) == []


def judged(a: Path = A, b: Path = B, **options: Any) -> Judgement:
    with Judge(settings=Settings(threads=1, max_pixels=12544, **options), measures=False) as judge:
        return judge.compare(a, b, prompt="A red square moving right.")


def replies_of(judgement: Judgement) -> list[tuple[str, object]]:
    return [(r.text, r.tokens_out) for order in judgement.orders for r in order.rounds]


def test_no_cache_whole_damaged_or_unwritable_changes_a_verdict(own_home: Path) -> None:
    folder = own_home / "embeddings"
    without = judged(cache=False)
    assert not folder.exists()
    first, second = judged(), judged()
    shown = sum(len(r.frames) for r in first.orders[0].rounds)
    assert without.counters.frames_encoded == first.counters.frames_encoded == shown
    assert second.counters.frames_encoded == 0
    assert second.counters.frames_reused == first.counters.frames_reused + shown
    assert judged(B, A).orders[0].rounds[0].frames_encoded == 0
    clear(folder)
    judged()
    for number, path in enumerate(entries(folder)):
        data = bytearray(path.read_bytes())
        data[number * len(data) // 20] ^= 1
        path.write_bytes(data)
    damaged = judged()
    assert damaged.counters.frames_encoded == shown
    clear(folder)
    folder.rmdir()
    folder.write_text("no folder", encoding="utf-8")
    for judgement in (first, second, damaged, judged()):
        assert replies_of(judgement) == replies_of(without)
        assert judgement.verdict == without.verdict


def test_the_bits_depend_on_the_engine_but_not_on_its_threads() -> None:
    keys = {engine_key(on_gpu=gpu, flash_attention=flash) for gpu in (False, True) for flash in (-1, 0, 1)}
    assert len(keys) == 6
    files = find()
    frames = list(np.random.default_rng(1).integers(0, 256, (2, 140, 252, 3), dtype=np.uint8))
    found: list[NDArray[np.float32]] = []
    for threads in (1, 2, 3):
        engine = EngineSettings(gpu_layers=0, threads=threads)
        with Model(files.text, settings=engine) as model, Vision(files.projector, model, settings=engine) as vision:
            key = content_key(frames)
            vision.encode(key, frames)
            found.append(vision.embeddings(key))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def test_the_command_shows_and_clears_embeddings_and_uploads(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, uploads = own_home / "embeddings", own_home / "uploads"

    def lines(*options: str) -> list[str]:
        assert run(["cache", *options]) == 0
        return capsys.readouterr().out.splitlines()

    none = "0 embeddings, 0.0 MB (at most 2000 MB)"
    assert lines() == [str(folder), none, "measures of 0 clips", f"0 uploads in {uploads}, 0.0 MB"]
    put(folder, "key", np.zeros((500, 500), np.float32))
    for name, size in (("a" * 64, 1_000_000), ("b" * 64, 2_000_000)):
        (uploads / name / "8" / "pictures").mkdir(parents=True)
        (uploads / name / "8" / "pictures" / "0.png").write_bytes(bytes(size))
    other = uploads / "of someone else"
    other.write_bytes(b"")
    told = "\n".join(lines())
    assert "1 embeddings, 1.0 MB" in told
    assert f"2 uploads in {uploads}, 3.0 MB" in told
    told = "\n".join(lines("--clear"))
    assert none in told and f"2 uploads in {uploads}, 3.0 MB" in told
    assert usage(folder) == (0, 0)
    assert f"0 uploads in {uploads}, 0.0 MB" in lines("--clear-uploads")
    assert list(uploads.iterdir()) == [other]


def test_the_size_is_set_in_megabytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert [most_bytes_of(megabytes) for megabytes in (5, None, 0)] == [5_000_000, DISK_BYTES, 0]
    monkeypatch.setenv("VRT_LITE_CACHE_MB", "5")
    assert run(["cache"]) == 0
    assert "0 embeddings, 0.0 MB (at most 5 MB)" in capsys.readouterr().out
    for wrong in ("-1", "2G", "²", "1e3", "9" * 400, "9" * 5000):
        monkeypatch.setenv("VRT_LITE_CACHE_MB", wrong)
        assert run(["compare", str(A), str(B), "-q"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "VRT_LITE_CACHE_MB" in line
