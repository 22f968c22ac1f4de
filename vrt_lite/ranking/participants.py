"""Finds the clips that take part in a ranking: each content once. The others are listed with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.interfaces import Observe, Working
from vrt_lite.measures.flags import Flag, describe_flags, find_flags
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.ranking.entries import Group
from vrt_lite.records.ladders import ExcludedClip, RankedClip
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.api import Judge

MOST_CLIPS = 2_000
"""The limit for one group: the table of all pairs, two million, is held in memory."""
_Flags = tuple[Flag, ...]


def gather_clips(groups: Sequence[Group], digest: Callable[[Path], str]) -> tuple[list[ClipGroup], list[ExcludedClip]]:
    """Gather the clips of groups by content: a file that is given twice takes part once; the rest is left out.

    `digest` gives a file's sha256. UsageError for a group that is too large.
    """
    gathered: list[ClipGroup] = []
    left_out: list[ExcludedClip] = []
    for group in groups:
        found: dict[str, Path] = {}
        for path in group.clips:
            try:
                same = found.setdefault(digest(path), path)
            except VideoError as error:
                left_out.append(ExcludedClip(path, group.name, error.reason, broken=True))
                continue
            if same is not path:
                left_out.append(ExcludedClip(path, group.name, f"the same content as {str(same)!r}", broken=False))
        if len(found) > MOST_CLIPS:
            raise UsageError(f"A group has {len(found)} clips; at most {MOST_CLIPS} are ranked. Divide it into groups.")
        names = _name_clips(found.values())
        clips = tuple(RankedClip(names[path], path, sha256) for sha256, path in found.items())
        gathered.append(ClipGroup(group.name, group.prompt, clips))
    return gathered, left_out


def look_at_clips(clips: Mapping[str, Path], judge: Judge, observe: Observe) -> dict[str, _Flags | VideoError]:
    """Open and measure each clip; return its flags, or why it cannot be opened."""

    def look(path: Path) -> _Flags | VideoError:
        try:
            judge.look_at(path)
        except VideoError as error:
            return error
        with contextlib.suppress(VideoError):  # a judgement of it will say so
            return find_flags(judge.measure(path))
        return ()

    if not clips:
        return {}
    observe(Working("measuring the clips"))
    with ThreadPool(2) as pool:
        return dict(zip(clips, pool.map(look, clips.values()), strict=True))


def choose_clips(
    gathered: Iterable[ClipGroup],
    left_out: list[ExcludedClip],
    looks: Mapping[str, _Flags | VideoError],
    *,
    exclude_flagged: bool,
    least: int,
) -> tuple[tuple[ClipGroup, ...], tuple[ExcludedClip, ...]]:
    """Choose the clips that are ranked; returns their groups, and the clips that are left out.

    Clips that cannot be opened are left out, with `exclude_flagged` also those with flags, and then groups of fewer
    than `least` clips. `left_out` are those that are left out already. UsageError or VideoError if no group is left.
    """
    groups: list[ClipGroup] = []
    left_out = [*left_out]
    for group in gathered:
        usable: list[RankedClip] = []
        for clip in group.clips:
            look = looks[clip.sha256]
            if isinstance(look, VideoError):
                left_out.append(ExcludedClip(clip.path, group.name, look.reason, broken=True))
            elif look and exclude_flagged:
                why = f"is flagged: {describe_flags(look)}"
                left_out.append(ExcludedClip(clip.path, group.name, why, broken=False))
            else:
                usable.append(replace(clip, flags=look))
        if len(usable) >= least:
            groups.append(ClipGroup(group.name, group.prompt, tuple(usable)))
        else:
            why = "the only clip of its group that can be used"
            left_out += [ExcludedClip(clip.path, group.name, why, broken=False) for clip in usable]
    if not groups:
        flagged = exclude_flagged and any(look for look in looks.values() if not isinstance(look, VideoError))
        raise _too_few([out for out in left_out if out.broken], flagged=flagged)
    return tuple(groups), tuple(left_out)


def _too_few(broken: Sequence[ExcludedClip], *, flagged: bool) -> UsageError | VideoError:
    if flagged:
        return UsageError("Without the flagged clips no two are left to rank. Leave out --exclude-flagged.")
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        reason = f"{broken[0].reason}{more}. It is left out, and two clips that can be used are needed."
        return VideoError(broken[0].path, reason)
    return UsageError("Two different clips are needed to rank. Name more files, or a folder that has them.")


def _name_clips(paths: Collection[Path]) -> dict[Path, str]:
    """Return a name for each clip: its file name, with its folder or its whole path where names are alike."""
    for length in (1, 2, 3):
        # The last part of "frames/%04d.png" alone says nothing.
        names = {path: "/".join(path.parts[-length - ("%" in path.name) :]) for path in paths}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(path) for path in paths}
