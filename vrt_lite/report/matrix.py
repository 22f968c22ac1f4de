"""Who wins against whom, as a table: each cell a share and the way to its pair. Refuses to know ratings."""

from __future__ import annotations

from collections.abc import Mapping

from vrt_lite.protocol.verdict import describe, odds_of
from vrt_lite.ranking.contest import Contest, Outcome
from vrt_lite.ranking.ladder import Ladder
from vrt_lite.report.gather import Material
from vrt_lite.report.nodes import Element, h, said

_WIDEST = 30


def matrix_of(material: Material, contest: Contest, ladder: Ladder, key: str, words: str) -> Element:
    """Who wins against whom: the probability that the row's clip is better, half of a tie's counted for it."""
    order = [standing.clip for standing in ladder.standings][:_WIDEST]
    outcomes = {(o.i, o.j): o for o in ladder.outcomes}
    places = {clip: place for place, clip in enumerate(order, start=1)}
    head = [h("th", h("abbr", str(at), title=ladder.clips[clip].name), scope="col") for clip, at in places.items()]
    rows = [
        h(
            "tr",
            h("th", said(f"{places[i]}\u00a0 {ladder.clips[i].name}"), scope="row"),
            [h("td", _cell(material, contest, outcomes, i, j, key)) for j in order],
        )
        for i in order
    ]
    caption = f"In per cent, how much better the row's clip is than the column's, {words.lower()}"
    more = len(ladder.standings) - len(order)
    return h(
        "div",
        h(
            "div",
            h(
                "table",
                h("caption", caption, class_="unseen"),
                h("thead", h("tr", h("th", h("span", "Clip", class_="unseen"), scope="col"), head)),
                h("tbody", rows),
                class_="matrix",
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label=f"Win matrix, {words.lower()}",
        ),
        h(
            "p",
            "Per cent for the row's clip, half of a tie's share counted; a cell opens its pair.",
            class_="quiet",
        ),
        h("p", f"The matrix shows the best {_WIDEST}; {more} more clips are in the list of pairs.", class_="quiet")
        if more > 0
        else None,
    )


def _cell(
    material: Material, contest: Contest, outcomes: Mapping[tuple[int, int], Outcome], i: int, j: int, key: str
) -> Element:
    if i == j:
        return h("span", "–", class_="none", aria_hidden="true")
    outcome = outcomes.get((min(i, j), max(i, j)))
    if outcome is None:
        return h("span", "·", class_="none", aria_label="not judged", role="img")
    a, b = contest.clips[i], contest.clips[j]
    number = material.numbers.get((a.sha256, b.sha256, contest.prompt))
    if not outcome.preferences:
        words, kind, told = "?", "none", "no verdict"
    else:
        own = outcome.preferences[key] if i < j else outcome.preferences[key].mirrored()
        tie, share, _ = odds_of(own.winner, own.odds)
        words, kind = f"{100 * (share + tie / 2):.0f}", ("w1", "w2", "w0")[own.winner]
        told = describe(own, (a.name, b.name)) if own.undecided else ("tied", "won", "lost")[own.winner]
        told += ", the orders disagree" if key in outcome.disagreements else ""
    label = f"{a.name} against {b.name}: {words} per cent, {told}"
    mark = "*" if key in outcome.disagreements else ""
    return h("a", words + mark, href=f"#/pair/{number}", class_=kind, aria_label=label) if number else h("span", words)
