"""What is said of a judged pair, made once for plain lines, the panel on a terminal, the sheet and the viewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from vrt_lite.measures import MEASURES
from vrt_lite.profile import preset
from vrt_lite.protocol.messages import DIMENSIONS, KEYS, OVERALL
from vrt_lite.protocol.report import MEASURED_KEYS
from vrt_lite.protocol.verdict import VIDEOS, Choice, Preference, Verdict, describe, headline, prefer
from vrt_lite.show.words import DIMENSION_NAMES, count_of, print_lines, safe, show_table

if TYPE_CHECKING:
    from vrt_lite.protocol.messages import Dimension, Odds
    from vrt_lite.records.judgement import Judgement, PlainData
    from vrt_lite.records.pairs import JudgedPair
    from vrt_lite.runs.store import Run

_CONFIDENCE = ("low", "medium", "high", "very high", "confirmed")


@dataclass(frozen=True, slots=True)
class PreferenceWords:
    """A preference: its name, the choice in words, and the probabilities to show with it, if any.

    No model ran on one file beside itself: its probabilities would look like a model's.
    """

    key: str
    name: str
    preference: Preference | None
    odds: Odds | None

    @property
    def words(self) -> str:
        """The choice, as `describe` has it."""
        return describe(self.preference)

    @property
    def share(self) -> str:
        """The probability of the choice, as "0.93"; empty without one, or if the words have it."""
        chosen = self.preference
        return f"{self.odds[chosen.winner]:.2f}" if chosen and self.odds and not chosen.undecided else ""


def list_preferences(judgement: Judgement) -> list[PreferenceWords]:
    """List overall, the three dimensions, and those of the judge's own."""
    verdict = judgement.verdict
    preferences = verdict.all_preferences
    return [
        PreferenceWords(key, name_dimension(judgement, key), preferences.get(key), shown_odds(verdict, key))
        for key in (OVERALL, *DIMENSIONS, *verdict.own)
    ]


def name_dimension(judgement: Judgement, key: str) -> str:
    """Return the name of a dimension: that of the preset that the judge read, if it is not the model card's.

    "Temporal Alignment", which the model card says of following the prompt, tells nobody what it means. A dimension of
    the judge's own has the name that its profile gives.
    """
    if key not in KEYS:
        return key
    wordings = cast("Mapping[str, Dimension]", judgement.settings.dimensions)
    if key == OVERALL or wordings[key].name == preset("model-card")[key].name:
        return DIMENSION_NAMES[key]
    return wordings[key].name


def _shorten(key: str) -> str:
    return "overall" if key == OVERALL else key


def shown_odds(verdict: Verdict, key: str) -> Odds | None:
    """Return the probabilities to show for a preference."""
    preference = verdict.all_preferences.get(key)
    return None if verdict.source == "identical" or preference is None else preference.odds


def name_clips(judgement: Judgement) -> tuple[str, str]:
    """Return the clips' file names, or their paths where both names are the same."""
    one, two = judgement.inputs
    return (one.name, two.name) if one.name != two.name else (one.path, two.path)


def write_headline(verdict: Verdict, names: tuple[str, str] = VIDEOS) -> str:
    """Say who wins overall, as `headline` does; no probability if no model ran."""
    overall = verdict.overall
    return headline(prefer(overall.winner) if verdict.source == "identical" else overall, names)


def describe_recommendation(verdict: Verdict) -> str:
    """Return a warning about a verdict that the judge only recommended; empty for any other verdict."""
    if verdict.source != "recommended":
        return ""
    confidence = verdict.confidence
    words = f", with confidence {confidence} of 5 ({_CONFIDENCE[confidence - 1]})" if confidence else ""
    return f"Only a recommendation{words}: the judge never gave a final answer."


def list_doubts(judgement: Judgement) -> list[str]:
    """List why the verdict is to be doubted: it is only recommended, or the orders choose differently."""
    names = ", ".join(name_dimension(judgement, key) for key in judgement.disagreements)
    differ = f"The two orders choose differently: {names}." if names else ""
    return [doubt for doubt in (describe_recommendation(judgement.verdict), differ) if doubt]


def list_limits(judgement: Judgement) -> list[str]:
    """List what was left out on purpose (the second order, by an effort), and what the judge sees.

    "second order not needed: the probability 0.97 reaches the confidence 0.9"; "each clip judged by itself (VQ 3 and 2,
    overall 7 and 5), the other order is the mirror"; "effort quick: frames of at most 200704 pixels, at most 2 rounds,
    replies of at most 512 tokens".
    """
    settings, lines = judgement.settings, list[str]()
    if judgement.scores:
        one, two = judgement.scores
        told = ", ".join(f"{_shorten(name)} {one[name].value:.3g} and {two[name].value:.3g}" for name in one)
        lines.append(f"each clip judged by itself ({told}), the other order is the mirror")
    elif skipped := judgement.skipped_order:
        reached = f"the probability {skipped.probability:.2f} reaches the confidence {skipped.confidence:g}"
        lines.append(f"second order not needed: {reached}")
    if settings.effort != "full":
        rounds, tokens = count_of(settings.rounds, "round"), settings.max_new_tokens
        replies = f", replies of at most {tokens} tokens" if tokens else ""
        limits = f"frames of at most {settings.max_pixels} pixels, at most {rounds}{replies}"
        lines.append(f"effort {settings.effort}: {limits}")
    return [line for line in (*lines, judgement.scope) if line]


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure in words: both videos' values without the unit, and which is better ("alike" if neither)."""

    name: str
    unit: str
    values: tuple[str, str]
    better: Choice | None
    words: str


def list_measures(judgement: Judgement) -> list[MeasureRow]:
    """Put measures in words, in their order; none if nothing was measured."""
    rows: list[MeasureRow] = []
    for pair in judgement.measures or ():
        digits = MEASURES[pair.name].digits
        one, two = ("–" if value is None else f"{value:.{digits}f}" for value in pair.values)
        words = "not measured" if pair.better is None else f"video {pair.better}" if pair.better else "alike"
        rows.append(MeasureRow(pair.name, pair.unit, (one, two), pair.better, words))
    return rows


def describe_measured(judgement: Judgement) -> list[str]:
    """Say what measuring finds in a pair: which video it prefers, and what is wrong with one where that is sure.

    "by measuring: overall video 1 (0.97), VQ video 1 (0.98), MQ tie (0.91)"; "found in video 2: blocks, strong". A
    preference that the verdict takes over is not said twice.
    """
    measured = judgement.measured
    if not measured:
        return []
    lines, said = list[str](), list[str]()
    for key in MEASURED_KEYS:
        preference = measured.preferences[key]
        if judgement.verdict.preferences.get(key) != preference:
            words = f"{describe(preference, with_share=False)} ({measured.odds[key][preference.choice]:.2f})"
            said.append(f"{_shorten(key)} {words}")
    if said:
        lines.append(f"by measuring: {', '.join(said)}")
    return lines + [f"found in video {fault.video}: {fault.name}, {fault.strength}" for fault in measured.faults]


def count_frames(judgement: Judgement) -> int:
    """Return how many different frames the judge saw."""
    return len({(f.video, f.index) for order in judgement.orders for r in order.rounds for f in r.frames})


def list_alike(rows: list[MeasureRow]) -> str:
    """List the measures by which both clips are alike."""
    return ", ".join(row.name for row in rows if row.better == 0)


def list_verdict(judgement: Judgement) -> list[str]:
    """Return the verdict in plain lines for a client's user: the headline, then what `verdict_lines` tells."""
    return [f"{write_headline(judgement.verdict)}.", *verdict_lines(judgement)[1:]]


def verdict_lines(judgement: Judgement) -> list[str]:
    """Return the verdict in plain lines, each "key: value"; the first is the overall one."""
    overall, *rest = list_preferences(judgement)
    measures, verdict = list_measures(judgement), judgement.verdict
    alike = list_alike(measures)
    winner = f"({name_clips(judgement)[judgement.winner - 1]})" if judgement.winner else ""
    parts = ("overall:", overall.words, winner, overall.share, f"[{verdict.source}]")
    lines = [
        " ".join(filter(None, parts)),
        *(f"{of.key}: {of.words} {of.share}".rstrip() for of in rest),
        f"orders disagree: {', '.join(judgement.disagreements)}" if judgement.disagreements else "",
        *describe_measured(judgement),
        *(f"measured {of.name}: {' and '.join(of.values)} {of.unit}, {of.words}" for of in measures if of.better != 0),
        alike and f"measured alike: {alike}",
        f"rounds: {' + '.join(str(len(order.rounds)) for order in judgement.orders) or 0}",
        f"frames: {count_frames(judgement)}",
        f"seconds: {judgement.timings.total:.2f}",
        judgement.scope and f"judge: {judgement.model.name}, {judgement.scope}",
        *(line for line in list_limits(judgement) if line != judgement.scope),
        *(f"warning: {text}" for text in (describe_recommendation(verdict), *judgement.warnings) if text),
    ]
    return [safe(line) for line in lines if line]


# The comparisons of a run: pairs that have a prompt of their own


def list_comparisons(run: Run) -> Iterator[PlainData]:
    """Yield the comparisons of a run, in the order first judged."""
    return (describe_pair(run, pair) for pair in run.pairs())


def describe_pair(run: Run, pair: JudgedPair) -> PlainData:
    """Describe a comparison as plain data: two clips by name, their prompt, and the overall result of `orders` orders.

    `words` say the result as a sentence without its full stop; `overall` is null, with an `error`, without a verdict.
    """
    judgement = run.read_pair(pair)
    one, two = (clip.name for clip in judgement.inputs) if judgement else (pair.first[:12], pair.second[:12])
    error = "" if judgement else pair.errors[0]
    return {
        "id": pair.id,
        "first": one,
        "second": two,
        "sha256": [pair.first, pair.second],
        "prompt": pair.prompt,
        "overall": pair.overall and asdict(pair.overall),
        "orders": len(judgement.orders) if judgement else 0,
        "error": error,
        "words": write_headline(judgement.verdict, (one, two)) if judgement else f"No verdict: {error}",
        "judge": judgement.model.name if judgement else str(run.about.get("model", "")),
        "run": run.name,
    }


def show_comparisons(run: Run, *, judge: str) -> None:
    """Print a line for each comparison, then the judge's and the run's names."""
    rows = [
        [of["first"], of["second"], of["words"], str(of["orders"] or ""), " ".join(of["prompt"].split())]
        for of in list_comparisons(run)
    ]
    show_table(("VIDEO 1", "VIDEO 2", "RESULT", "ORDERS", "PROMPT"), rows)
    print_lines([f"judge: {judge}", f"run: {run.name}"])
