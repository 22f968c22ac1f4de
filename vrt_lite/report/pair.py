"""One judged pair as a page: the verdict first, both clips side by side, what the judge saw and wrote, and the rest
folded away. Knows how to say it; refuses to know where a case comes from and how a page is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import Preference, describe
from vrt_lite.report.case import Case, Footage
from vrt_lite.report.charts import odds_bar, percent, seconds
from vrt_lite.report.nodes import Element, Node, h, said
from vrt_lite.report.pictures import Album
from vrt_lite.report.rounds import SIDES, orders_of


@dataclass(frozen=True, slots=True)
class Setting:
    """What a pair is shown with: the pictures, each clip's address if it can be played, what stands above.

    `shared` are facts that are told elsewhere, for all pairs.
    """

    album: Album
    addresses: tuple[str, str] = ("", "")
    above: tuple[Node, ...] = ()
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])


def pair_page(case: Case, setting: Setting) -> Element:
    """All of a pair."""
    return h(
        "article",
        setting.above,
        _verdict(case),
        _warnings(case),
        _players(case, setting),
        orders_of(case, setting.album),
        _details(case, setting.shared),
        class_="pair",
    )


def address(clip: Path, page: Path) -> str:
    """A clip's address from a page: relative, so that a folder with both can be moved; a file URL on another drive."""
    try:
        relative = Path(os.path.relpath(clip.absolute(), page.absolute().parent)).as_posix()
    except ValueError:
        return clip.absolute().as_uri()
    # What a file system gives as bytes goes back as bytes. "./" keeps a name like "data:x" from being a scheme.
    return "./" + quote(os.fsencode(relative))


def _words(preference: Preference) -> str:
    """The choice, to begin a line with."""
    return describe(preference).capitalize()


def _verdict(case: Case) -> Element:
    overall = case.verdict.overall
    heading = headline(case)
    return h(
        "header",
        h("h1", heading, class_=SIDES[overall.winner], tabindex="-1"),
        _how(case),
        h("blockquote", said(case.prompt, dir="auto"), class_="prompt") if case.prompt else None,
        h("ul", [_name(number, clip) for number, clip in enumerate(case.clips, start=1)], class_="names"),
        _table(case),
        class_="verdict",
    )


def headline(case: Case) -> str:
    """The verdict in a few words."""
    overall = case.verdict.overall
    if overall.undecided:
        return _words(overall)
    words = f"Video {overall.winner} is better" if overall.winner else "A tie"
    return f"{words}, but the orders disagree" if OVERALL in case.disagreements else words


def _how(case: Case) -> Element:
    """How the verdict came about, in a line."""
    rounds = sum(len(order.turns) for order in case.orders)
    took = case.facts["timings"].get("total")
    parts = [
        said(str(case.facts["model"].get("name", "?"))),
        "both orders" if len(case.orders) == 2 else "one order" if case.orders else None,
        f"{rounds} round{'s' if rounds != 1 else ''}" if rounds else None,
        f"{took:.1f}\u00a0s" if took else None,
    ]
    spoken: list[Node] = []
    for part in parts:
        spoken += [*([" · "] if spoken and part else []), *([part] if part else [])]
    return h("p", "Judged by ", spoken, class_="how")


def _name(number: int, clip: Footage) -> Element:
    about = f"{clip.width}\u2009×\u2009{clip.height}".replace("\u2009", "\u00a0")
    return h(
        "li",
        h("span", f"Video {number}", class_=f"chip v{number}"),
        " ",
        said(clip.name, title=clip.path, class_="file"),
        " ",
        h("span", f"{seconds(clip.seconds)}, {about}", class_="quiet"),
    )


def _table(case: Case) -> Element:
    """The choice and the probabilities, overall and per dimension."""
    told = case.verdict.source != "identical"
    rows: list[Element] = []
    for key in (OVERALL, *DIMENSIONS):
        preference = case.verdict.preferences[key]
        side = "undecided" if preference.undecided else SIDES[preference.winner]
        disputed = key in case.disagreements
        odds = preference.odds if told else None
        shares = (odds[1], odds[0], odds[2]) if odds else (None, None, None)
        rows.append(
            h(
                "tr",
                h("th", said(case.names[key]), scope="row"),
                h(
                    "td",
                    h("span", _words(preference), class_=f"choice {side}"),
                    h("span", "orders disagree", class_="tag") if disputed else None,
                ),
                h("td", odds_bar(preference) if told else None, class_="bar"),
                [
                    h("td", "–" if share is None else percent(share), class_="number", data_name=name)
                    for share, name in zip(shares, ("Video 1", "Tie", "Video 2"), strict=True)
                ],
                class_="overall" if key == OVERALL else None,
            )
        )
    head = ("Dimension", "Better", "Probability", "Video 1", "Tie", "Video 2")
    return h(
        "table",
        h("caption", "The verdict, with the model's own probabilities", class_="unseen"),
        h("thead", h("tr", [h("th", name, scope="col") for name in head])),
        h("tbody", rows),
        class_="preferences",
    )


def _warnings(case: Case) -> Element | None:
    lines: list[Node] = [said(line, dir="auto") for line in case.warnings]
    if case.verdict.source == "recommended":
        lines.insert(0, "No final answer: this is what the judge last recommended.")
    if case.disagreements:
        names = ", ".join(case.names[key] for key in case.disagreements)
        lines.insert(0, h("span", "The two orders choose differently: ", said(names), "."))
    if not lines:
        return None
    return h(
        "section",
        h("h2", "To know", class_="unseen"),
        h("ul", [h("li", line) for line in lines]),
        class_="warnings",
        aria_label="Warnings",
    )


def _players(case: Case, setting: Setting) -> Element:
    return h(
        "section",
        h("h2", "Side by side"),
        h(
            "div",
            h(
                "div",
                [
                    _player(n, clip, at, _poster(case, n, setting.album))
                    for n, (clip, at) in enumerate(zip(case.clips, setting.addresses, strict=True), start=1)
                ],
                class_="screens",
            ),
            class_="players",
            role="group",
            aria_label="Both clips, played in step",
            data_players=any(setting.addresses),
        ),
        class_="watch",
    )


def _poster(case: Case, video: int, album: Album) -> str | None:
    """The place of the earliest picture that there is of a clip."""
    stills = (s for order in case.orders for turn in order.turns for s in turn.stills if s.video == video)
    first = min((still.source for still in stills), default=None)
    picture = None if first is None else album.find(case.clips[video - 1], first)
    return picture.id if picture else None


def _player(number: int, clip: Footage, at: str, poster: str | None) -> Element:
    label = h("figcaption", h("span", f"Video {number}", class_=f"chip v{number}"), " ", said(clip.name, class_="file"))
    if not at:
        words = f"cannot be played from here: it was not found where it was judged ({clip.path}), or has changed."
        return h("figure", h("p", said(clip.name), f" {words}", class_="absent"), label)
    video = h(
        "video",
        src=at,
        controls=True,
        muted=True,
        playsinline=True,
        preload="metadata",
        width=clip.width,
        height=clip.height,
        aria_label=f"Video {number}: {clip.name}",
        data_seconds=f"{clip.seconds:.6f}",
        data_fps=f"{clip.fps:.6f}",
        data_video=number,
        data_poster=poster,
    )
    return h("figure", video, label)


def _details(case: Case, shared: Mapping[str, Any]) -> Element:
    clips = {
        f"Video {number}": {
            "path": clip.path,
            "sha256": clip.sha256,
            "size": f"{clip.size_bytes:,} bytes",
            "frames": f"{clip.frames} at {clip.fps:.3f} a second",
            "shown to the model at": f"{clip.shown[0]} × {clip.shown[1]}",
            "warnings": "; ".join(clip.warnings) or "none",
        }
        for number, clip in enumerate(case.clips, start=1)
    }
    timings = {name: f"{value:.3f} s" for name, value in case.facts["timings"].items()}
    settings, model = common_facts(case, shared)
    parts = (
        _fold("Clips", clips),
        settings,
        _fold("Timings", timings),
        _fold("Counters", case.facts["counters"]),
        model,
    )
    return h("section", h("h2", "Details"), parts, class_="details")


def common_facts(case: Case, shared: Mapping[str, Any] | None = None) -> list[Element | None]:
    """Settings and model, which all pairs of a run mostly share; None for what is `shared`."""
    model = {"model": case.facts["model"], "profile": case.facts["profile"]}
    told = shared or {}
    return [
        None if told.get("settings") == case.facts["settings"] else _fold("Settings", case.facts["settings"]),
        None if {key: told.get(key) for key in model} == model else _fold("Model", model),
    ]


def _fold(title: str, values: Mapping[str, Any]) -> Element:
    rows = [h("tr", h("th", said(name), scope="row"), h("td", said(value))) for name, value in _lines(values)]
    return h("details", h("summary", title), h("table", h("tbody", rows), class_="facts"))


def _lines(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, dict):
            found += _lines(cast("dict[str, Any]", value), f"{label}, ")
        else:
            words = {None: "by default", True: "yes", False: "no"}
            plain = words[value] if value is None or isinstance(value, bool) else str(value)
            found.append((label, plain))
    return found
