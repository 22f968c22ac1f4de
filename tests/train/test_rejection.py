"""Rejection sampling: what is kept is right, and neither legs nor kills nor processes change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

from processes import start
from taught_judge import PROFILE, RECIPE, case

from train.policy.rollout import Rollout, open_policy, rollouts
from train.rejection import is_right, keep, sample
from train.traces import Trace, ledger, read_rows, read_traces, replay
from vrt_lite.errors import UsageError

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(6)]
QUERIES = {pair.key: pair for pair in CASES}


@pytest.fixture(scope="module")
def sampled(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sampled") / "traces.jsonl"
    assert sample(RECIPE, taught, CASES, out)
    return out


@pytest.fixture(scope="module")
def made(taught: Path) -> list[Rollout]:
    with open_policy(taught, PROFILE, batch=16) as policy:
        return list(rollouts(policy, CASES[:1], PROFILE, samples=16, temperature=1.0, seed=0))


def test_every_kept_trace_is_well_formed_and_right(sampled: Path) -> None:
    traces = read_traces(sampled)
    assert traces
    for trace in traces:
        _, trial = replay(QUERIES[trace.key], trace.replies, PROFILE)
        assert not any(r.correction for r in trial.rounds)
        assert trial.verdict.source == "final"
        assert {k: p.winner for k, p in trial.verdict.preferences.items()} == QUERIES[trace.key].labels


def test_a_ledger_tells_what_every_query_gave(sampled: Path) -> None:
    rows = read_rows(ledger(sampled))
    assert [row["key"] for row in rows] == list(QUERIES)
    keys = [trace.key for trace in read_traces(sampled)]
    for row in rows:
        assert row["samples"] == 4
        assert 0 <= row["right"] <= row["well_formed"] <= 4
        assert keys.count(row["key"]) == row["kept"] <= min(2, row["right"])
    assert {row["right"] for row in rows} - {0, 4}, "no query had both right and wrong traces"


def test_wrong_unfinished_and_repeated_traces_are_not_kept(made: list[Rollout]) -> None:
    right = [r for r in made if is_right(r)]
    wrong = [r for r in made if not is_right(r)]
    assert len(right) > 1
    assert wrong
    most = keep(made, 16)
    assert len(most) == len(set(most)) == len({tuple(x.text for x in r.replies) for r in right}) < len(right)
    assert keep(made, 1) == most[:1] == [Trace(right[0].case.key, tuple(x.text for x in right[0].replies))]
    assert keep(wrong, 16) == []
    assert keep([replace(right[0], trial=None)], 16) == []
    assert keep([replace(right[0], rounds=())], 16) == []
    *first, last = right[0].rounds
    loose = replace(last, reply=replace(last.reply, text=f"{last.reply.text} That is all."))
    assert keep([replace(right[0], rounds=(*first, loose))], 16) == []
    unlabelled = replace(right[0].case, labels={"TA": 2})
    assert keep([replace(right[0], case=unlabelled)], 16) == []


def test_legs_give_the_same_file(taught: Path, sampled: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    legs = 1
    while not sample(RECIPE, taught, CASES, out, minutes=0.0):
        assert len(read_rows(ledger(out))) == 2 * legs
        legs += 1
    assert legs == 3
    assert out.read_bytes() == sampled.read_bytes()
    assert ledger(out).read_bytes() == ledger(sampled).read_bytes()


def test_a_kill_between_two_writes_changes_nothing(taught: Path, sampled: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    assert sample(RECIPE, taught, CASES, out)
    whole = ledger(out).read_bytes()
    ledger(out).write_bytes(whole[: whole.index(b"\n", len(whole) // 2) + 9])
    assert sample(RECIPE, taught, CASES, out)
    assert out.read_bytes() == sampled.read_bytes()
    assert ledger(out).read_bytes() == whole


def test_a_ledger_without_its_traces_is_an_error(taught: Path, sampled: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    ledger(out).write_bytes(ledger(sampled).read_bytes())
    with pytest.raises(UsageError, match="remove both"):
        sample(RECIPE, taught, CASES, out)


def test_two_processes_give_the_same_file(taught: Path, sampled: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    start("sample", taught, out, count=2)
    assert out.read_bytes() == sampled.read_bytes()
    assert ledger(out).read_bytes() == ledger(sampled).read_bytes()


def test_a_case_that_is_asked_twice_is_two_queries(taught: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    recipe = replace(RECIPE, rejection=replace(RECIPE.rejection, queries=4, samples=4, kept_a_query=4, batch=16))
    assert sample(recipe, taught, [CASES[0], CASES[0], CASES[1], CASES[0]], out)
    rows = read_rows(ledger(out))
    assert [row["key"] for row in rows] == [CASES[n].key for n in (0, 0, 1, 0)]
    assert sum(row["kept"] for row in rows) == len(read_traces(out))
    assert {trace.key for trace in read_traces(out)} <= set(QUERIES)
