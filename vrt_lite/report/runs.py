"""Writes the report of a run: what came of it first, then every pair, packed, to be opened one at a time.

Memory is that of the light columns, one whole judgement and one block of pairs; pictures go to the file as they are
made, while there is room. Knows the order of a page; refuses to know how a ranking or an evaluation is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import Preference, describe
from vrt_lite.report.case import Case
from vrt_lite.report.charts import percent
from vrt_lite.report.gather import (
    Labels,
    Match,
    Material,
    Overview,
    case_of,
    checked,
    label_of,
    labels_of,
    matches_of,
    seen_in,
)
from vrt_lite.report.nodes import Element, Node, h, said, to_json
from vrt_lite.report.page import (
    draft_of,
    write_content,
    write_end,
    write_foot,
    write_head,
    write_json,
    write_packed,
    write_picture,
)
from vrt_lite.report.pair import Setting, address, common_facts, pair_page
from vrt_lite.report.pictures import Album, places_of

if TYPE_CHECKING:
    from vrt_lite.runs.run import Run

ROOM = 20 * 2**20
"""Bytes of pictures in the report of a run."""
_MOST = 24_000
_BLOCK = 16
_UNDECIDED = "undecided"
_PROMPT = 160
_POSTERS = 500


def write_run(run: Run, path: Path, *, beside: Path | None = None) -> None:
    """Write the report of a run to `path`. UsageError if there is nothing to report, or it cannot be written."""
    checked(run)
    matches = matches_of(run)
    seen = seen_in(run, matches)
    album = Album(room=ROOM, most=_MOST)
    known = _known(run)
    if beside is None and isinstance(folder := run.about.get("folder"), str):
        beside = Path(folder)
    places = {sha256: places_of(of.clip, beside, known=known.get(sha256, "")) for sha256, of in seen.items()}
    for sha256 in list(seen)[:_POSTERS] if run.kind == "rank" else ():
        album.keep(seen[sha256].clip, sorted(seen[sha256].first)[:1], places[sha256])
    names = {sha256: of.clip.name for sha256, of in seen.items()} | _named(run)
    numbers = {
        (*clips, match.prompt): number
        for number, match in enumerate(matches, start=1)
        for clips in ((match.first, match.second), (match.second, match.first))
    }
    example = next((case for match in matches if (case := case_of(run, match))), None)
    overview = _overview(Material(run, matches, seen, album, names, numbers))
    labels = labels_of(run)
    addresses = {sha256: address(at[0], path) if at else "" for sha256, at in places.items()}
    with draft_of(path) as file:
        write_head(file, overview.title)
        room = h("div", id="pair", hidden=True)
        found = [_finder(matches, labels), _common(example)]
        write_content(file, [h("div", overview.content, found, id="overview"), room])
        write_foot(file)
        write_json(file, "about", {"pairs": len(matches), "block": _BLOCK})
        write_packed(file, "index", [_row(match, names, labels) for match in matches])
        for wanted in ("first", "asked"):
            for sha256, of in seen.items():
                for picture in album.add(of.clip, getattr(of, wanted), places[sha256]):
                    write_picture(file, picture.id, picture.uri)
        _write_pairs(file, _pages(run, matches, names, labels, album, addresses, example.facts if example else {}))
        write_end(file)


def _common(case: Case | None) -> Element | None:
    """What all pairs share, told once."""
    return h("section", h("h2", "Details"), common_facts(case), class_="details") if case else None


def _known(run: Run) -> dict[str, str]:
    """Where a run says that its clips lie, by sha256."""
    clips: Any = run.about.get("clips")
    listed = cast("list[Any]", clips) if isinstance(clips, list) else []
    named = [cast("dict[str, Any]", clip) for clip in listed if isinstance(clip, dict)]
    return {str(clip.get("sha256")): str(clip.get("path") or "") for clip in named}


def _named(run: Run) -> dict[str, str]:
    from vrt_lite.runs.export import names_of  # noqa: PLC0415

    return {sha256: name for sha256, name in names_of(run).items() if name}


def _overview(material: Material) -> Overview:
    match material.run.kind:
        case "rank":
            from vrt_lite.report.ladder import ranking  # noqa: PLC0415 - numpy

            return ranking(material)
        case "eval":
            from vrt_lite.report.figures import evaluation  # noqa: PLC0415

            return evaluation(material)
        case kind:
            count = len(material.matches)
            title = f"{count} pair{'s' if count != 1 else ''} judged"
            about = h("p", said(material.run.name), f", a run of kind {kind}", class_="how")
            return Overview(title, (h("header", h("h1", title, tabindex="-1"), about),))


def _write_pairs(file: TextIO, pages: Iterable[Element]) -> None:
    block: list[Any] = []
    number = 0
    for element in pages:
        block.append(to_json(element))
        if len(block) == _BLOCK:
            write_packed(file, f"b{number}", block)
            number, block = number + 1, []
    if block:
        write_packed(file, f"b{number}", block)


def _pages(
    run: Run,
    matches: list[Match],
    names: Mapping[str, str],
    labels: Mapping[str, Mapping[str, Any]],
    album: Album,
    addresses: Mapping[str, str],
    shared: Mapping[str, Any],
) -> Iterator[Element]:
    for match in matches:
        case = case_of(run, match)
        if case is None:
            yield _without(match, names)
            continue
        a, b = (clip.sha256 for clip in case.clips)
        playable = tuple("" if sha in album.absent else addresses.get(sha, "") for sha in (a, b))
        if match.errors:
            case = replace(case, warnings=(*case.warnings, *(f"The other order: {error}" for error in match.errors)))
        label = label_of(match, labels)
        yield pair_page(case, Setting(album, (playable[0], playable[1]), _labelled(case, label), shared))


def _without(match: Match, names: Mapping[str, str]) -> Element:
    clips = [names.get(sha256, sha256[:12]) for sha256 in (match.first, match.second)]
    return h(
        "article",
        h("h1", "No verdict", tabindex="-1"),
        h("p", said(clips[0]), " and ", said(clips[1]), class_="how"),
        h("blockquote", said(match.prompt, dir="auto"), class_="prompt") if match.prompt else None,
        h("section", h("ul", [h("li", said(error)) for error in match.errors]), class_="warnings"),
    )


def _labelled(case: Case, label: Labels | None) -> tuple[Node, ...]:
    """What people said of this pair."""
    if not label:
        return ()
    words = [
        f"{case.names[key]}: {f'video {label.winners[key]}' if label.winners[key] else 'tie'}"
        for key in (OVERALL, *DIMENSIONS)
        if key in label.winners
    ]
    name = h("p", "Row ", said(label.name), " of the table", class_="how")
    return (name, h("p", "People said: ", said("; ".join(words)), class_="lead"))


def _row(match: Match, names: Mapping[str, str], labels: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """A line of the list of pairs; what the script searches."""
    own = match.overall
    label = label_of(match, labels)
    one, two = (names.get(clip, clip[:12]) for clip in (match.first, match.second))
    return [
        to_json(one),
        to_json(two),
        to_json(match.prompt if len(match.prompt) <= _PROMPT else f"{match.prompt[:_PROMPT]}…"),
        _UNDECIDED if own and own.undecided else own.winner if own else None,
        *_better(own, (one, two)),
        _marks(match, label),
    ]


def _better(preference: Preference | None, names: tuple[str, str]) -> tuple[Any, str]:
    """Which is better, in words, and the probability of that, where the words do not give it."""
    if preference is None:
        return "No verdict", ""
    told = describe(preference, names)
    if not preference.winner:
        told = told[0].upper() + told[1:]
    odds = None if preference.undecided else preference.odds
    return to_json(told), percent(odds[preference.winner]) if odds else ""


def _marks(match: Match, label: Labels | None) -> list[str]:
    marks: list[str] = []
    own = match.overall
    if match.disagree:
        marks.append("orders disagree")
    if match.errors:
        marks.append("one order only" if own else "no verdict")
    if "recommended" in match.sources:
        marks.append("only recommended")
    if label and OVERALL in label.winners and own and not own.undecided:
        marks.append("as labelled" if label.winners[OVERALL] == own.winner else "not as labelled")
    return marks


def _finder(matches: list[Match], labels: Mapping[str, Mapping[str, Any]]) -> Element:
    """The list of pairs, which the script fills."""
    several = len({match.prompt for match in matches}) > 1
    marks: dict[str, int] = {}
    for match in matches:
        label = label_of(match, labels)
        for mark in _marks(match, label):
            marks[mark] = marks.get(mark, 0) + 1
    kinds = [("", "all"), ("1", "the first is better"), ("2", "the second is better"), ("0", "tie")]
    kinds.append((_UNDECIDED, _UNDECIDED))
    options = [h("option", name, value=value) for value, name in kinds]
    options += [h("option", f"{mark} ({count})", value=mark) for mark, count in marks.items()]
    head = h(
        "thead", h("tr", [h("th", name, scope="col") for name in ("Pair", *(("Prompt",) if several else ()), "Better")])
    )
    return h(
        "section",
        h("h2", "Every pair"),
        h("noscript", h("p", "The pairs are opened by this page's own script, which is switched off.")),
        h(
            "div",
            h(
                "div",
                h("label", "Find a name or a prompt", h("input", type="search", autocomplete="off")),
                h("label", "Show", h("select", options)),
                class_="finder",
            ),
            h("table", h("caption", "Pairs", class_="unseen"), head, h("tbody"), class_="pairs stacks"),
            h(
                "div",
                h("button", "Before", type="button"),
                h("button", "After", type="button"),
                h("span", data_status=True, role="status", class_="quiet"),
                class_="pager",
            ),
            data_finder="prompts" if several else "pairs",
            hidden=True,
        ),
        class_="all",
    )
