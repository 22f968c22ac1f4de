"""What the judge saw and wrote, round by round, in each order. Knows how a round is told; refuses to know files."""

from __future__ import annotations

import json
from typing import Any

from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.report.case import Case, Order, Still, Turn
from vrt_lite.report.charts import moments, seconds
from vrt_lite.report.nodes import Element, Node, h, said
from vrt_lite.report.pictures import Album, Picture

_BLANK = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
SIDES = ("tie", "one", "two")
_OUTCOMES = {"final": "gave its verdict", "tool": "asked for frames", "correction": "was corrected"}


def orders_of(case: Case, album: Album) -> Element:
    """Every order of a case."""
    content: list[Node] = [h("h2", "What the judge saw")]
    if not case.orders:
        content.append(h("p", "Nothing: both clips are the same file, and no model ran."))
    for order in case.orders:
        content.append(_order(case, order, album))
    return h("section", content, class_="seen")


def _order(case: Case, order: Order, album: Album) -> Element:
    both = len(case.orders) > 1 or order.first == 2
    note = "Exchanged: in what the judge writes here, “Video 1” is video 2, and “Video 2” is video 1."
    heading = h("h3", f"With video {order.first} shown first", class_=None if both else "unseen")
    return h(
        "section",
        heading,
        h("p", note, class_="quiet") if order.first == 2 else None,
        [_timeline(case, order, video) for video in (1, 2)],
        h("ol", [_turn(case, order, i, album) for i in range(len(order.turns))], class_="rounds"),
        class_="order",
    )


def _timeline(case: Case, order: Order, video: int) -> Element:
    """Which moments of a clip each round showed."""
    clip = case.clips[video - 1]
    rows: list[Element] = []
    for turn in order.turns:
        at = [still.seconds for still in turn.stills if still.video == video]
        if not at:
            continue
        told = ", ".join(seconds(moment) for moment in at)
        label = f"Video {video}, frames shown in round {turn.number}, at {told} of {seconds(clip.seconds)}"
        rows += [
            h("span", f"Round {turn.number}", class_="quiet"),
            moments(at, max(clip.seconds, *at), label=label, video=video),
        ]
    axis = h("p", h("span", "0"), h("span", seconds(clip.seconds)), class_="axis", aria_hidden="true")
    return h(
        "div",
        h("p", h("span", f"Video {video}", class_=f"chip v{video}"), " ", said(clip.name, class_="file")),
        h("div", rows, h("span"), axis, class_="rows"),
        class_="timeline",
    )


def _turn(case: Case, order: Order, index: int, album: Album) -> Element:
    turn = order.turns[index]
    asked = order.turns[index - 1].outcome == "tool" if index else False
    shown = "The frames that it asked for" if asked else "The first frames" if not index else "Shown again"
    stopped = {"limit": "The reply was cut off at its limit.", "loop": "The reply ran in a loop, and was ended."}
    return h(
        "li",
        h("h4", f"Round {turn.number}", h("span", _OUTCOMES[turn.outcome], class_=f"outcome {turn.outcome}")),
        [_strip(case, order, turn, video, shown, album) for video in (order.first, 3 - order.first)],
        h(
            "div",
            _words("Saw", turn.snapshot),
            _words("Thought", turn.thought),
            _call(case, order, index),
            _answer(turn, order.first),
            _words("Was told", turn.correction and f"The reply could not be used: {turn.correction}."),
            h("p", stopped[turn.stop], class_="absent") if turn.stop in stopped else None,
            class_="words",
        ),
        h(
            "details",
            h("summary", "The reply, as it was written"),
            h("pre", said(turn.text), dir="auto", tabindex="0", role="region", aria_label="The reply"),
            h("p", f"{turn.tokens[0]} tokens read, {turn.tokens[1]} written", class_="quiet"),
        ),
        class_="round",
    )


def _strip(case: Case, order: Order, turn: Turn, video: int, shown: str, album: Album) -> Element | None:
    """The frames of one clip that a round showed."""
    stills = [still for still in turn.stills if still.video == video]
    if not stills:
        return None
    clip = case.clips[video - 1]
    figures = [_still(case, order, still, album) for still in stills]
    return h(
        "div",
        h("p", h("span", f"Video {video}", class_=f"chip v{video}"), " ", shown, class_="quiet"),
        h("p", f"Frames not shown: {album.why(clip)}.", class_="absent") if not any(figures) else None,
        h("ul", figures, class_="strip")
        if any(figures)
        else h("ul", [h("li", seconds(still.seconds)) for still in stills], class_="moments-only"),
    )


def _still(case: Case, order: Order, still: Still, album: Album) -> Element | None:
    clip = case.clips[still.video - 1]
    picture = album.find(clip, still.source)
    if not picture:
        return None
    number = judges_number(case, order, still)
    image = image_of(picture, f"Video {still.video} at {seconds(still.seconds)}, the judge's frame {number}", album)
    return h(
        "li",
        h(
            "figure",
            image,
            h(
                "figcaption",
                h("span", seconds(still.seconds), class_="moment", data_seek=f"{still.seconds:.6f}"),
                h("span", f"frame {number}", class_="quiet"),
            ),
        ),
    )


def image_of(picture: Picture, alt: str, album: Album) -> Element:
    """A picture: itself in its first place, and everywhere else a note for the script where that is."""
    size: dict[str, Any] = {"width": picture.width, "height": picture.height}
    if album.place(picture):
        return h("img", id=picture.id, src=picture.uri, alt=alt, **size)
    return h("img", src=_BLANK, data_frame=picture.id, alt=alt, **size)


def judges_number(case: Case, order: Order, still: Still) -> int:
    """A frame's number as the judge counts: through both videos, in the order shown."""
    return still.index + 1 + (0 if still.video == order.first else case.workspace)


def _words(title: str, text: str | None) -> Element | None:
    if not text:
        return None
    return h("div", h("h5", title), h("p", said(text), dir="auto", class_="text"))


def _call(case: Case, order: Order, index: int) -> Element | None:
    """What was asked for: in our words if it was granted, and in the judge's own."""
    turn = order.turns[index]
    if turn.call is None:
        return None
    told: Node | None = None
    if turn.outcome == "tool" and index + 1 < len(order.turns):
        granted = order.turns[index + 1].stills
        parts: list[str] = []
        for video in (1, 2):
            at = ", ".join(seconds(still.seconds) for still in granted if still.video == video)
            parts += [f"video {video} at {at}"] if at else []
        told = h("p", f"{len(granted)} frame{'s' if len(granted) != 1 else ''}: {'; '.join(parts)}.")
    return h("div", h("h5", "Asked for"), told, h("p", h("code", said(_tidy(turn.call)), class_="call")))


def _tidy(call: str) -> str:
    try:
        return json.dumps(json.loads(call), ensure_ascii=False)
    except (ValueError, RecursionError):
        return call.strip()


def _answer(turn: Turn, first: int) -> Element | None:
    choices = turn.answer or turn.recommended
    if choices is None:
        return None
    sure = f", with confidence {turn.confidence} of 5" if turn.confidence else ""
    title = "Answered" if turn.answer else f"Leaned to{sure}"
    marks = [_mark(key, choices[key], first) for key in (OVERALL, *DIMENSIONS)]
    return h("div", h("h5", title), h("ul", marks, class_="marks"))


def _mark(key: str, choice: int, first: int) -> Element:
    """A choice as it was written, in terms of the videos as given."""
    ours = choice if first == 1 or not choice else 3 - choice
    words = f"Video {ours}" if ours else "Tie"
    return h("li", h("span", key, class_="quiet"), " ", h("span", words, class_=f"choice {SIDES[ours]}"))
