"""One judged pair as the viewer draws it: its record, what is said of it in words, and where its clips are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vrt_lite.clip_files import PICTURE_SUFFIXES
from vrt_lite.protocol.messages import OVERALL
from vrt_lite.records.judgement import JudgedClip, Judgement
from vrt_lite.show import pair_words
from vrt_lite.show.pair_words import list_preferences, write_headline
from vrt_lite.show.words import capitalize_first, percent
from vrt_lite.viewer.page_file import make_table
from vrt_lite.withholding import withhold_alignment

_QUOTED = ("text", "snapshot", "thought")
"""Fields of a round that quote the judge."""


@dataclass(frozen=True, slots=True)
class PairLabel:
    """What people said of a pair: its name in their table, and winners by key in the order of the page."""

    name: str
    winners: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClipPlace:
    """Where a page has a clip: the film's address, or "#id" of what is in the page; empty if it cannot be played.

    `frames` are ids of pictures by frame, or the beginning of their addresses; `missing` is why there are none.
    `note` says what is played, or why nothing is. `middle` is the frame that stands for the clip.
    """

    address: str
    form: str
    frames: Mapping[int, str] | str
    note: str = ""
    missing: str = ""
    middle: int | str = "middle"


def prepare_pair(
    judgement: Judgement, *, label: PairLabel | None = None, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Prepare a pair as plain data. `warnings` are shown beside those of the judgement.

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
    return {"judgement": record, "words": words, "label": label and asdict(label)}


def write_title(judgement: Judgement) -> str:
    """Say the verdict in a few words."""
    words = write_headline(judgement.verdict)
    differ = OVERALL in judgement.disagreements and not judgement.verdict.overall.undecided
    return f"{words}, but the orders disagree" if differ else words


def make_pair_table(judgement: Judgement) -> str:
    """Make the table of a verdict for a browser without scripts."""
    rows: list[list[str]] = []
    for of in list_preferences(judgement):
        shares = [percent(of.odds[winner]) for winner in (1, 0, 2)] if of.odds else ["–"] * 3
        rows.append([of.name, capitalize_first(of.words), *shares])
    one, two = (clip.name for clip in judgement.inputs)
    caption = f"{write_title(judgement)}. Video 1: {one}. Video 2: {two}."
    return make_table(caption, ("Dimension", "Better", "Video 1", "Tie", "Video 2"), rows)


@dataclass(frozen=True, slots=True)
class ShownClip:
    """A clip, and which of its frames were shown: in first rounds, and because the judge asked for them."""

    clip: JudgedClip
    first: set[int] = field(default_factory=set[int])
    called: set[int] = field(default_factory=set[int])

    @property
    def middle(self) -> int:
        """The frame that stands for the clip."""
        return sorted(self.first or {0})[len(self.first) // 2]


def list_shown(judgements: Iterable[Judgement]) -> dict[str, ShownClip]:
    """List the clips of judgements, by their sha256."""
    found: dict[str, ShownClip] = {}
    for judgement in judgements:
        clips = [found.setdefault(clip.sha256, ShownClip(clip)) for clip in judgement.inputs]
        for this in (of for order in judgement.orders for of in order.rounds):
            for frame in this.frames:
                clip = clips[frame.video - 1]
                (clip.first if this.number == 1 else clip.called).add(frame.source_frame)
    return found


def place_served(address: str) -> dict[str, Any]:
    """Say where a server's page has a clip: what cannot be played by a browser has the address of a copy."""
    frames = f"{address.removesuffix('.mp4')}/frames/" if address else dict[int, str]()
    missing = "" if address else "it is no longer where it was judged, has changed, or is in no allowed folder"
    return asdict(ClipPlace(address, "video", frames, missing, missing))


def find_form(clip: JudgedClip, address: str) -> str:
    """Find what shows a clip in a page: a "video", an "animation", or "pictures", which cannot be played."""
    if address.startswith("#") or address.endswith(".mp4"):
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
