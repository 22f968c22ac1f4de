"""Finds the clips that take part in a ranking: each content once. The others are listed with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.interfaces import Observe, Working
from vrt_lite.measures.flags import Flag, describe_flags, find_flags
from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip
from vrt_lite.ranking.entries import Group
from vrt_lite.shortage import ThreadPool

if TYPE_CHECKING:
    from vrt_lite.runs.judging import PairJudge
    from vrt_lite.runs.run import Run

_MEASURED = "measured"
"""The kind of the run's items with what is measured of a clip, by its sha256."""
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


def look_at_clips(
    participants: Participants, run: Run, judge: PairJudge, observe: Observe, *, least: int = 2
) -> Participants:
    """Open and measure each clip once, and give it its flags; the run keeps what is measured.

    Clips that cannot be opened are left out, and then the groups of fewer than `least` clips. UsageError or VideoError
    if no group is left.
    """
    every = {clip.sha256: clip.path for group in participants.groups for clip in group.clips}
    known = dict(run.items(_MEASURED))
    faults: dict[str, str] = {}

    def look(path: Path) -> dict[str, float] | VideoError:
        try:
            judge.look_at(path)
        except VideoError as error:
            return error
        with contextlib.suppress(VideoError):  # a judgement of it will say so
            return dict(judge.measure(path))
        return {}

    if unknown := {sha256: path for sha256, path in every.items() if sha256 not in known}:
        observe(Working("measuring the clips"))
        with ThreadPool(2) as pool:
            for sha256, found in zip(unknown, pool.map(look, unknown.values()), strict=True):
                if isinstance(found, VideoError):
                    faults[sha256] = found.reason
                elif found:
                    run.put(_MEASURED, sha256, found)
    flags = read_flags(run)
    flagged = (
        replace(group, clips=tuple(replace(clip, flags=flags.get(clip.sha256, ())) for clip in group.clips))
        for group in participants.groups
    )
    usable = _leave_out(
        Participants(tuple(flagged), participants.left_out),
        lambda clip: faults.get(clip.sha256, ""),
        broken=True,
        least=least,
    )
    if not usable.groups:
        raise _too_few([out for out in usable.left_out if out.broken])
    return usable


def read_flags(run: Run) -> dict[str, tuple[Flag, ...]]:
    """Read the flags of a run's clips, by sha256, as they were measured."""
    return {sha256: find_flags(values) for sha256, values in run.items(_MEASURED)}


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
