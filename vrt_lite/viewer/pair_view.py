"""One judged pair as the viewer draws it: its record, what is said of it in words, and where its clips are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vrt_lite.protocol.messages import OVERALL
from vrt_lite.records.judgement import Judgement
from vrt_lite.show import pair_words
from vrt_lite.show.pair_words import list_preferences, write_headline
from vrt_lite.show.words import capitalize_first, percent
from vrt_lite.viewer.page_file import PlainTable
from vrt_lite.withholding import withhold_alignment

_QUOTED = ("text", "snapshot", "thought")
"""Fields of a round that quote the judge."""


def prepare_pair(
    judgement: Judgement, *, label: Mapping[str, Any] | None = None, warnings: Sequence[str] = ()
) -> dict[str, Any]:
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
