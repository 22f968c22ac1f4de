"""Strong faults on real clips: each held-back clip beside a copy of itself that is plainly worse, as mp4 files.

The question that a user asks first. The faults are drawn here, not by `train.world`, and the files are judged as
`vrt-lite compare` judges them, in both orders and without a caption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from train.footage.survey import SurveyedClip, decode
from train.world.write_set import encode_clip
from vrt_lite import Judge, Settings
from vrt_lite.errors import NoVerdictError
from vrt_lite.evaluation.metrics import SIGN

Fault = Literal["blur", "noise", "stutter", "flicker"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
LONGEST_SECONDS = 5.0
LONGEST_SIDE = 960
_CRF = 16
_BLUR = 0.018
"""Standard deviation, as a share of the shorter side."""
_NOISE = 38.0
"""Standard deviation, in grey levels."""
_HELD_SECONDS = 0.4
_DARKEST = 0.45
"""Of each picture's light at the darkest, where it flickers; the other pictures have all of it."""

Pictures = Sequence[NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class StrongPair:
    """A clean clip and the same clip with a fault."""

    clip: str
    fault: Fault
    clean: Path
    faulty: Path


def write_pairs(footage: Path, clips: Sequence[SurveyedClip], folder: Path) -> Iterator[StrongPair]:
    """Yield the pairs of some clips of the folder `footage`. Files that are in `folder` already are used again."""
    folder.mkdir(parents=True, exist_ok=True)
    for clip in clips:
        name = PurePosixPath(clip.path).stem
        paths = {kind: folder / f"{name}-{kind}.mp4" for kind in ("clean", *FAULTS)}
        if not all(path.is_file() for path in paths.values()):
            _write_versions(footage / clip.path, clip, paths)
        for fault in FAULTS:
            yield StrongPair(name, fault, paths["clean"], paths[fault])


def _write_versions(source: Path, clip: SurveyedClip, paths: dict[str, Path]) -> None:
    scale = min(1.0, LONGEST_SIDE / max(clip.width, clip.height))
    width, height = (round(side * scale / 2) * 2 for side in (clip.width, clip.height))
    pictures = list(decode(source, min(clip.frames, round(LONGEST_SECONDS * clip.fps)), (width, height)))
    rng, rate = np.random.default_rng(7), Fraction(clip.fps).limit_denominator(1001)
    encode_clip(paths["clean"], pictures, (width, height), rate, crf=_CRF)
    for fault in FAULTS:
        worse = make_worse(pictures, fault, fps=clip.fps, rng=rng)
        encode_clip(paths[fault], worse, (width, height), rate, crf=_CRF)


def make_worse(pictures: Pictures, fault: Fault, *, fps: float, rng: np.random.Generator) -> Pictures:
    """Return pictures (height, width, 3) with a strong fault, as many as are given."""
    match fault:
        case "blur":
            radius = _BLUR * min(pictures[0].shape[:2])
            return [np.asarray(Image.fromarray(p).filter(ImageFilter.GaussianBlur(radius))) for p in pictures]
        case "noise":
            return [_clipped(p + _NOISE * rng.standard_normal(p.shape, np.float32)) for p in pictures]
        case "stutter":
            held = max(2, round(_HELD_SECONDS * fps))
            return [pictures[i - i % held] for i in range(len(pictures))]
        case "flicker":
            light = rng.uniform(_DARKEST, 1.0, len(pictures))
            light[::2] = np.minimum(light[::2], (1 + _DARKEST) / 2)
            return [_clipped(p * factor) for p, factor in zip(pictures, light, strict=True)]


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The winners of the overall verdict, in each order and together: 1 the clean clip, -1 the faulty one, 0 none."""

    pair: StrongPair
    orders: tuple[int, int]
    together: int

    @property
    def result(self) -> str:
        """What both orders say together. Opposite winners are undecided."""
        if self.together:
            return "right" if self.together > 0 else "wrong"
        return "undecided" if set(self.orders) == {1, -1} else "tie"


def judge_pairs(pairs: Iterable[StrongPair], model: str) -> Iterator[JudgedPair]:
    """Judge pairs with a model in both orders, and yield each when it is judged."""
    with Judge(model, settings=Settings(both_orders=True), measures=False) as judge:
        for pair in pairs:
            try:
                judgement = judge.compare(pair.clean, pair.faulty)
            except NoVerdictError:
                yield JudgedPair(pair, (0, 0), 0)
                continue
            first, second = (order.verdict for order in judgement.orders)
            orders = (SIGN[first.preferences["OA"].winner], SIGN[second.preferences["OA"].winner])
            yield JudgedPair(pair, orders, SIGN[judgement.winner])


def describe_results(judged: Sequence[JudgedPair]) -> str:
    """Count the results of all pairs, then by fault."""
    verdicts = [winner for one in judged for winner in one.orders]
    alone = f"{verdicts.count(1)} right, {verdicts.count(-1)} wrong, {verdicts.count(0)} ties"
    both = [sum(one.orders == (side, side) for one in judged) for side in (1, -1)]
    lines = [
        f"{len(verdicts)} verdicts, each in one order: {alone}",
        f"{len(judged)} pairs: {both[0]} right in both orders, {both[1]} wrong in both",
    ]
    for name, own in (("all", judged), *((fault, [j for j in judged if j.pair.fault == fault]) for fault in FAULTS)):
        counts = Counter(one.result for one in own)
        results = ", ".join(f"{counts[result]} {result}" for result in ("right", "wrong", "tie", "undecided"))
        lines.append(f"both orders together, {name}: {results}")
    return "\n".join(lines)


def _clipped(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(values).clip(0, 255).astype(np.uint8)
