"""What `compare` keeps: found again for the same question alone, listed, deleted. A bad store costs no verdict."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import judgement, sure

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.errors import NoVerdictError
from vrt_lite.protocol.answer_form import ClipScore
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import JudgedPair, Question
from vrt_lite.runs.history import compare_once, describe_orders, list_history
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings

PROMPT = "A fox runs."
HOSTILE = "\x1b[31m\u202e'; DROP TABLE runs;.mp4"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clips")
    return write_clip(folder / "a.mp4", frames=16, gop=4), write_clip(folder / "b.mp4", frames=20, gop=4)


def asked(
    store: Store,
    clips: tuple[Path, Path],
    *,
    prompt: str = PROMPT,
    settings: Settings | None = None,
    orders: str = "",
    again: bool = False,
) -> tuple[bool, Judgement]:
    """Whether the judge was asked, and what is answered. No engine runs: the answer is made by hand."""
    times: list[str] = []
    with Judge(settings=settings) as judge:

        def compare() -> Judgement:
            times.append(prompt)
            told = judgement([sure()], *([[sure()]] if orders else []), prompt=prompt)
            one, two = (
                replace(of, path=str(p), sha256=store.digest(p)) for of, p in zip(told.inputs, clips, strict=True)
            )
            return replace(told, inputs=(one, two))

        found, when = compare_once(compare, judge, clips, prompt, store=store, orders=orders, again=again)
        assert bool(when) != bool(times)
    return bool(times), found


def test_the_same_question_is_judged_once_and_no_other_is_taken_for_it(made: tuple[Path, Path], tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        new, first = asked(store, made)
        assert new
        assert asked(store, made) == (False, first)
        copy = Path(shutil.copy(made[0], tmp_path / "other name.mp4"))
        new, found = asked(store, (copy, made[1]))
        assert (new, found.inputs[0].path, found.verdict) == (False, str(copy), first.verdict), "content counts"
        assert asked(store, made[::-1])[0], "the other order is another question"
        for other in (
            {"prompt": "A dog runs."},
            {"prompt": ""},
            {"orders": describe_orders(True, 0.95)},
            {"orders": describe_orders("auto", 0.95)},
            {"orders": describe_orders("auto", 0.8)},
            {"settings": Settings(temperature=0.7, seed=1)},
            {"settings": Settings(temperature=0.7, seed=2)},
            {"settings": Settings(max_pixels=20_000)},
            {"settings": Settings(rounds=2)},
        ):
            options: Any = other
            assert [asked(store, made, **options)[0] for _ in range(2)] == [True, False], other
        write_clip(copy, frames=24, gop=4)
        assert asked(store, (copy, made[1]))[0], "a clip that was changed is another"


def test_again_judges_anew_and_keeps_that(made: tuple[Path, Path], tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        asked(store, made)
        [(_, _, before)] = list_history(store)
        assert asked(store, made, again=True)[0]
        [(_, _, after)] = list_history(store)
        assert after > before
        assert store._database.read("SELECT count(*) FROM judgements") == [(1,)]
        assert not asked(store, made)[0]


def test_a_failure_is_raised_and_not_kept(made: tuple[Path, Path], tmp_path: Path) -> None:
    def fail() -> Judgement:
        raise NoVerdictError("No verdict.")

    with Store(tmp_path / "runs.sqlite") as store, Judge() as judge:
        for _ in range(2):
            with pytest.raises(NoVerdictError):
                compare_once(fail, judge, made, PROMPT, store=store, orders="", again=False)
        assert (store.runs(), list_history(store)) == ([], [])


@pytest.mark.parametrize(
    "damage", ["UPDATE judgements SET body = x'00'", "UPDATE judgements SET light = '[[['", "DROP TABLE runs"]
)
def test_a_damaged_store_costs_no_verdict(made: tuple[Path, Path], tmp_path: Path, damage: str) -> None:
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        asked(store, made)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()
    with Store(path) as store:
        new, found = asked(store, made)
    assert new
    assert found.warning_kinds[-1] == "not_kept"
    assert "This comparison is not kept. The store" in found.warnings[-1]


def listed(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(["history", "--json", *words]) == 0
    return json.loads(capfd.readouterr().out)


def test_the_command_line_lists_shows_and_deletes(
    made: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = HOSTILE if os.name == "posix" else "a b.mp4"
    hostile = str(shutil.copy(made[0], tmp_path / name))
    compare = ["compare", hostile, str(made[1]), "--prompt", "\x1b]0;x\x07 runs."]
    assert run([*compare, "-q"]) == 0
    verdict = capfd.readouterr().out
    assert run(compare) == 0
    again = capfd.readouterr()
    assert again.out.splitlines()[0] == verdict.splitlines()[0]
    assert "found: this was judged before" in again.err
    assert "loading" not in again.err
    assert run(["history"]) == 0
    shown = capfd.readouterr().out
    assert "b.mp4" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    [entry] = listed(capfd)
    assert (entry["first"], entry["judge"], entry["orders"], entry["error"]) == (name, "vrt-tiny-2", 1, "")
    whole = listed(capfd, entry["id"][:8])
    assert Judgement.from_json(whole).to_json() == whole
    assert run(["history", entry["id"][:8]]) == 0
    assert capfd.readouterr().out.startswith(verdict.splitlines()[0])
    for wrong in (["history", "zzzzzzzz"], ["history", ""], ["history", "--rm"], ["history", "%", "--rm"]):
        assert run(wrong) == 2
    assert run(["history", entry["id"][:8], "--rm"]) == 0
    capfd.readouterr()
    assert listed(capfd) == []
    assert run(["runs", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == [], "a run without comparisons is gone"


def test_the_sheet_and_the_trace_are_of_work_that_is_done(
    made: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compare = ["compare", *map(str, made), "--prompt", PROMPT, "--json"]
    trace = tmp_path / "trace.jsonl"
    for extra in ([], ["--trace", str(trace)]):
        assert run([*compare, *extra]) == 0
    assert "found" not in capfd.readouterr().err
    assert trace.read_text().count("\n") >= 1


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_home_that_cannot_be_written_costs_no_verdict(made: tuple[Path, Path], own_home: Path) -> None:
    own_home.chmod(0o500)
    try:
        assert run(["compare", *map(str, made), "--model", "vrt-tiny-0", "--no-cache"]) == 0
    finally:
        own_home.chmod(0o700)


def test_what_is_no_store_costs_no_verdict_unless_it_was_named(
    made: tuple[Path, Path], own_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (own_home / "runs.sqlite").write_bytes(b"no store at all" * 1000)
    compare = ["compare", *map(str, made)]
    assert run(compare) == 0
    assert "This comparison is not kept." in capfd.readouterr().err
    assert run([*compare, "--store", str(own_home / "runs.sqlite")]) == 2


def test_pairs_of_clips_that_were_judged_by_themselves_have_ids_of_their_own(tmp_path: Path) -> None:
    scores = {"OA": ClipScore(3.0)}
    alone = replace(judgement([sure()]), scores=(scores, scores))
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("c", kind="compare")
        for clip in "abc":
            run.add(Question(clip, "", PROMPT, "j"), alone)
        for second in "bc":
            assert run.result(Question("a", second, PROMPT, "j"))
        entries = list_history(store)
        assert len({pair.id[:8] for _, pair, _ in entries}) == 2
        assert all(when > 1e9 for _, _, when in entries)
        _, gone, _ = entries[0]
        assert store.remove_judgements("compare", [result.key for result in gone.results]) == 0
        [(_, left, _)] = list_history(store)
        assert left.second != gone.second


def start(made: tuple[Path, Path], *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vrt_lite", "compare", *map(str, made), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_at_once_and_one_that_is_killed_leave_one_judgement(made: tuple[Path, Path], own_home: Path) -> None:
    killed = start(made)
    assert killed.stderr
    killed.stderr.readline()
    killed.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    killed.communicate()
    both = [start(made), start(made)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0].splitlines()[0] == said[1].splitlines()[0]
    with Store(own_home / "runs.sqlite") as store:
        [(_, pair, _)] = list_history(store)
        assert isinstance(pair, JudgedPair)
        assert not store._database.read("SELECT * FROM claims")
        assert store._database.read("SELECT count(*) FROM judgements") == [(1,)]
        assert store._database.read("PRAGMA integrity_check") == [("ok",)]
