"""Which of two clips is better by what was measured of them: by heads of boosted trees, learned by train/tiny.

A head says how faulty each clip is by itself, and the difference tells: of different scenes nothing else does. Of two
versions of one scene another head reads the difference and the mean of both clips' measures, in both orders, and the
two answers are joined. Exchanging the clips exchanges the answer exactly. The probabilities are made honest on scenes
that the heads did not learn from, and below a bound no winner is named.
"""

from __future__ import annotations

import math
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
from vrt_lite.measures.trees import Forest, read_forest, softmax
from vrt_lite.protocol.messages import Choice, Odds
from vrt_lite.protocol.report import MEASURED_KEYS, MeasuredKey

FLOOR: Final = 1e-6
"""Is added to the shares of `pairs`: no answer is impossible."""
STRENGTHS: Final = ("slight", "clear", "strong")
_STRENGTH_BOUNDS: Final = (0.4, 0.68)


@dataclass(frozen=True, slots=True)
class Heads:
    """The learned heads.

    `faults` say how faulty one clip is, and `pairs` answer about two versions of one scene, by key. In the order of
    MEASURED_KEYS, as (different scenes, one scene): `temperatures` of `pairs`, the weight of a tie (`ties`), by how
    much the odds change with the difference of `faults` (`slopes`), and the `bounds`.
    """

    pairs: Mapping[MeasuredKey, Forest]
    faults: Mapping[MeasuredKey, Forest]
    naming: Forest
    strength: Forest
    names: tuple[str, ...]
    measures: tuple[str, ...]
    same_look: float
    temperatures: NDArray[np.float64]
    ties: NDArray[np.float64]
    slopes: NDArray[np.float64]
    bounds: NDArray[np.float64]
    sure: float

    def odds(
        self, vectors: NDArray[np.float32], rows: NDArray[np.float32], *, same_scene: bool
    ) -> dict[MeasuredKey, Odds]:
        """Return the odds of a pair by key from both clips' measures, (2, measures), and its `rows` (2, features)."""
        found: dict[MeasuredKey, Odds] = {}
        for number, key in enumerate(MEASURED_KEYS):
            one, two = self.faults[key].scores(vectors)[:, 0]
            place = number, int(same_scene)
            lead = self.slopes[place] * float(two - one) / 2
            weights = np.array((self.ties[place], 1.0, 1.0))
            if same_scene:
                here, there = softmax(self.pairs[key].scores(rows))
                joined = np.array((here[0] + there[0], here[1] + there[2], here[2] + there[1])) / 2
                weights *= (joined + FLOOR) ** (1 / self.temperatures[place])
            # Exchanging the clips exchanges the odds to the last bit.
            tie, one, two = (float(weight) for weight in weights * (1.0, math.exp(lead), math.exp(-lead)))
            whole = tie + (one + two)
            found[key] = tie / whole, one / whole, two / whole
        return found

    def decide(self, key: MeasuredKey, odds: Odds, *, same_scene: bool) -> Choice | None:
        """Return the likeliest answer; None if that is a winner, and less likely than the bound."""
        best = int(np.argmax(odds))
        sure = not best or odds[best] >= self.bounds[MEASURED_KEYS.index(key), int(same_scene)]
        return cast("Choice", best) if sure else None


def prefer_by_measures(one: ClipMeasures, two: ClipMeasures, *, heads: Heads | None = None) -> MeasuredPreference:
    """Compare two measured clips."""
    heads = heads or load_heads()
    likeness = compare_looks(one.look, two.look)
    same_scene = likeness >= heads.same_look
    vectors = np.stack([vector_of(each, heads.measures) for each in (one, two)])
    rows = describe_pairs(vectors[:1], vectors[1:], heads.measures)[0]
    odds = heads.odds(vectors, rows, same_scene=same_scene)
    winners: dict[MeasuredKey, Choice | None] = {
        key: heads.decide(key, odds[key], same_scene=same_scene) for key in MEASURED_KEYS
    }
    preference = MeasuredPreference(odds, winners, same_scene)
    worse = {1: 2, 2: 1}.get(winners["OA"] or 0)
    if worse:
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
        {key: read_forest(arrays, f"{key}.faults") for key in MEASURED_KEYS},
        read_forest(arrays, "naming"),
        read_forest(arrays, "strength"),
        tuple(str(name) for name in arrays["names"]),
        measures,
        float(arrays["same_look"]),
        np.asarray(arrays["temperatures"], np.float64),
        np.asarray(arrays["ties"], np.float64),
        np.asarray(arrays["slopes"], np.float64),
        np.asarray(arrays["bounds"], np.float64),
        float(arrays["sure"]),
    )
