"""Pairs of clips with their caption, from the command line or from a CSV or JSONL file.

A path must name a file. Whether it is a video is found out later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.clip_files import is_clip_there
from vrt_lite.errors import UsageError
from vrt_lite.tables import TABLE_SUFFIXES, read_whole_table

_NEEDED = ("a", "b", "caption")


@dataclass(frozen=True, slots=True)
class ClipPair:
    """Two clips made from one caption; "" for none."""

    a: Path
    b: Path
    caption: str = ""


_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXAMPLE = ClipPair(_EXAMPLES / "a.mp4", _EXAMPLES / "b.mp4", "A red square moving right.")
"""The pair that comes with a checkout."""


def collect_pairs(
    clips: Sequence[tuple[Path, Path]], captions: Sequence[str] = (), *, file: Path | None = None
) -> tuple[ClipPair, ...]:
    """Collect the pairs of the command line (with captions for all or none), and then those of `file`.

    UsageError for another number of captions, a clip that is no file, and what `read_pairs` refuses.
    """
    if captions and len(captions) != len(clips):
        raise UsageError(
            f"--caption is given {len(captions)} times and --clips {len(clips)} times: give one caption for every "
            "pair of clips, or none at all."
        )
    named = [ClipPair(a, b, caption) for (a, b), caption in zip(clips, captions or [""] * len(clips), strict=True)]
    for pair in named:
        _check(pair, "--clips")
    return (*named, *(read_pairs(file) if file else ()))


def read_pairs(path: Path) -> tuple[ClipPair, ...]:
    """Read the pairs of a CSV file with a header, or of a JSONL file with one object a line: a, b, caption.

    Other columns and keys are passed over. A relative path is meant from the file's own folder. UsageError, naming
    file and line, for anything that is no pair, and for a file without one.
    """
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise UsageError(f"{path} is no list of pairs: its name must end in {', '.join(sorted(TABLE_SUFFIXES))}.")
    found: list[ClipPair] = []
    for where, row in read_whole_table(path, columns=_NEEDED):
        values = [row.get(key) for key in _NEEDED]
        if not all(isinstance(value, str) for value in values) or not (values[0] and values[1]):
            raise UsageError(f"{where} must give a, b and caption as text, a and b not empty.")
        a, b, caption = map(str, values)
        found.append(ClipPair(path.parent / a, path.parent / b, caption))
        _check(found[-1], where)
    if not found:
        raise UsageError(f"{path} holds no pair: needs at least one line with a, b and caption.")
    return tuple(found)


def _check(pair: ClipPair, where: str) -> None:
    for clip in (pair.a, pair.b):
        if not is_clip_there(clip):
            raise UsageError(f"{where} names {clip}, which is no file.")
