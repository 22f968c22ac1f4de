"""Says how good the heads are, on scenes that nothing was fitted on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from train.tiny.drawn_pairs import keys_of
from train.tiny.fault_kinds import FAULTS, WITHHELD
from train.tiny.making import Specimen
from vrt_lite.measures.measured_preference import MeasuredPreference
from vrt_lite.measures.preference import Heads, load_heads, prefer_by_measures
from vrt_lite.protocol.report import MEASURED_KEYS, MeasuredKey

LEVELS = {"light": (0.0, 0.35), "medium": (0.35, 0.6), "plain": (0.6, 1.01)}
_STRANGERS = 2


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair with what is true of it by key (0, 1 or 2), and what measuring says."""

    one: Specimen
    two: Specimen
    truth: dict[str, int]
    said: MeasuredPreference

    @property
    def kind(self) -> str:
        """What is wrong with the worse one."""
        return self.two.fault or self.one.fault

    @property
    def strength(self) -> float:
        """Of the fault."""
        return max(self.one.strength, self.two.strength)

    @property
    def same(self) -> bool:
        """Whether both show one scene."""
        return (self.one.part, self.one.seed) == (self.two.part, self.two.seed)


def judge_all(specimens: Sequence[Specimen], heads: Heads) -> list[Judged]:
    """Judge clean against faulty and clean against clean clips, of one scene and of different scenes."""
    chance = np.random.default_rng(3)
    test = [each for each in specimens if each.part == "test"]
    clean = [each for each in test if not each.fault]
    by_scene: dict[int, list[Specimen]] = defaultdict(list)
    for each in clean:
        by_scene[each.seed].append(each)
    pairs: list[tuple[Specimen, Specimen]] = []
    for own in by_scene.values():
        pairs += combinations(own, 2)
    for each in test:
        own = by_scene[each.seed]
        if each.fault:
            pairs += [(own[int(n)], each) for n in chance.choice(len(own), min(2, len(own)), replace=False)]
        others = [clean[int(n)] for n in chance.integers(0, len(clean), 6)]
        pairs += [(other, each) for other in others if other.scene != each.scene][:_STRANGERS]
    judged: list[Judged] = []
    for number, (good, bad) in enumerate(pairs):
        one, two = (good, bad) if number % 2 else (bad, good)
        better = (1 if number % 2 else 2) if bad.fault else 0
        truth = {key: better if key == "OA" or key in keys_of(bad) else 0 for key in MEASURED_KEYS}
        judged.append(Judged(one, two, truth, prefer_by_measures(one.measures, two.measures, heads=heads)))
    return judged


def _shares(judged: Iterable[Judged], key: MeasuredKey = "OA") -> str:
    """Return right / tie or undecided / wrong, in %."""
    counted = Counter(
        "right" if each.said.winners[key] == each.truth[key] else "wrong" if each.said.winners[key] else "none"
        for each in judged
    )
    whole = max(counted.total(), 1)
    parts = " / ".join(f"{100 * counted[name] / whole:3.0f}" for name in ("right", "none", "wrong"))
    return f"{parts}  ({counted.total()})"


def _calibration_error(judged: Sequence[Judged], key: MeasuredKey) -> float:
    """Return the expected calibration error of the likeliest answer, in ten bins."""
    top = np.array([max(each.said.odds[key]) for each in judged])
    right = np.array([int(np.argmax(each.said.odds[key])) == each.truth[key] for each in judged])
    bins = np.minimum((top * 10).astype(int), 9)
    return float(
        sum(abs(top[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins.tolist()))
    )


def evaluate(specimens: Sequence[Specimen], path: Path, say: Callable[[str], None] = print) -> None:
    """Print all figures."""
    load_heads.cache_clear()
    heads = load_heads(path)
    judged = judge_all(specimens, heads)
    faulty = [each for each in judged if each.kind]
    known = [each for each in faulty if each.kind not in WITHHELD]
    one = [each for each in known if each.same]
    say("right / none named / wrong, % (pairs)")
    for level, (low, high) in LEVELS.items():
        say(f"  one scene, {level}: {_shares(e for e in one if low <= e.strength < high)}")
    say(f"  one scene, all: {_shares(one)}")
    plain = [each for each in one if each.strength >= LEVELS["plain"][0]]
    for kind in WITHHELD:
        mine = [e for e in faulty if e.same and e.kind == kind]
        say(f"  never trained, {kind}: plain {_shares(e for e in mine if e.strength >= 0.6)}, all {_shares(mine)}")
    unseen = [e for e in faulty if e.same and e.kind in WITHHELD and e.strength >= 0.6]
    say(f"  never trained, plain: {_shares(unseen)}")
    say(f"  different scenes, one plainly faulty: {_shares(e for e in known if not e.same and e.strength >= 0.6)}")
    clean = [each for each in judged if not each.kind]
    named = [bool(each.said.winners["OA"]) for each in clean if not each.same]
    say(f"  different scenes, both clean: a winner in {100 * np.mean(named):.0f} % ({len(named)})")
    say(f"  harmless versions: {_shares(e for e in clean if e.same)}")
    for group in (
        "short",
        "portrait",
        "grey",
        "dark",
        "repeats",
        "photograph",
        "footage",
        "picture",
        "world",
        "animation",
    ):
        mine = [each for each in plain if group in each.one.group]
        ties = [each for each in clean if each.same and group in each.one.group]
        say(f"  {group}: plain {_shares(mine)}, harmless {_shares(ties)}")
    for key in MEASURED_KEYS:
        scene = [each for each in judged if each.same]
        say(
            f"  {key}: one scene, all faults {_shares(one, key)}; ECE one scene {_calibration_error(scene, key):.3f}, "
            f"all {_calibration_error(judged, key):.3f}"
        )
    sure = [each for each in judged if (w := each.said.winners["OA"]) and each.said.odds["OA"][w] >= 0.9]
    hits = [each.said.winners["OA"] == each.truth["OA"] for each in sure]
    say(f"  winners given with .9 and more: {100 * np.mean(hits):.1f} % right ({len(hits)})")
    told = [each.said.same_scene == each.same for each in judged]
    same = [each.said.same_scene for each in judged if each.same]
    say(f"  one scene told: {100 * np.mean(told):.1f} %; versions known as one scene {100 * np.mean(same):.1f} %")
    for kind in FAULTS:
        mine = [each for each in faulty if each.same and each.kind == kind]
        if mine:
            say(f"    {kind:16} plain {_shares(e for e in mine if e.strength >= 0.6)}   all {_shares(mine)}")
    _evaluate_ranks(specimens, heads, say)
    _evaluate_names(one, say)


def _evaluate_ranks(specimens: Sequence[Specimen], heads: Heads, say: Callable[[str], None]) -> None:
    """Of the strengths of one fault in one scene: in how many pairs the lighter one has the larger probability."""
    ladders: dict[tuple[int, str], list[Specimen]] = defaultdict(list)
    for each in specimens:
        if each.part == "test" and each.fault:
            ladders[each.seed, each.fault].append(each)
    ordered: dict[str, list[bool]] = defaultdict(list)
    for (_, kind), ladder in ladders.items():
        for light, strong in combinations(sorted(ladder, key=lambda each: each.strength), 2):
            _, first, second = prefer_by_measures(light.measures, strong.measures, heads=heads).odds["OA"]
            ordered[kind].append(first > second)
    shares = {kind: float(np.mean(found)) for kind, found in ordered.items()}
    good = [kind for kind, share in shares.items() if share >= 0.9]
    say(f"  strengths in order: at least 9 of 10 pairs for {len(good)} of {len(shares)} kinds")
    say("    below: " + ", ".join(f"{kind} {100 * share:.0f}" for kind, share in sorted(shares.items()) if share < 0.9))


def _evaluate_names(one: Sequence[Judged], say: Callable[[str], None]) -> None:
    for level, (low, high) in LEVELS.items():
        mine = [each for each in one if low <= each.strength < high]
        named = [(each.said.faults[0].name, FAULTS[each.kind].name) for each in mine if each.said.faults]
        right = np.mean([said == true for said, true in named]) if named else 0
        say(f"  fault named, {level}: in {100 * len(named) / max(len(mine), 1):.0f} %, right {100 * right:.0f} %")
