"""Which of two clips is better by what was measured of them: by heads, learned by train/tiny.

A head says how faulty each clip is by itself, and the difference tells: of different scenes nothing else does. Of two
versions of one scene another head compares both clips' measures, in both orders, and the two answers are joined. Each
head is boosted trees and small networks: they err in different places, so both together err less. Exchanging the clips
exchanges the answer exactly. The probabilities are made honest on scenes that the heads did not learn from, and below
a bound no winner is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from vrt_lite.measures.clip_measures import ClipMeasures
from vrt_lite.measures.definitions import DEFINITIONS, comparable
from vrt_lite.measures.looks import compare_looks
from vrt_lite.measures.measured_preference import HEADS_FILE, MeasuredPreference, NamedFault
from vrt_lite.measures.networks import Networks, Scale, read_networks
from vrt_lite.measures.trees import Forest, read_forest, softmax
from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.report import MEASURED_KEYS, MeasuredKey

_FLOOR: Final = 1e-6
"""Is added to the shares of the forests: no answer is impossible."""
STRENGTHS: Final = ("slight", "clear", "strong")
_STRENGTH_BOUNDS: Final = (0.4, 0.68)


@dataclass(frozen=True, slots=True)
class Heads:
    """The learned heads.

    `fault_forests` and `fault_networks` give the logit of how faulty one clip is; `pair_forests` and `pair_networks`
    answer about two versions of one scene. Forests are by key. `shares` (keys) are those of the networks in rating
    faults. `weights` (keys, 2, 4) and `bounds` (keys, 2) are for different scenes and for one: how much each of the
    `terms` counts, and from which share of both winners' probability on the likelier one is named.
    """

    pair_forests: Mapping[MeasuredKey, Forest]
    pair_networks: Networks
    fault_forests: Mapping[MeasuredKey, Forest]
    fault_networks: Networks
    shares: NDArray[np.float64]
    naming: Forest
    strength: Forest
    names: tuple[str, ...]
    measures: tuple[str, ...]
    scale: Scale
    same_look: float
    weights: NDArray[np.float64]
    bounds: NDArray[np.float64]
    sure: float

    def terms(self, one: NDArray[np.float32], two: NDArray[np.float32], *, same_scene: bool) -> NDArray[np.float64]:
        """Return what speaks for a tie, the first and the second of some pairs, (pairs, keys, 3 answers, 4 terms).

        Both are (pairs, measures). The terms are logarithms of odds: what the forest says of the pair, what the
        networks say of it, 1 for a tie, and half the difference in faults.
        """
        found = np.zeros((len(one), len(MEASURED_KEYS), 3, 4))
        found[:, :, 0, 2] = 1
        rated = self._rate_faults(np.concatenate((one, two)))
        lead = (rated[len(one) :] - rated[: len(one)]) / 2
        found[:, :, 1, 3], found[:, :, 2, 3] = lead, -lead
        if same_scene:
            compared = self.scale.compare(one, two)
            answers = self.pair_networks.scores(compared.reshape(-1, compared.shape[2])).reshape(len(one), 2, -1, 2)
            here, there = answers[:, 0], answers[:, 1]
            found[..., 1] = np.stack(((here[..., 0] + there[..., 0]) / 2, here[..., 1], there[..., 1]), axis=-1)
            rows = describe_pairs(one, two, self.measures)
            for number, key in enumerate(MEASURED_KEYS):
                shares = softmax(self.pair_forests[key].scores(rows.reshape(-1, rows.shape[2])))
                first, second = shares[::2], shares[1::2, [0, 2, 1]]
                found[:, number, :, 0] = np.log((first + second) / 2 + _FLOOR)
        return found

    def _rate_faults(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return how faulty clips are, from 0 to 1, (clips, keys)."""
        forests = np.concatenate([self.fault_forests[key].scores(vectors) for key in MEASURED_KEYS], axis=1)
        networks = self.fault_networks.scores(self.scale.place(vectors))
        # The logits of clean clips differ much by chance: as shares they are all nearly 0.
        return 1 / (1 + np.exp(-(1 - self.shares) * forests - self.shares * networks))

    def odds(self, one: NDArray[np.float32], two: NDArray[np.float32], *, same_scene: bool) -> dict[MeasuredKey, Odds]:
        """Return the odds of a pair by key from both clips' measures."""
        terms = self.terms(one[None], two[None], same_scene=same_scene)[0]
        found: dict[MeasuredKey, Odds] = {}
        for key, mine, weights in zip(MEASURED_KEYS, terms, self.weights[:, int(same_scene)], strict=True):
            # Exchanging the clips exchanges the odds to the last bit.
            logs = (mine * weights).sum(1)
            tie, first, second = np.exp(logs - logs.max()).tolist()
            whole = tie + (first + second)
            found[key] = tie / whole, first / whole, second / whole
        return found

    def decide(self, key: MeasuredKey, odds: Odds, *, same_scene: bool) -> Choice | None:
        """Return the likeliest answer; None if that is a winner, and the other winner is nearly as likely."""
        best = int(np.argmax(odds))
        bound = self.bounds[MEASURED_KEYS.index(key), int(same_scene)]
        sure = not best or odds[best] >= bound * (odds[1] + odds[2])
        return cast("Choice", best) if sure else None


def prefer_by_measures(one: ClipMeasures, two: ClipMeasures, *, heads: Heads | None = None) -> MeasuredPreference:
    """Compare two measured clips."""
    heads = heads or load_heads()
    likeness = compare_looks(one.look, two.look)
    same_scene = likeness >= heads.same_look
    first, second = (vector_of(each, heads.measures) for each in (one, two))
    odds = heads.odds(first, second, same_scene=same_scene)
    winners: dict[MeasuredKey, Choice | None] = {
        key: heads.decide(key, odds[key], same_scene=same_scene) for key in MEASURED_KEYS
    }
    tie, first_better, second_better = odds["OA"]
    better = {winner for key, winner in winners.items() if winner and key != "OA"}
    if winners["OA"] is None and better == {2 if first_better > second_better else 1}:
        odds["OA"] = (
            tie,
            second_better,
            first_better,
        )  # in doubt it leans to the one better in a dimension
    preference = MeasuredPreference(odds, winners, same_scene)
    worse = {1: 2, 2: 1}.get(winners["OA"] or 0)
    if worse:
        rows = describe_pairs(first[None], second[None], heads.measures)[0]
        preference = replace(preference, faults=_name_fault(heads, rows[worse - 1], 1 if worse == 1 else 2))
    return preference


def vector_of(measures: ClipMeasures, names: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the measures that the heads use, on the scale on which they are compared."""
    return np.array([comparable(name, measures.values[name]) for name in names], np.float32)


def describe_pairs(one: NDArray[np.float32], two: NDArray[np.float32], names: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the rows that heads read, (pairs, 2 orders, features): differences and means.

    Size, rate and length of a file are no merit: only their means count.
    """
    merits = [number for number, name in enumerate(names) if DEFINITIONS[name].source != "file"]
    change, common = (one - two)[:, merits], (one + two) / 2
    return np.stack([np.concatenate((sign * change, common), axis=1) for sign in (1, -1)], axis=1).astype(np.float32)


def _name_fault(heads: Heads, row: NDArray[np.float32], video: Literal[1, 2]) -> tuple[NamedFault, ...]:
    """Return the fault of the video whose measures a row takes those of the other from, if it is sure."""
    shares = softmax(heads.naming.scores(row[None]))[0]
    best = int(np.argmax(shares))
    if shares[best] < heads.sure:
        return ()
    size = float(heads.strength.scores(row[None])[0, 0])
    strength = STRENGTHS[sum(size >= bound for bound in _STRENGTH_BOUNDS)]
    return (NamedFault(video, heads.names[best], strength, float(shares[best])),)


@cache
def load_heads(path: Path = HEADS_FILE) -> Heads:
    """Read the heads; the bundled ones by default. Raises OSError, and ValueError for a file of other measures."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    measures = tuple(str(name) for name in arrays["measures"])
    if unknown := sorted(set(measures) - DEFINITIONS.keys()):
        raise ValueError(f"{path.name} needs measures that are unknown: {', '.join(unknown)}")
    return Heads(
        {key: read_forest(arrays, f"{key}.pairs") for key in MEASURED_KEYS},
        read_networks(arrays, "pairs"),
        {key: read_forest(arrays, f"{key}.faults") for key in MEASURED_KEYS},
        read_networks(arrays, "faults"),
        np.asarray(arrays["shares"], np.float64),
        read_forest(arrays, "naming"),
        read_forest(arrays, "strength"),
        tuple(str(name) for name in arrays["names"]),
        measures,
        Scale(np.asarray(arrays["quantiles"], np.float64), np.asarray(arrays["steps"], np.float64)),
        float(arrays["same_look"]),
        np.asarray(arrays["weights"], np.float64),
        np.asarray(arrays["bounds"], np.float64),
        float(arrays["sure"]),
    )
