"""The judge at work and its verdict in plain lines, for pipes and logs: no control codes, no rich.

Owns the words that the live view and the panel share. Frames are numbered 1..N within their video, as the judge
counts them, and always by the videos as given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, assert_never

from vrt_lite.display.escape import safe
from vrt_lite.interfaces import Encoding, Event, Loading, Prefill, RoundBegan, RoundEnded, Waiting, Wrote
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.tags import DIMENSIONS, OVERALL
from vrt_lite.protocol.verdict import Preference, describe

if TYPE_CHECKING:
    from vrt_lite.judgement import Judgement

_CONFIDENCE = ("low", "medium", "high", "very high", "confirmed")
_OUTCOMES = {
    "final": "final answer",
    "tool": "asked for frames",
    "correction": "the reply could not be used",
}


class PlainView:
    """The judge at work in plain lines: one a stage, no control codes, nothing if `quiet`."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, verbose: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._verbose = verbose
        self._text = ""

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exc: object) -> None:
        self._write("\n")

    def observe(self, event: Event) -> None:
        """Print a line if a stage begins or ends."""
        match event:
            case Loading(what):
                self._say(f"loading {what}")
            case Waiting(what, attempt):
                self._say(name_wait(what, attempt))
            case RoundBegan(order, number, frames):
                self._say(f"{name_round(order, number)}: {name_frames(order, frames, '; ')}")
            case Encoding(0, total):
                self._say(f"encoding {total} frame group(s)")
            case Prefill(0, total):
                self._say(f"reading {total} token(s)")
            case Wrote(text):
                self._write(text)
            case RoundEnded(order, number, outcome):
                self._write("\n")
                self._say(f"{name_round(order, number)}: {_OUTCOMES.get(outcome, outcome)}")
            case Encoding() | Prefill():
                pass
            case _:
                assert_never(event)

    def _write(self, text: str) -> None:
        """Say the lines of the judge's text as they are complete."""
        if self._verbose:
            *lines, self._text = (self._text + text).split("\n")
            for line in lines:
                if line.strip():
                    self._say(f"  {line}")

    def _say(self, line: str) -> None:
        if not self._quiet:
            say_line(line, self._stream)


def say_line(line: str, stream: TextIO) -> None:
    """A line of progress. A reader of it who left must not cost the verdict."""
    with contextlib.suppress(OSError):
        stream.write(f"{safe(line, encoding=stream.encoding or 'utf-8')}\n")
        stream.flush()


def verdict_lines(judgement: Judgement, *, encoding: str = "utf-8") -> list[str]:
    """The verdict in plain lines, each "key: value"; the first is the overall one."""
    verdict = judgement.verdict
    name = f" ({name_clips(judgement)[judgement.winner - 1]})" if judgement.winner else ""
    overall = f"{describe(verdict.overall)}{name}{_share(verdict.overall)}"
    lines = [f"overall: {overall} [{verdict.source}]"]
    for key in DIMENSIONS:
        lines.append(f"{key}: {describe(verdict.preferences[key])}{_share(verdict.preferences[key])}")
    if judgement.disagreements:
        lines.append(f"orders disagree: {', '.join(judgement.disagreements)}")
    lines.append(f"rounds: {' + '.join(str(len(order.rounds)) for order in judgement.orders) or 0}")
    lines.append(f"frames: {count_frames(judgement)}")
    lines.append(f"seconds: {judgement.total_seconds:.2f}")
    if verdict.source == "recommended":
        lines.append(f"warning: {say_recommended(judgement)}")
    lines += [f"warning: {warning}" for warning in judgement.warnings]
    return [safe(line, encoding=encoding) for line in lines]


def name_wait(what: str, attempt: int) -> str:
    """What is waited for, and which try is next."""
    return f"waiting for {what}, attempt {attempt}"


def name_round(order: int, number: int) -> str:
    """A round as a person is told of it."""
    return f"round {number}, clips exchanged" if order else f"round {number}"


def name_frames(order: int, frames: Sequence[FrameRef], separator: str) -> str:
    """Frames by video as given: in an exchanged order the judge's first is video 2."""
    shown = {clip: [str(f.index + 1) for f in frames if f.clip ^ order == clip] for clip in (0, 1)}
    videos = [f"video {clip + 1}: {', '.join(found)}" for clip, found in shown.items() if found]
    return separator.join(videos) or "no new frames"


def _share(preference: Preference) -> str:
    """The probability of what was chosen; the words for what is undecided give it already."""
    return f" {preference.odds[preference.winner]:.2f}" if preference.odds and not preference.undecided else ""


def name_clips(judgement: Judgement) -> tuple[str, str]:
    """The clips' file names, or their paths where the names are alike."""
    one, two = (clip.info.path for clip in judgement.clips)
    return (one.name, two.name) if one.name != two.name else (str(one), str(two))


def name_dimension(judgement: Judgement, key: str) -> str:
    """A dimension as the judge was told of it."""
    return "Overall" if key == OVERALL else str(judgement.settings["dimensions"][key]["name"])


def count_frames(judgement: Judgement) -> int:
    """How many different frames the judge was shown."""
    return len({order.given(f) for order in judgement.orders for r in order.rounds for f in r.shown})


def say_recommended(judgement: Judgement) -> str:
    """What a verdict is worth that the judge did not end on."""
    confidence = judgement.verdict.confidence
    words = f", with confidence {confidence} of 5 ({_CONFIDENCE[confidence - 1]})" if confidence else ""
    return f"Only a recommendation{words}: the judge never gave a final answer."
