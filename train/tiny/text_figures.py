"""What the text model gets on pairs that it never saw, judged by the engine from its GGUF pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from scipy.optimize import minimize_scalar

from train.strict_format import conforms
from train.tiny.text_cases import TextCase, TextCases
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Trial, judge_with
from vrt_lite.models import find
from vrt_lite.profile import Profile
from vrt_lite.protocol import tags
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.report import MEASURED_KEYS
from vrt_lite.protocol.verdict import MIRROR, likeliest, soften


@dataclass(frozen=True, slots=True)
class JudgedReport:
    """One case: whether it keeps the strict format, what was written by key, and how likely that was.

    `called` tells whether it called for the frames of the report; `turned` whether a reversed report of the same clips
    turned what it wrote of them.
    """

    case: TextCase
    well_formed: bool
    written: Mapping[str, int]
    odds: Mapping[str, Odds]
    called: bool
    turned: bool


def evaluate(pair: str, footage: Path | None, *, pairs: int, say: Callable[[str], None]) -> list[JudgedReport]:
    """Judge so many pairs, each also with its report reversed, and print the figures."""
    files = find(pair)
    cases = TextCases(replace(files.profile, temperatures={}), footage, "test")
    found: list[JudgedReport] = []
    with LlamaCppBackend(files.text, files.projector, profile=files.profile) as backend:
        for number in range(pairs):
            drawn = cases.draw(number)
            found.append(_judge_case(drawn.orders[0], drawn.profile, backend, drawn.open_frames()[0]))
    for line in describe(found):
        say(line)
    return found


def _judge_case(case: TextCase, profile: Profile, backend: LlamaCppBackend, frames: FrameStore) -> JudgedReport:
    trial = _judge(case, profile, backend, frames)
    if not trial:
        return JudgedReport(case, False, {}, {}, called=False, turned=False)
    marks = trial.rounds[-1].marks
    written = {key: choice for key, choice in (marks.choices if marks else {}).items() if key != "TA" or _reads(trial)}
    preferences = trial.verdict.preferences
    calls = [line for line in case.replies[0].splitlines() if "target_frames" in line]
    called = calls == [r.parsed.payload.strip() for r in trial.rounds if isinstance(r.parsed, tags.FrameCall)]
    turned = False
    if case.pair.measured:
        reversed_pair = replace(case.pair, measured=case.pair.measured.mirrored())
        other = _judge(replace(case, pair=reversed_pair), profile, backend, frames)
        turned = other is not None and all(
            other.verdict.preferences[key].winner == MIRROR[written[key]] for key in ("VQ", "MQ")
        )
    odds = {key: preference.odds for key, preference in preferences.items() if preference.odds}
    return JudgedReport(case, conforms(trial.rounds), written, odds, called, turned)


def _judge(case: TextCase, profile: Profile, backend: LlamaCppBackend, frames: FrameStore) -> Trial | None:
    try:
        return judge_with(case.pair, profile, backend, frames)
    except NoVerdictError:
        return None


def _reads(trial: Trial) -> bool:
    return "TA" in trial.verdict.preferences


def describe(found: Sequence[JudgedReport]) -> list[str]:
    """Return the figures, a line each."""
    measured = [each for each in found if each.case.pair.measured]
    read = [each for each in found if "TA" in each.written]
    differing = [each for each in read if each.case.alignment]
    says = {
        key: [each.written.get(key) == likeliest(each.case.odds[key]) for each in measured] for key in MEASURED_KEYS
    }
    apart = [
        abs(each.odds[key][choice] - each.case.odds[key][choice])
        for each in measured
        for key in MEASURED_KEYS
        if key in each.odds
        for choice in (0, 1, 2)
    ]
    lines = [
        f"well-formed: {_share([each.well_formed for each in found])}",
        f"alignment right: {_share([each.written['TA'] == each.case.alignment for each in read])}, "
        f"where it differs {_share([each.written['TA'] == each.case.alignment for each in differing])}",
        *(f"{key} as reported: {_share(says[key])}" for key in MEASURED_KEYS),
        f"its probabilities differ from the reported ones by {sum(apart) / max(len(apart), 1):.3f} on average",
        f"called for the frames of the report: {_share([each.called for each in measured])}",
        f"turned by a reversed report: {_share([each.turned for each in measured])}",
    ]
    for name, ties in (("TA", False), ("TA_tie", True)):
        own = [each for each in read if "TA" in each.odds and (each.written["TA"] == 0) == ties]
        if own:
            labelled = [(each.odds["TA"], each.case.alignment) for each in own]
            lines.append(f"temperature {name} = {find_temperature(labelled):.3f} of {len(own)}")
    return lines


def find_temperature(labelled: Sequence[tuple[Odds, int]]) -> float:
    """Return the temperature from 0.05 to 100 with the least negative log-likelihood of the labels.

    Guo et al., "On calibration of modern neural networks", 2017 (arXiv 1706.04599). The likelihood has one peak over
    the logarithm of the temperature.
    """

    def loss(logarithm: float) -> float:
        temperature = math.exp(logarithm)
        return -fmean(math.log(max(soften(odds, temperature)[label], 1e-9)) for odds, label in labelled)

    bounds = math.log(0.05), math.log(100.0)
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x)


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)} ({100 * sum(right) / max(len(right), 1):.1f} %)"
