"""One judged pair as a page: the verdict first, both clips side by side, what the judge saw and wrote, and details.

Prepares what `templates/pair_article.html` shows beside the record itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

from vrt_lite.clip_files import PICTURE_SUFFIXES
from vrt_lite.protocol.messages import DIMENSIONS, OVERALL, Choice
from vrt_lite.protocol.verdict import MIRROR
from vrt_lite.records.judgement import JudgedClip, JudgedOrder, JudgedRound, Judgement
from vrt_lite.show.measure_rows import describe_measured, list_measure_rows
from vrt_lite.show.pages.frame_album import EmbeddedFrame, FrameAlbum
from vrt_lite.show.words import (
    describe_disagreements,
    describe_preference,
    describe_recommendation,
    format_moment,
    name_dimension,
    shown_odds,
    write_headline,
)
from vrt_lite.withholding import withhold_alignment

Folds = list[tuple[str, list[tuple[str, str]]]]
"""Tables that are folded away: the title, and rows of a name and a value."""


@dataclass(frozen=True, slots=True)
class _StripFrame:
    """A frame in a strip. `number` is the judge's: it counts through both videos, in the order shown."""

    seconds: float
    number: int
    picture: EmbeddedFrame | None


@dataclass(frozen=True, slots=True)
class _Strip:
    """The frames of one clip that a round showed; `missing` is why there are no pictures of them."""

    video: int
    frames: tuple[_StripFrame, ...]
    missing: str


@dataclass(frozen=True, slots=True)
class _ShownRound:
    """A round with its frames. `granted` are the frames that its call brought, in words.

    `choices` are what it answered or leaned to, by key, in terms of the videos as given; empty without either. The
    texts are quoted without what they say of a dimension that was not judged.
    """

    round: JudgedRound
    snapshot: str
    thought: str
    text: str
    strips: tuple[_Strip, ...]
    granted: str
    choices: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PairLabel:
    """What people said of a pair: its name in their table, and winners by key in the order of the page."""

    name: str
    winners: Mapping[str, int]


def prepare_pair(
    judgement: Judgement,
    album: FrameAlbum,
    addresses: tuple[str, str],
    *,
    notes: tuple[str, str] = ("", ""),
    label: PairLabel | None = None,
    elsewhere: Folds | None = None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Prepare everything that the template shows of a pair. A clip without an address cannot be played.

    An address "#id" is that of an element of the page that has the clip. `notes` say what is played, or why nothing is.
    Details that are shown `elsewhere` are left out. `warnings` are shown beside those of the judgement.
    """
    names = {key: name_dimension(judgement, key) for key in (OVERALL, *DIMENSIONS)}
    lines = [
        describe_disagreements([name for key, name in names.items() if key in judgement.disagreements]),
        describe_recommendation(judgement.verdict),
        *judgement.warnings,
        *warnings,
    ]
    return {
        "judgement": judgement,
        "headline": write_title(judgement),
        "names": names,
        "choices": {key: describe_preference(judgement, key) for key in names},
        "odds": {key: shown_odds(judgement.verdict, key) for key in names},
        "warnings": [line for line in lines if line],
        "measures": list_measure_rows(judgement.measures),
        "measured": describe_measured(judgement),
        "reads_report": any(each.report for order in judgement.orders for each in order.rounds),
        "label": label and {"name": label.name, "words": _describe_label(label, names)},
        "addresses": addresses,
        "forms": [_find_form(clip, address) for clip, address in zip(judgement.inputs, addresses, strict=True)],
        "notes": notes,
        "posters": [_find_poster(judgement, video, album) for video in (1, 2)],
        "orders": [
            (order, [_prepare_round(judgement, order, i, album) for i in range(len(order.rounds))])
            for order in judgement.orders
        ],
        "folds": _list_details(judgement, elsewhere or []),
    }


def write_title(judgement: Judgement) -> str:
    """Say the verdict in a few words."""
    words = write_headline(judgement.verdict)
    differ = OVERALL in judgement.disagreements and not judgement.verdict.overall.undecided
    return f"{words}, but the orders disagree" if differ else words


def _find_form(clip: JudgedClip, address: str) -> Literal["video", "animation", "pictures"]:
    """Find what shows a clip in a page: a player, an image, or nothing. A copy is a video, in the page or as an MP4."""
    if address.startswith(("#", "data:")) or address.endswith(".mp4"):
        return "video"
    suffix = Path(clip.name.rpartition("@")[0] or clip.name).suffix.lower()
    if "%" in clip.name and suffix in PICTURE_SUFFIXES:
        return "pictures"
    return "animation" if suffix in (".gif", ".webp") else "video"


def make_address(clip: Path, page: Path) -> str:
    """Make a clip's address from a page: relative, so that both can be moved; a file URL if it is on another drive."""
    try:
        relative = Path(os.path.relpath(clip.absolute(), page.absolute().parent)).as_posix()
    except ValueError:
        return clip.absolute().as_uri()
    # What a file system gives as bytes goes back as bytes. "./" keeps a name like "data:x" from being a scheme.
    return "./" + quote(os.fsencode(relative))


def list_common_details(judgement: Judgement) -> Folds:
    """List settings and model, which the pairs of a run mostly share."""
    plain = judgement.to_json()
    model = {name: plain[name] for name in ("model", "profile")}
    return [("Settings", _flatten(plain["settings"])), ("Model", _flatten(model))]


def _list_details(judgement: Judgement, elsewhere: Folds) -> Folds:
    clips = {f"Video {number}": _describe_clip(clip) for number, clip in enumerate(judgement.inputs, start=1)}
    plain = judgement.to_json()
    timings = {name: f"{seconds:.3f} s" for name, seconds in plain["timings"].items()}
    settings, model = list_common_details(judgement)
    own: Folds = [("Timings", _flatten(timings)), ("Counters", _flatten(plain["counters"]))]
    return [fold for fold in (("Clips", _flatten(clips)), settings, *own, model) if fold not in elsewhere]


def _describe_clip(clip: JudgedClip) -> dict[str, str]:
    return {
        "path": clip.path,
        "sha256": clip.sha256,
        "size": f"{clip.size_bytes:,} bytes",
        "frames": f"{clip.frames} at {clip.fps:.3f} a second",
        "shown to the model at": f"{clip.shown_size[0]} × {clip.shown_size[1]}",
        "warnings": "; ".join(clip.warnings) or "none",
    }


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Turn nested values into rows of a name and a text."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, dict):
            rows += _flatten(cast("dict[str, Any]", value), f"{label}, ")
        else:
            words = {None: "by default", True: "yes", False: "no"}
            rows.append((label, words[value] if value is None or isinstance(value, bool) else str(value)))
    return rows


def _describe_label(label: PairLabel, names: Mapping[str, str]) -> str:
    winners = {names[key]: label.winners[key] for key in names if key in label.winners}
    return "; ".join(f"{name}: {f'video {winner}' if winner else 'tie'}" for name, winner in winners.items())


def _find_poster(judgement: Judgement, video: int, album: FrameAlbum) -> EmbeddedFrame | None:
    """Find the picture of the earliest frame that was shown of a clip."""
    frames = (frame for order in judgement.orders for r in order.rounds for frame in r.frames if frame.video == video)
    first = min((frame.source_frame for frame in frames), default=None)
    return None if first is None else album.find(judgement.inputs[video - 1], first)


def _prepare_round(judgement: Judgement, order: JudgedOrder, index: int, album: FrameAlbum) -> _ShownRound:
    this = order.rounds[index]
    choices = this.answer or (this.recommendation.choices if this.recommendation else {})
    written = cast("Mapping[str, Choice | None]", choices)
    quote = withhold_alignment if "TA" in judgement.verdict.not_judged else str
    granted = order.rounds[index + 1] if this.outcome == "tool" and index + 1 < len(order.rounds) else None
    strips = (_prepare_strip(judgement, order, this, video, album) for video in (order.first, 3 - order.first))
    return _ShownRound(
        this,
        quote(this.snapshot),
        quote(this.thought),
        quote(this.text),
        tuple(strip for strip in strips if strip.frames),
        _describe_granted(granted) if granted else "",
        {key: MIRROR[of] if order.first == 2 else of for key, of in written.items() if of is not None},
    )


def _prepare_strip(
    judgement: Judgement, order: JudgedOrder, this: JudgedRound, video: int, album: FrameAlbum
) -> _Strip:
    clip = judgement.inputs[video - 1]
    before = 0 if video == order.first else judgement.settings.workspace
    frames = tuple(
        _StripFrame(frame.seconds, before + frame.index + 1, album.show(clip, frame.source_frame))
        for frame in this.frames
        if frame.video == video
    )
    return _Strip(video, frames, album.explain(clip))


def _describe_granted(following: JudgedRound) -> str:
    """Say which frames a call brought into the round after it."""
    count = len(following.frames)
    parts: list[str] = []
    for video in (1, 2):
        moments = ", ".join(format_moment(frame.seconds) for frame in following.frames if frame.video == video)
        parts += [f"video {video} at {moments}"] if moments else []
    return f"{count} frame{'s' if count != 1 else ''}: {'; '.join(parts)}."
