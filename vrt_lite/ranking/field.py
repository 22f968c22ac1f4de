"""Who takes part: files become contestants, each content once, and what cannot take part is listed with its reason.

Knows how clips are told apart and named. Refuses to know what is asked about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.ranking.contest import Contest, Contestant
from vrt_lite.ranking.entries import Group

MOST_CLIPS = 2_000
"""In one group. The table of all pairs is held in memory; there are two million."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A clip that takes no part, or not twice: `reason` is a line."""

    path: Path
    group: str
    reason: str
    broken: bool
    """Whether something is wrong with it; a clip that is there twice is only noted."""


@dataclass(frozen=True, slots=True)
class Field:
    """The contests, none with fewer than two clips, and what is left out of them."""

    contests: tuple[Contest, ...]
    left_out: tuple[LeftOut, ...]


def gather(groups: Sequence[Group], *, digest: Callable[[Path], str]) -> Field:
    """Contestants by content: the same file twice in a group takes part once. `digest` gives a file's sha256.

    UsageError for a group that is too large.
    """
    contests: list[Contest] = []
    left_out: list[LeftOut] = []
    for group in groups:
        found: dict[str, Path] = {}
        for path in group.clips:
            try:
                sha256 = digest(path)
            except (VideoError, OSError) as error:
                left_out.append(LeftOut(path, group.name, _reason(path, error), broken=True))
                continue
            if sha256 in found:
                reason = f"the same content as {str(found[sha256])!r}"
                left_out.append(LeftOut(path, group.name, reason, broken=False))
            else:
                found[sha256] = path
        if len(found) > MOST_CLIPS:
            raise UsageError(f"A group has {len(found)} clips; at most {MOST_CLIPS} are ranked. Divide it into groups.")
        contests.append(_contest(group, found))
    return Field(tuple(contests), tuple(left_out))


def without_broken(field: Field, *, opens: Callable[[Path], None], known: Mapping[str, object]) -> Field:
    """The field less the clips that cannot be opened, and less the groups of which then fewer than two are left.

    `known` are the contents of which it is known that they can be opened; `opens` raises VideoError.
    UsageError or VideoError if no group is left.
    """
    unknown = {c.sha256: c.path for contest in field.contests for c in contest.clips if c.sha256 not in known}

    def broken(path: Path) -> str:
        try:
            opens(path)
        except VideoError as error:
            return _reason(path, error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        reasons = dict(zip(unknown, pool.map(broken, unknown.values()), strict=True))
    contests: list[Contest] = []
    left_out = list(field.left_out)
    for contest in field.contests:
        usable = tuple(clip for clip in contest.clips if not reasons.get(clip.sha256))
        for clip in contest.clips:
            if reason := reasons.get(clip.sha256):
                left_out.append(LeftOut(clip.path, contest.name, reason, broken=True))
        if len(usable) > 1:
            contests.append(replace(contest, clips=usable))
        else:
            reason = "the only clip of its group that can be used"
            left_out += [LeftOut(clip.path, contest.name, reason, broken=False) for clip in usable]
    left = Field(tuple(contests), tuple(left_out))
    if not contests:
        raise _too_few(left)
    return left


def _too_few(field: Field) -> UsageError | VideoError:
    broken = [out for out in field.left_out if out.broken]
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return VideoError(
            f"Two clips that can be used are needed; left out: {str(broken[0].path)!r} {broken[0].reason}{more}."
        )
    return UsageError("Two different clips are needed to rank. Name more files, or a folder that has them.")


def _contest(group: Group, found: Mapping[str, Path]) -> Contest:
    names = _names(list(found.values()))
    clips = tuple(Contestant(names[path], path, sha256) for sha256, path in found.items())
    return Contest(group.name, group.prompt, clips)


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A clip's file name; with its folder, or its whole path, where names are alike."""
    for length in (1, 2, 3):
        names = {path: "/".join(path.parts[-length:]) for path in paths}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(path) for path in paths}


def _reason(path: Path, error: Exception) -> str:
    """What is wrong, without the path that it begins with."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error).removeprefix(repr(str(path))).strip()
