"""Rejection sampling: what is kept is right, and neither kills nor processes change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

from processes import start
from taught_judge import PROFILE, RECIPE, case

from train.data import read_rows, read_traces, replay
from train.rollout import Rollout, roll_out
from train.sample import is_right, open_policy, sample
from vrt_lite.errors import UsageError

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(6)]
QUERIES = {pair.key: pair for pair in CASES}


@pytest.fixture(scope="module")
def sampled(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sampled") / "traces.jsonl"
    sample(RECIPE, taught, CASES, out)
    return out


@pytest.fixture(scope="module")
def made(taught: Path) -> list[Rollout]:
    policy = open_policy(RECIPE, taught)
    return roll_out(policy, {"q": CASES[0]}, PROFILE, samples=16, temperature=1.0, seed=0)["q"]


def test_every_kept_trace_is_well_formed_and_right(sampled: Path) -> None:
    traces = {key: replies for key, replies in read_traces(sampled).items() if replies}
    assert traces
    for key, replies in traces.items():
        _, trial = replay(QUERIES[key], replies, PROFILE)
        assert not any(r.correction for r in trial.rounds)
        assert trial.verdict.source == "final"
        assert {k: p.winner for k, p in trial.verdict.preferences.items()} == QUERIES[key].labels


def test_a_line_tells_what_a_query_gave(sampled: Path) -> None:
    rows = list(read_rows(sampled))
    assert [row["key"] for row in rows] == list(QUERIES)
    for row in rows:
        assert row["samples"] == 4
        assert 0 <= row["right"] <= row["well_formed"] <= 4
        assert bool(row["replies"]) == bool(row["right"])
    assert {row["right"] for row in rows} - {0, 4}, "no query had both right and wrong traces"


def test_wrong_and_unfinished_traces_are_not_right(made: list[Rollout]) -> None:
    good = next(r for r in made if is_right(r))
    assert any(not is_right(r) for r in made)
    assert not is_right(replace(good, trial=None))
    assert not is_right(replace(good, rounds=()))
    *first, last = good.rounds
    loose = replace(last, reply=replace(last.reply, text=f"{last.reply.text} That is all."))
    assert not is_right(replace(good, rounds=(*first, loose)))
    assert not is_right(replace(good, case=replace(good.case, labels={"TA": 2})))


def test_a_killed_run_gives_the_same_file(taught: Path, sampled: Path, tmp_path: Path) -> None:
    """Killed in the middle of a line: that query is sampled again."""
    out, whole = tmp_path / "traces.jsonl", sampled.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n", len(whole) // 2) + 9])
    sample(RECIPE, taught, CASES, out)
    assert out.read_bytes() == whole
    with pytest.raises(UsageError, match="is of other pairs than the table has now"):
        sample(RECIPE, taught, CASES[1:], out)


def test_two_processes_give_the_same_file(taught: Path, sampled: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    start("sample", taught, out, count=2)
    assert out.read_bytes() == sampled.read_bytes()
