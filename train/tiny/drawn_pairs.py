"""Draws labelled pairs of specimens: a clean clip beside a faulty one, two clean ones, and a fault in two strengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.tiny.fault_kinds import FAULTS
from train.tiny.making import Specimen
from vrt_lite.measures.definitions import DEFINITIONS
from vrt_lite.measures.looks import compare_looks
from vrt_lite.measures.networks import Scale
from vrt_lite.measures.preference import vector_of
from vrt_lite.protocol.report import MEASURED_KEYS

_REFERENCES = 3
"""Clean clips of the same scene that each faulty clip is compared with: encoded as often, another, a harmless one."""
_STRANGERS = 6
"""Clips of other scenes that each clip is compared with."""
_BOTH_FAULTY, _STEP_WEIGHT, _ALIKE_WEIGHT = 0.05, 0.5, 2.5
_LEAST_STEP = 0.12
_LEVELS, _STEP_QUANTILE = 33, 0.7


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """Two specimens by number. `worse` is 1 if the second is worse, 0 for a tie; `keys` are spoiled in it."""

    one: int
    two: int
    worse: int
    keys: frozenset[str]
    weight: float
    same_scene: bool

    def label(self, key: str) -> int:
        """Return the better video: 0, or 1."""
        return int(self.worse and (key == "OA" or key in self.keys))


def draw_pairs(specimens: Sequence[Specimen], seed: int = 0) -> list[DrawnPair]:
    """Draw the pairs of some specimens of one part. In each pair that is no tie the first clip is the better one."""
    chance = np.random.default_rng(seed)
    scenes: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, specimen in enumerate(specimens):
        scenes[specimen.part, specimen.seed].append(number)
    pairs: list[DrawnPair] = []
    for numbers in scenes.values():
        pairs += _draw_of_scene(specimens, numbers, chance)
    pairs += _draw_strangers(specimens, chance)
    return pairs


def keys_of(specimen: Specimen) -> frozenset[str]:
    """Return the dimensions that a specimen's fault spoils."""
    return frozenset(FAULTS[specimen.fault].keys) if specimen.fault else frozenset()


def _draw_of_scene(
    specimens: Sequence[Specimen], numbers: list[int], chance: np.random.Generator
) -> Iterator[DrawnPair]:
    clean = [n for n in numbers if not specimens[n].fault]
    faulty = [n for n in numbers if specimens[n].fault]
    for at, one in enumerate(clean):
        for two in clean[at + 1 :]:
            yield DrawnPair(one, two, 0, frozenset(), _ALIKE_WEIGHT, True)
    for number in faulty:
        alike = [n for n in clean if specimens[n].generations == specimens[number].generations]
        chosen = {int(chance.choice(alike))} if alike else set()
        chosen |= set(chance.choice(clean, min(_REFERENCES - len(chosen), len(clean)), replace=False).tolist())
        for reference in sorted(chosen):
            yield DrawnPair(reference, number, 1, keys_of(specimens[number]), 1.0, True)
    for at, one in enumerate(faulty):
        for two in faulty[at + 1 :]:
            a, b = specimens[one], specimens[two]
            lighter, stronger = (one, two) if a.strength < b.strength else (two, one)
            same_kind = a.fault == b.fault
            if abs(a.strength - b.strength) >= (_LEAST_STEP if same_kind else 4 * _LEAST_STEP):
                keys = keys_of(specimens[stronger])
                weight = _STEP_WEIGHT if same_kind else _BOTH_FAULTY
                if same_kind or keys == keys_of(specimens[lighter]):
                    yield DrawnPair(lighter, stronger, 1, keys, weight, True)


def _draw_strangers(specimens: Sequence[Specimen], chance: np.random.Generator) -> Iterator[DrawnPair]:
    clean = [n for n, each in enumerate(specimens) if not each.fault]
    for number, specimen in enumerate(specimens):
        others = [n for n in chance.choice(clean, 2 * _STRANGERS) if specimens[n].scene != specimen.scene]
        for other in others[:_STRANGERS]:
            worse = int(bool(specimen.fault))
            yield DrawnPair(int(other), number, worse, keys_of(specimen), 1.0, False)


class Vectors:
    """The measures of specimens as the heads read them."""

    def __init__(self, specimens: Sequence[Specimen], names: tuple[str, ...]) -> None:
        self.names: Final = names
        self._specimens = specimens
        self._vectors = np.stack([vector_of(each.measures, names) for each in specimens])

    def likeness(self, pair: DrawnPair) -> float:
        """Return how alike the two clips look."""
        return compare_looks(self._specimens[pair.one].measures.look, self._specimens[pair.two].measures.look)

    def sides(self, pairs: Sequence[DrawnPair]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the measures of the first and of the second clips, each (pairs, measures)."""
        return self._vectors[[pair.one for pair in pairs]], self._vectors[[pair.two for pair in pairs]]

    def fit_scale(self, pairs: Sequence[DrawnPair]) -> Scale:
        """Return the scale on which networks read the measures; `pairs` are of one scene."""
        one, two = self.sides([pair for pair in pairs if not pair.worse])
        steps = np.quantile(np.abs(one.astype(np.float64) - two), _STEP_QUANTILE, axis=0)
        steps += 1e-6 * np.abs(self._vectors).max(0) + 1e-9
        steps[[DEFINITIONS[name].source == "file" for name in self.names]] = np.inf
        levels = np.quantile(self._vectors.astype(np.float64), np.linspace(0, 1, _LEVELS), axis=0)
        return Scale(levels + np.arange(_LEVELS)[:, None] * 1e-9, steps)

    def vary(
        self, pairs: Sequence[DrawnPair], copies: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
        """Return both sides of more pairs of one scene, and the numbers of the pairs that they vary.

        Both clips are moved towards another clean scene, and the second gets a harmless difference as well. In a third
        of them the fault is lighter, in another third both clips have it and it is lighter in the first.
        """
        chance = np.random.default_rng(4)
        chosen = np.repeat(np.arange(len(pairs)), copies)
        one, two = self.sides([pairs[int(number)] for number in chosen])
        clean = self._vectors[[p.one for p in pairs if not p.worse]]

        def draw(low: float, high: float) -> NDArray[np.float64]:
            return chance.uniform(low, high, (len(chosen), 1))

        way, share = chance.integers(0, 3, (len(chosen), 1)), draw(0.3, 0.75)
        moved = draw(0, 0.5) * (clean[chance.integers(len(clean), size=len(chosen))] - one)
        harmless = self._draw_harmless(pairs, len(chosen), chance)
        lighter = one + share * (two - one)
        first, second = np.where(way == 2, lighter, one) + moved, np.where(way == 1, lighter, two) + moved + harmless
        return first.astype(np.float32), second.astype(np.float32), chosen

    def vary_alone(self, pairs: Sequence[DrawnPair], copies: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return each clip's measures, and `copies` of them with a harmless difference; and the clips' numbers."""
        chosen = np.repeat(np.arange(len(self._vectors)), copies)
        harmless = self._draw_harmless(pairs, len(chosen), np.random.default_rng(6))
        rows = np.concatenate((self._vectors, self._vectors[chosen] + harmless)).astype(np.float32)
        return rows, np.concatenate((np.arange(len(self._vectors)), chosen))

    def _draw_harmless(
        self, pairs: Sequence[DrawnPair], count: int, chance: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return up to the difference of two clean clips of one scene, `count` times."""
        one, two = self.sides([pair for pair in pairs if pair.same_scene and not pair.worse])
        return chance.uniform(-1, 1, (count, 1)) * (one - two)[chance.integers(len(one), size=count)]


def labels(pairs: Sequence[DrawnPair]) -> NDArray[np.int64]:
    """Return the better video of each pair by key, (pairs, MEASURED_KEYS): 0 or 1."""
    return np.array([[pair.label(key) for key in MEASURED_KEYS] for pair in pairs])
