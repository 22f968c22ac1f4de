"""Finds the clips that take part in a ranking: each content once. The others are listed with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.measures.flags import Flag, describe_flags
from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip
from vrt_lite.ranking.entries import Group
from vrt_lite.shortage import ThreadPool

MOST_CLIPS = 2_000
"""The limit for one group: the table of all pairs, two million, is held in memory."""


@dataclass(frozen=True, slots=True)
class ExcludedClip:
    """A clip that is left out: broken, flagged, a copy of another one, or alone in its group.

    Only `broken` is a fault.
    """

    path: Path
    group: str
    reason: str
    broken: bool


@dataclass(frozen=True, slots=True)
class Participants:
    """The groups, each with two clips or more, and the clips that are left out of them."""

    groups: tuple[ClipGroup, ...]
    left_out: tuple[ExcludedClip, ...]


def gather_clips(groups: Sequence[Group], *, digest: Callable[[Path], str]) -> Participants:
    """Gather the clips of each group by content: a file that is given twice takes part once.

    `digest` gives a file's sha256. UsageError for a group that is too large.
    """
    gathered: list[ClipGroup] = []
    left_out: list[ExcludedClip] = []
    for group in groups:
        found: dict[str, Path] = {}
        for path in group.clips:
            try:
                sha256 = digest(path)
            except VideoError as error:
                left_out.append(ExcludedClip(path, group.name, error.reason, broken=True))
                continue
            if sha256 in found:
                reason = f"the same content as {str(found[sha256])!r}"
                left_out.append(ExcludedClip(path, group.name, reason, broken=False))
            else:
                found[sha256] = path
        if len(found) > MOST_CLIPS:
            raise UsageError(f"A group has {len(found)} clips; at most {MOST_CLIPS} are ranked. Divide it into groups.")
        names = _name_clips(list(found.values()))
        clips = tuple(RankedClip(names[path], path, sha256) for sha256, path in found.items())
        gathered.append(ClipGroup(group.name, group.prompt, clips))
    return Participants(tuple(gathered), tuple(left_out))


def drop_broken(
    participants: Participants, *, open_clip: Callable[[Path], object], known: Mapping[str, object], least: int = 2
) -> Participants:
    """Leave out the clips that cannot be opened, and then the groups of fewer than `least` clips.

    `known` are the contents that can be opened; `open_clip` raises VideoError. UsageError or VideoError if no group is
    left.
    """
    unknown = {c.sha256: c.path for group in participants.groups for c in group.clips if c.sha256 not in known}

    def find_fault(path: Path) -> str:
        try:
            open_clip(path)
        except VideoError as error:
            return error.reason
        return ""

    with ThreadPool(2) as pool:
        faults = dict(zip(unknown, pool.map(find_fault, unknown.values()), strict=True))
    usable = _leave_out(participants, lambda clip: faults.get(clip.sha256, ""), broken=True, least=least)
    if not usable.groups:
        raise _too_few([out for out in usable.left_out if out.broken])
    return usable


def flag_clips(participants: Participants, flags: Mapping[str, tuple[Flag, ...]]) -> Participants:
    """Give each clip its flags, which are by the clips' sha256."""
    groups = (
        replace(group, clips=tuple(replace(clip, flags=flags.get(clip.sha256, ())) for clip in group.clips))
        for group in participants.groups
    )
    return Participants(tuple(groups), participants.left_out)


def drop_flagged(participants: Participants, *, least: int = 2) -> Participants:
    """Leave out the clips with flags, and then groups of fewer than `least` clips. UsageError if no group is left."""
    kept = _leave_out(participants, _name_flags, broken=False, least=least)
    if not kept.groups:
        raise UsageError("Without the flagged clips no two are left to rank. Leave out --exclude-flagged.")
    return kept


def _name_flags(clip: RankedClip) -> str:
    return f"is flagged: {describe_flags(clip.flags)}" if clip.flags else ""


def _leave_out(
    participants: Participants, find_reason: Callable[[RankedClip], str], *, broken: bool, least: int = 2
) -> Participants:
    """Leave out the clips for which there is a reason, and then the groups of fewer than `least` clips."""
    groups: list[ClipGroup] = []
    left_out = list(participants.left_out)
    for group in participants.groups:
        reasons = {clip: find_reason(clip) for clip in group.clips}
        left_out += [ExcludedClip(clip.path, group.name, why, broken=broken) for clip, why in reasons.items() if why]
        usable = tuple(clip for clip, why in reasons.items() if not why)
        if len(usable) >= least:
            groups.append(replace(group, clips=usable))
        else:
            reason = "the only clip of its group that can be used"
            left_out += [ExcludedClip(clip.path, group.name, reason, broken=False) for clip in usable]
    return Participants(tuple(groups), tuple(left_out))


def _too_few(broken: Sequence[ExcludedClip]) -> UsageError | VideoError:
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        reason = f"{broken[0].reason}{more}. It is left out, and two clips that can be used are needed."
        return VideoError(broken[0].path, reason)
    return UsageError("Two different clips are needed to rank. Name more files, or a folder that has them.")


def _name_clips(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each clip: its file name, with its folder or its whole path where names are alike."""
    for length in (1, 2, 3):
        # The last part of "frames/%04d.png" alone says nothing.
        names = {path: "/".join(path.parts[-length - ("%" in path.name) :]) for path in paths}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(path) for path in paths}
