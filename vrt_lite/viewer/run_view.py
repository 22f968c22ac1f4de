"""A judged pair, and a run of them, as the viewer draws them: records, and what is said of them in words.

Of a run only light columns and one whole judgement are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import UsageError
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.protocol.verdict import MIRROR, describe
from vrt_lite.ranking.rank_run import read_rank_about
from vrt_lite.records.judgement import Judgement, PlainData
from vrt_lite.records.labelled import EvalAbout
from vrt_lite.records.pairs import JudgedPair
from vrt_lite.show import pair_words
from vrt_lite.show.pair_words import list_preferences, shown_odds, write_headline
from vrt_lite.show.words import capitalize_first, percent
from vrt_lite.viewer.clip_media import ShownClip, list_shown
from vrt_lite.viewer.page_file import PlainTable
from vrt_lite.withholding import withhold_alignment

if TYPE_CHECKING:
    from vrt_lite.records.labelled import EvalCase
    from vrt_lite.runs.store import Run

_QUOTED = ("text", "snapshot", "thought")
"""Fields of a round that quote the judge."""
_UNDECIDED = "undecided"
_PROMPT_LENGTH = 160
NAMED = ("\x1f1", "\x1f2")
"""Stand for the names of two clips in words that the viewer draws."""


def prepare_pair(
    judgement: Judgement, *, label: Mapping[str, Any] | None = None, warnings: Sequence[str] = ()
) -> PlainData:
    """Prepare a pair as plain data. `warnings` are shown beside those of the judgement.

    `label` is what people said of it: the `name` of their row, and `winners` by key in the order of the page.

    What the judge wrote of a dimension that it does not judge is withheld from the record.
    """
    record, withheld = judgement.to_json(), False
    if "TA" in judgement.verdict.not_judged:
        for of in (of for order in record["orders"] for of in order["rounds"]):
            quoted = {name: withhold_alignment(of[name]) for name in _QUOTED}
            withheld |= quoted["text"] != of["text"]
            of.update(quoted)
    preferences = list_preferences(judgement)
    words = {
        "headline": write_title(judgement),
        "names": {of.key: of.name for of in preferences},
        "choices": {of.key: of.words for of in preferences},
        "lines": pair_words.list_limits(judgement),
        "warnings": [*pair_words.list_doubts(judgement), *judgement.warnings, *warnings],
        "measures": [asdict(row) for row in pair_words.list_measures(judgement)],
        "measured": pair_words.describe_measured(judgement),
        "withheld": withheld,
    }
    return {"judgement": record, "words": words, "label": label}


def write_title(judgement: Judgement) -> str:
    """Say the verdict in a few words."""
    words = write_headline(judgement.verdict)
    differ = OVERALL in judgement.disagreements and not judgement.verdict.overall.undecided
    return f"{words}, but the orders disagree" if differ else words


def make_pair_table(judgement: Judgement) -> PlainTable:
    """Make the table of a verdict for a browser without scripts."""
    rows: list[list[str]] = []
    for of in list_preferences(judgement):
        shares = [percent(of.odds[winner]) for winner in (1, 0, 2)] if of.odds else ["–"] * 3
        rows.append([of.name, capitalize_first(of.words), *shares])
    one, two = (clip.name for clip in judgement.inputs)
    caption = f"{write_title(judgement)}. Video 1: {one}. Video 2: {two}."
    return caption, ("Dimension", "Better", "Video 1", "Tie", "Video 2"), rows


class RunView:
    """A run, and what is read of it once."""

    def __init__(self, run: Run) -> None:
        """View a run. UsageError if it has no judgements yet."""
        self.run = run
        self.pairs = run.pairs()
        if not self.pairs:
            raise UsageError(f"Run {run.name!r} has no judgements yet: there is nothing to report.")
        self._ranked = read_rank_about(run).clips if run.kind == "rank" else ()

    @cached_property
    def known(self) -> Mapping[str, str]:
        """Where the run has its clips: a judgement that was found by content names them where they were judged."""
        return {clip.sha256: str(clip.path) for clip in self._ranked}

    @cached_property
    def shown(self) -> Mapping[str, ShownClip]:
        """The clips, and which of their frames were shown."""
        judgements = (self.run.judgement(result.key) for pair in self.pairs for result in pair.results)
        return list_shown(judgement for judgement in judgements if judgement)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the clips."""
        own = {clip.sha256: clip.name for clip in self._ranked if clip.name}
        return {sha256: of.clip.name for sha256, of in self.shown.items()} | own

    @cached_property
    def numbers(self) -> Mapping[tuple[frozenset[str], str], int]:
        """The numbers of the pairs from 1, by both clips and the prompt."""
        return {(frozenset((of.first, of.second)), of.prompt): n for n, of in enumerate(self.pairs, start=1)}

    @cached_property
    def labels(self) -> Mapping[str, EvalCase]:
        """The cases of an evaluation, by the key of their judgement; other runs have none."""
        return {case.key: case for case in self.run.cases() if case.key}

    @property
    def folder(self) -> Path | None:
        """The folder beside which an evaluation has its clips."""
        folder = self.run.read_about(EvalAbout, "an evaluation").folder if self.run.kind == "eval" else None
        return Path(folder) if folder else None

    def name_pair(self, pair: JudgedPair) -> tuple[str, str]:
        """Name the clips of a pair."""
        return self.names.get(pair.first, pair.first[:12]), self.names.get(pair.second, pair.second[:12])

    def prepare_index(self) -> list[list[Any]]:
        """Prepare the list of pairs: names, the prompt, who is better, the same in words, and marks."""
        return [self._make_row(pair) for pair in self.pairs]

    def prepare_pair(self, number: int) -> PlainData:
        """Prepare a pair by its number from 1, as the function `prepare_pair` does."""
        pair = self.pairs[number - 1]
        judgement = self.run.read_pair(pair)
        if judgement is None:
            return {"failed": {"names": self.name_pair(pair), "prompt": pair.prompt, "errors": pair.errors}}
        first, second = (replace(clip, path=self.known.get(clip.sha256) or clip.path) for clip in judgement.inputs)
        warnings = [f"The other order: {error}" for error in pair.errors]
        label = self._find_label(pair)
        return prepare_pair(replace(judgement, inputs=(first, second)), label=label, warnings=warnings)

    def _make_row(self, pair: JudgedPair) -> list[Any]:
        own, names = pair.overall, self.name_pair(pair)
        long = len(pair.prompt) > _PROMPT_LENGTH
        return [
            *names,
            f"{pair.prompt[:_PROMPT_LENGTH]}…" if long else pair.prompt,
            _UNDECIDED if own and own.undecided else own.winner if own else None,
            describe_better(pair, NAMED),
            self._list_marks(pair),
        ]

    def _find_label(self, pair: JudgedPair) -> PlainData | None:
        """Find the label of a pair, if it has one; a table's A is shown first in the order "given"."""
        for result in pair.results:
            if case := self.labels.get(result.key):
                mirrored = (case.order == "swapped") != (result is pair.swapped)
                winners = {name: MIRROR[winner] if mirrored else winner for name, winner in case.labels.items()}
                return {"name": case.name, "winners": winners}
        return None

    def _list_marks(self, pair: JudgedPair) -> list[str]:
        """List what is notable about a pair; the list of pairs can be filtered by it."""
        own, label = pair.overall, self._find_label(pair)
        marks = ["orders disagree"] if OVERALL in pair.disagreements else []
        if pair.errors:
            marks.append("one order only" if own else "no verdict")
        if any(result.source == "recommended" for result in pair.results):
            marks.append("only recommended")
        if label and OVERALL in label["winners"] and own and not own.undecided:
            marks.append("as labelled" if label["winners"][OVERALL] == own.winner else "not as labelled")
        return marks


def describe_better(pair: JudgedPair, names: tuple[str, str]) -> str:
    """Say which is better, and how probably, if the words do not."""
    if pair.joined is None:
        return "No verdict"
    preference = pair.joined.verdict.overall
    odds = None if preference.undecided else shown_odds(pair.joined.verdict, OVERALL)
    share = f" {percent(odds[preference.winner])}".replace("%", "\u00a0%") if odds else ""
    return capitalize_first(describe(preference, names)) + share
