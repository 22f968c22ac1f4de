"""The page of a ranking: who leads, the ladder with intervals, the win matrix, overall and per dimension.

Knows how a `Ladder` is told. Refuses to know how ratings come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.protocol.tags import OVERALL
from vrt_lite.ranking.contest import Contest, Contestant
from vrt_lite.ranking.ladder import Ladder, Rated, Standing, rank
from vrt_lite.ranking.rank import contests_of, left_out_of
from vrt_lite.report.charts import interval, percent
from vrt_lite.report.gather import Material, Overview
from vrt_lite.report.matrix import matrix_of
from vrt_lite.report.nodes import Element, Node, h, said
from vrt_lite.report.rounds import image_of

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

_KEYS = {OVERALL: "Overall", "TA": "Alignment", "VQ": "Visual quality", "MQ": "Motion quality"}
_MOST_CYCLES = 20
_GROUPS = 40


def ranking(material: Material) -> Overview:
    """All groups of a run."""
    contests = contests_of(material.run) or _found(material)
    ladders = [rank(contest) for contest in contests]
    title = _title(ladders[0]) if len(ladders) == 1 else f"{len(ladders)} groups ranked"
    parts: list[Node] = [h("header", h("h1", _heading(ladders), tabindex="-1"), _summary(material.run, ladders))]
    if len(ladders) > _GROUPS:
        words = f"The first {_GROUPS} groups are shown; the pairs of all {len(ladders)} are in the list below."
        parts.append(h("p", words, class_="lead"))
    for number, (contest, ladder) in enumerate(zip(contests[:_GROUPS], ladders, strict=False), start=1):
        parts.append(_group(material, contest, ladder, number, alone=len(ladders) == 1))
    parts += _left_out(material.run)
    return Overview(title, tuple(parts))


def _found(material: Material) -> tuple[Contest, ...]:
    """A group a prompt, of whatever was judged: for a run that names no groups."""
    by: dict[str, dict[str, None]] = {}
    for match in material.matches:
        by.setdefault(match.prompt, {}).update(dict.fromkeys((match.first, match.second)))
    results = list(material.run.results())
    contests: list[Contest] = []
    for prompt, clips in by.items():
        names = [(material.names.get(sha256, sha256[:12]), sha256) for sha256 in clips]
        contests.append(Contest("", prompt, tuple(Contestant(name, Path(name), sha256) for name, sha256 in names)))
        contests[-1].recall(results)
    return tuple(contests)


def _left_out(run: Run) -> list[Node]:
    """The clips that were not ranked at all, and why."""
    lines = [h("li", said(str(out.path)), ": ", said(out.reason)) for out in left_out_of(run)]
    return [h("section", h("h2", "Left out"), h("ul", lines, class_="listed"))] if lines else []


def _title(ladder: Ladder) -> str:
    leading = _leading(ladder)
    return f"{leading[0]} {'is best' if len(leading) == 1 else 'leads'}" if leading else "Nothing ranked yet"


def _leading(ladder: Ladder) -> list[str]:
    """The names of the clips that cannot be told from the best one."""
    if not ladder.standings:
        return []
    best = _letters(ladder.standings[0])
    return [ladder.clips[s.clip].name for s in ladder.standings if s is ladder.standings[0] or best & _letters(s)]


def _letters(standing: Standing) -> set[str]:
    return set(standing.together)


def signed(number: float) -> str:
    """A number with its sign, a minus as wide as a plus."""
    return f"{number:+.2f}".replace("-", "−")


def _heading(ladders: Sequence[Ladder]) -> Node:
    if len(ladders) != 1:
        return f"{len(ladders)} groups ranked"
    leading = _leading(ladders[0])
    if not leading:
        return "Nothing ranked yet"
    return h("span", said(leading[0]), " is best" if len(leading) == 1 else " leads")


def _beside(ladder: Ladder) -> Element | None:
    """Who cannot be told from the first."""
    others = _leading(ladder)[1:]
    if not others:
        return None
    names: list[Node] = []
    for name in others[:3]:
        names += [*([", "] if names else []), said(name)]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    winning = ladder.standings[0].winning
    sure = f" That it is better than the next one has a probability of {percent(winning)}." if winning else ""
    return h("p", names, more, f" cannot be told from it for certain.{sure}", class_="lead")


def _summary(run: Run, ladders: Sequence[Ladder]) -> Element:
    judged = sum(ladder.judgements for ladder in ladders)
    failed = sum(ladder.failures for ladder in ladders)
    pairs = sum(len(ladder.outcomes) for ladder in ladders)
    possible = sum(ladder.possible for ladder in ladders)
    clips = sum(len(ladder.clips) for ladder in ladders)
    without = f", {failed} without a verdict" if failed else ""
    words = f"{clips} clips · {pairs} of {possible} pairs · {judged} judgements{without} · "
    return h("p", words, said(run.name), class_="how")


def _group(material: Material, contest: Contest, ladder: Ladder, number: int, *, alone: bool) -> Element:
    name = ladder.group or f"Group {number}"
    switch = f"g{number}"
    best = None if alone or not ladder.standings else h("p", said(_leading(ladder)[0]), " comes first.", class_="lead")
    return h(
        "section",
        h("h2", said(name)) if not alone else None,
        h("blockquote", said(ladder.prompt, dir="auto"), class_="prompt") if ladder.prompt else None,
        best,
        _beside(ladder),
        h("h2" if alone else "h3", "The ladder"),
        h("p", _explained(ladder), class_="lead"),
        _switch(switch, name),
        [
            h(
                "div",
                _ladder(material, ladder, key),
                h("h3", f"Pair by pair, {words.lower()}"),
                matrix_of(material, contest, ladder, key, words),
                data_panel=switch,
                data_key=key,
            )
            for key, words in _KEYS.items()
        ],
        _notes(ladder),
    )


def _explained(ladder: Ladder) -> str:
    shared = len({s.together for s in ladder.standings}) < len(ladder.standings)
    words = "Strength in log odds around the mean of all clips; bars are 95 % intervals."
    return words + (" Clips that share a letter cannot be told apart." if shared else "")


def _switch(name: str, group: str) -> Element:
    labels = [
        h("label", h("input", type="radio", name=name, value=key, checked=key == OVERALL), h("span", words))
        for key, words in _KEYS.items()
    ]
    legend = h("legend", "Rated by", h("span", f" in {group}", class_="unseen"))
    return h("fieldset", legend, labels, class_="bar-of-choices", data_switch=name, hidden=True)


def _ladder(material: Material, ladder: Ladder, key: str) -> Element:
    standings = (
        sorted(ladder.standings, key=lambda s: (-s.ratings[key].strength, s.rank))
        if key != OVERALL
        else (list(ladder.standings))
    )
    rated = [s.ratings[key] for s in standings]
    within = (min((r.low for r in rated), default=-1), max((r.high for r in rated), default=1))
    rows: list[Element] = []
    before: set[str] = set()
    for place, standing in enumerate(standings, start=1):
        letters = _letters(standing)
        fresh = key != OVERALL or not before & letters
        rows.append(_rung(material, ladder, standing, key, place, within, "fresh" if fresh and place > 1 else "same"))
        before = letters
    head = ("Place", "Clip", "Name", "Strength", "Log odds", "Won, tied, lost, undecided", "Same as")
    classes = (None, None, None, None, "number", "number", "number")
    shown = head if key == OVERALL else head[:5]
    cells = [h("th", name, scope="col", class_=c) for name, c in zip(shown, classes, strict=False)]
    caption = h("caption", f"The ladder, {_KEYS[key].lower()}", class_="unseen")
    return h("table", caption, h("thead", h("tr", cells)), h("tbody", rows), class_="ladder")


def _rung(
    material: Material,
    ladder: Ladder,
    standing: Standing,
    key: str,
    place: int,
    within: tuple[float, float],
    class_: str,
) -> Element:
    clip = ladder.clips[standing.clip]
    rated: Rated = standing.ratings[key]
    told = f"{signed(rated.strength)}, from {signed(rated.low)} to {signed(rated.high)}"
    counts = f"{standing.won} · {standing.tied} · {standing.lost} · {standing.undecided}"
    overall = [
        h("td", counts, class_="number", data_name="Won, tied, lost, undecided"),
        h("td", ", ".join(standing.together), class_="number", data_name="Same as"),
    ]
    return h(
        "tr",
        h("td", str(standing.rank if key == OVERALL else place), class_="rank"),
        h("td", _poster(material, clip), class_="thumb"),
        h("th", said(clip.name, title=str(clip.path)), scope="row", class_="clip"),
        h("td", interval(rated.low, rated.strength, rated.high, within=within, label=told), class_="scale"),
        h("td", signed(rated.strength), class_="number first", data_name="Log odds"),
        overall if key == OVERALL else None,
        class_=class_,
    )


def _poster(material: Material, clip: Contestant) -> Element | None:
    seen = material.seen.get(clip.sha256)
    source = min(seen.first, default=None) if seen else None
    picture = material.album.find(seen.clip, source) if seen and source is not None else None
    if not picture:
        return None
    return image_of(picture, f"First frame of {clip.name}", material.album)


def _notes(ladder: Ladder) -> Element:
    first = ladder.first
    sure = "more than chance explains" if first.low > 0 or first.high < 0 else "no more than chance explains"
    split = sum(OVERALL in outcome.disagreements for outcome in ladder.outcomes)
    undecided = sum(pair.preferences[OVERALL].undecided for pair in ladder.outcomes if pair.preferences)
    lines: list[Node] = [
        f"Being shown first is worth {signed(first.strength)} log odds "
        f"({signed(first.low)} to {signed(first.high)}), {sure}.",
        f"The two orders disagree on {split} of {len(ladder.outcomes)} pairs"
        + (f", marked * in the matrix; {undecided} pairs are undecided." if split else "."),
    ]
    for cycle in ladder.cycles[:_MOST_CYCLES]:
        names: list[Node] = []
        for clip in (*cycle, cycle[0]):
            names += [*([" beats "] if names else []), said(ladder.clips[clip].name)]
        lines.append(h("span", "Goes round: ", names, "."))
    if len(ladder.cycles) > _MOST_CYCLES:
        lines.append(f"And {len(ladder.cycles) - _MOST_CYCLES} more go round.")
    for clip, why in ladder.unranked:
        lines.append(h("span", "Not ranked: ", said(ladder.clips[clip].name), ": ", said(why)))
    return h("section", h("h3", "To know"), h("ul", [h("li", line) for line in lines], class_="listed"))
