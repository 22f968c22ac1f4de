"""Ladders by judges who prefer whatever is shown first: both orders keep what each of them says."""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from brightness import GREY, Honest, judge_of, unwatched, write_greys
from judgements import verdict_of
from tournaments import difference, round_robin, tau

from vrt_lite.protocol.messages import KEYS
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.ranking.ratings import JudgedVote, fit
from vrt_lite.records.ladders import Ladder, RankedClip
from vrt_lite.records.pairs import Result
from vrt_lite.runs.store import Store
from vrt_lite.show.leaderboard import show_ladders

CLIPS = 9
PAIRS = CLIPS * (CLIPS - 1) // 2
STRONG = 3.0
"""Log odds for the clip shown first."""


def group_of(table: Mapping[tuple[int, int], JudgedVote]) -> ClipGroup:
    """What a judge said of numbered clips, as answers of a run; a hard vote is a choice without probabilities."""
    group = ClipGroup("", "", tuple(RankedClip(str(n), Path(str(n)), str(n)) for n in range(CLIPS)))
    for (a, b), vote in table.items():
        winners = dict.fromkeys(KEYS, int(np.argmax(vote.odds)))
        odds = dict.fromkeys(KEYS, None if max(vote.odds) == 1 else vote.odds)
        group.results[a, b] = Result(f"{a} {b}", str(a), str(b), "", verdict_of(winners, odds), rounds=1)
    return group


def in_order(ladder: Ladder, strength: np.ndarray) -> int:
    """How many pairs of clips have ratings in the true order."""
    rated = {standing.clip: standing.ratings["OA"].strength for standing in ladder.standings}
    pairs = combinations(range(CLIPS), 2)
    return sum((rated[i] - rated[j]) * (strength[i] - strength[j]) > 1e-9 for i, j in pairs)


@pytest.mark.parametrize("both_orders", [True, False])
def test_a_strong_preference_for_the_first_leaves_the_order_right(tmp_path: Path, *, both_orders: bool) -> None:
    greys = (100, 140, 60, 180, 120, 40, 80, 160, 200)
    paths = write_greys(tmp_path / "in", greys)
    with Store(tmp_path / "runs.sqlite") as store, judge_of(Honest(first=STRONG)) as judge:
        effort = Effort(both_orders=both_orders)
        ranking = rank_clips(
            [Group("", "Light.", tuple(paths))], store=store, judge=judge, watcher=unwatched(), effort=effort
        )
    [ladder] = ranking.ladders
    assert in_order(ladder, np.array(greys) / GREY) >= 34
    assert ladder.first.low < STRONG < ladder.first.high
    assert ladder.first.low > 0
    undecided = [pair for pair in ladder.pairs if pair.preferences["OA"].undecided]
    assert sum(standing.undecided for standing in ladder.standings) == 2 * len(undecided)
    assert sum(standing.won for standing in ladder.standings) == PAIRS - len(undecided)
    if not both_orders:
        assert not undecided
        return
    # Clips closer than the preference are undecided, and lean to the better one; others are won by it.
    for pair in ladder.pairs:
        i, j = pair.clips
        better = 1 if greys[i] > greys[j] else 2
        gap, own = abs(greys[i] - greys[j]) / GREY, pair.preferences["OA"]
        assert (own.winner, own.leans) == ((0, better) if gap < STRONG else (better, None))
    shown = io.StringIO()
    show_ladders(ranking.ladders, (), run=ranking.run, stream=shown)
    count = len(undecided)
    said = f"overall in {count} of 36 pairs judged in both, {count} of them undecided; VQ in {count}, MQ in 0"
    assert f"orders disagree {said}" in shown.getvalue().splitlines()
    assert "take 1.mp4 and take 2.mp4 on VQ, OA; overall undecided, leans to take 2.mp4 (0.5" in shown.getvalue()


@pytest.mark.parametrize(
    ("first", "soft", "noise", "least"),
    [
        (0.0, True, 0.7, 35),
        (0.0, False, 0.0, 33),
        (STRONG, True, 0.0, 36),
        (STRONG, True, 0.7, 34),
        (STRONG, False, 0.0, 32),
    ],
)
def test_ladders_of_noisy_judges(first: float, noise: float, least: int, *, soft: bool) -> None:
    """On average of many seeds, with and without the preference; never worse than ties for what is undecided."""
    right: list[int] = []
    better: list[float] = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        strength = rng.permutation(CLIPS) * 1.0
        table = round_robin(rng, strength, soft=soft, noise=noise, first=first)
        ladder = rate_group(group_of(table))
        right.append(in_order(ladder, strength))
        differ = {pair.clips for pair in ladder.pairs if pair.disagreements}
        tied = [
            JudgedVote(v.a, v.b, (1.0, 0.0, 0.0)) if {(v.a, v.b), (v.b, v.a)} & differ else v for v in table.values()
        ]
        rated = {standing.clip: standing.ratings["OA"].strength for standing in ladder.standings}
        ordered = tuple(rated[clip] for clip in range(CLIPS))
        better.append(tau(strength, ordered) - tau(strength, fit(tied, CLIPS).strength))
    assert np.mean(right) >= least
    assert np.mean(better) >= 0


@pytest.mark.parametrize(("soft", "noise"), [(False, 0.0), (True, 0.7)])
def test_intervals_cover_beside_a_strong_preference(noise: float, *, soft: bool) -> None:
    rng = np.random.default_rng(12)
    inside: list[bool] = []
    firsts: list[bool] = []
    for _ in range(100):
        strength = rng.normal(0, 1.5, CLIPS)
        rated = fit(list(round_robin(rng, strength, soft=soft, noise=noise, first=STRONG).values()), CLIPS)
        for i, j in combinations(range(CLIPS), 2):
            _, low, high = difference(rated, i, j)
            inside.append(low <= strength[i] - strength[j] <= high)
        firsts.append(rated.first_low <= STRONG <= rated.first_high)
    assert np.mean(inside) >= 0.93
    assert np.mean(firsts) >= 0.9


def test_a_judge_who_only_ever_names_the_first_tells_no_clips_apart() -> None:
    always = {(a, b): JudgedVote(a, b, (0.0, 1.0, 0.0)) for a in range(CLIPS) for b in range(CLIPS) if a != b}
    ladder = rate_group(group_of(always))
    assert {round(standing.ratings["OA"].strength, 6) for standing in ladder.standings} == {0.0}
    assert {standing.letters for standing in ladder.standings} == {("a",)}
    assert {(s.won, s.tied, s.lost, s.undecided) for s in ladder.standings} == {(0, 0, 0, CLIPS - 1)}
    assert ladder.cycles == ()
    assert ladder.first.low > 0


def test_only_pairs_with_a_winner_go_round() -> None:
    """Three clips of which each beats the next; the last pair's orders name opposite winners."""
    sure, unsure = (0.0, 0.9, 0.1), (0.0, 0.6, 0.4)
    table = {(a, b): JudgedVote(a, b, sure) for a, b in ((0, 1), (1, 2), (2, 0))}
    table |= {(b, a): JudgedVote(b, a, (0.0, 0.1, 0.9)) for a, b in list(table)}
    assert rate_group(group_of(table)).cycles == ((0, 1, 2),)
    opposed = {**table, (0, 2): JudgedVote(0, 2, unsure)}
    ladder = rate_group(group_of(opposed))
    assert ladder.cycles == ()
    # The evidence stays: the lean of the third pair is still for clip 2.
    [pair] = [pair for pair in ladder.pairs if pair.preferences["OA"].undecided]
    assert (pair.clips, pair.preferences["OA"].leans) == ((0, 2), 2)
    # A tie beside a winner is the likelier of both, so this goes round.
    softer = {**table, (0, 2): JudgedVote(0, 2, (0.5, 0.2, 0.3))}
    assert rate_group(group_of(softer)).cycles == ((0, 1, 2),)
