"""What `compare` keeps: found again for the same question alone, listed, deleted. A bad store costs no verdict."""

from __future__ import annotations

import json
import os
import shutil
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
from vrt_lite.runs.history import compare_once, list_history
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings

PROMPT = "A fox runs."
HOSTILE = "\x1b[31m\u202e'; DROP TABLE runs;.mp4" if os.name == "posix" else "a b.mp4"
Clips = tuple[Path, Path]
PLAIN = Settings()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    folder = tmp_path_factory.mktemp("clips")
    return write_clip(folder / "a.mp4", frames=16, gop=4), write_clip(folder / "b.mp4", frames=20, gop=4)


def asked(
    store: Store,
    clips: Clips,
    settings: Settings = PLAIN,
    prompt: str = PROMPT,
    again: bool = False,
    measures: bool = True,
) -> tuple[bool, Judgement]:
    """Whether the judge was asked, and what is answered. No engine runs: the answer is made by hand."""
    times: list[str] = []

    def compare() -> Judgement:
        times.append(prompt)
        told = judgement([sure()], *([[sure()]] if settings.both_orders else []), prompt=prompt)
        one, two = (replace(of, path=str(p), sha256=store.digest(p)) for of, p in zip(told.inputs, clips, strict=True))
        return replace(told, inputs=(one, two))

    with Judge(settings=settings, measures=measures) as judge:
        found, when = compare_once(compare, judge, clips, prompt, store=store, again=again)
    assert bool(when) != bool(times)
    return bool(times), found


def test_the_same_question_is_judged_once_and_no_other_is_taken_for_it(
    made: Clips, store: Store, tmp_path: Path
) -> None:
    _, first = asked(store, made)
    assert asked(store, made) == (False, first)
    copy = Path(shutil.copy(made[0], tmp_path / "other name.mp4"))
    new, found = asked(store, (copy, made[1]))
    assert (new, found.inputs[0].path, found.verdict) == (False, str(copy), first.verdict), "content counts"
    shutil.copy(made[1], copy)
    others: list[dict[str, Any]] = [
        {"clips": (copy, made[1])},
        {"clips": (made[1], made[0])},
        {"prompt": "A dog runs."},
        {"prompt": ""},
        {"measures": False},
        {"settings": Settings(both_orders=True)},
        {"settings": Settings(both_orders="auto")},
        {"settings": Settings(both_orders="auto", confidence=0.8)},
        {"settings": Settings(temperature=0.7, seed=1)},
        {"settings": Settings(temperature=0.7, seed=2)},
    ]
    for options in others:
        assert [asked(store, **{"clips": made, **options})[0] for _ in range(2)] == [True, False], options


def test_again_judges_anew_and_keeps_that_and_a_failure_is_not_kept(made: Clips, store: Store) -> None:
    def fail() -> Judgement:
        raise NoVerdictError("No verdict.")

    with Judge() as judge, pytest.raises(NoVerdictError):
        compare_once(fail, judge, made, PROMPT, store=store, again=False)
    assert (store.runs(), list_history(store)) == ([], [])
    times: list[float] = []
    for again in (True, True, False):
        assert asked(store, made, again=again)[0] == again
        [(_, _, when)] = list_history(store)
        times.append(when)
    assert times[0] < times[1] == times[2]
    assert store.read("SELECT count(*) FROM judgements") == [(1,)]


@pytest.mark.parametrize(
    "damage", ["UPDATE judgements SET body = x'00'", "UPDATE judgements SET light = '[[['", "DROP TABLE runs"]
)
def test_a_damaged_store_costs_no_verdict(made: Clips, store: Store, damage: str) -> None:
    asked(store, made)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute(damage)
    new, found = asked(store, made)
    assert new
    assert found.warning_kinds[-1] == "not_kept"
    assert "This comparison is not kept. The store" in found.warnings[-1]


def listed(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(["history", "--json", *words]) == 0
    return json.loads(capfd.readouterr().out)


def test_the_command_line_lists_shows_and_deletes(
    made: Clips, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hostile = str(shutil.copy(made[0], tmp_path / HOSTILE))
    compare = ["compare", hostile, str(made[1]), "--prompt", "\x1b]0;x\x07 runs."]
    assert run([*compare, "-q"]) == 0
    verdict = capfd.readouterr().out.splitlines()[0]
    assert run(compare) == 0
    again = capfd.readouterr()
    assert again.out.splitlines()[0] == verdict
    assert "found: this was judged before" in again.err
    assert "loading" not in again.err
    trace = tmp_path / "trace.jsonl"
    assert run([*compare, "--trace", str(trace)]) == 0
    assert "found" not in capfd.readouterr().err, "a trace is of work that is done"
    assert trace.read_text().count("\n") >= 1
    assert run(["history"]) == 0
    shown = capfd.readouterr().out
    assert "b.mp4" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    [entry] = listed(capfd)
    assert (entry["first"], entry["judge"], entry["orders"], entry["error"]) == (HOSTILE, "vrt-tiny-2", 1, "")
    whole = listed(capfd, entry["id"][:8])
    assert Judgement.from_json(whole).to_json() == whole
    assert run(["history", entry["id"][:8]]) == 0
    assert capfd.readouterr().out.startswith(verdict)
    for wrong in (["zzzzzzzz"], [""], ["--rm"], ["%", "--rm"]):
        assert run(["history", *wrong]) == 2
    assert run(["history", entry["id"][:8], "--rm"]) == 0
    capfd.readouterr()
    assert listed(capfd) == []
    assert run(["runs", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == [], "a run without comparisons is gone"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_home_that_cannot_be_written_costs_no_verdict(made: Clips, own_home: Path) -> None:
    own_home.chmod(0o500)
    try:
        assert run(["compare", *map(str, made), "--model", "vrt-tiny-0", "--no-cache"]) == 0
    finally:
        own_home.chmod(0o700)


def test_what_is_no_store_costs_no_verdict_unless_it_was_named(
    made: Clips, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (own_home / "runs.sqlite").write_bytes(b"no store at all" * 1000)
    compare = ["compare", str(made[0]), str(made[0])]
    assert run(compare) == 0
    assert "This comparison is not kept." in capfd.readouterr().err
    assert run([*compare, "--store", str(own_home / "runs.sqlite")]) == 2


def test_pairs_of_clips_that_were_judged_by_themselves_have_ids_of_their_own(store: Store) -> None:
    scores = {"OA": ClipScore(3.0)}
    alone = replace(judgement([sure()]), scores=(scores, scores))
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


def test_two_at_once_and_one_that_is_killed_leave_one_judgement(
    made: Clips, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compare = ["compare", *map(str, made)]
    command = [sys.executable, "-m", "vrt_lite", *compare]
    killed, other = (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    )
    assert killed.stderr
    killed.stderr.readline()
    killed.kill()
    killed.communicate()
    assert run(compare) == 0
    said, _ = other.communicate()
    assert other.returncode == 0
    assert said.splitlines()[0] == capfd.readouterr().out.splitlines()[0]
    with Store(own_home / "runs.sqlite") as store:
        [(_, pair, _)] = list_history(store)
        assert isinstance(pair, JudgedPair)
        assert not store.read("SELECT * FROM claims")
        assert store.read("SELECT count(*) FROM judgements") == [(1,)]
        assert store.read("PRAGMA integrity_check") == [("ok",)]
