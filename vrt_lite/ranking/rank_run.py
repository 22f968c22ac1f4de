"""The description of a ranking's run, as values that are kept in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vrt_lite.errors import StoreError, UsageError
from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip
from vrt_lite.ranking.participants import ExcludedClip, Participants, read_flags
from vrt_lite.runs.identity import Identity

if TYPE_CHECKING:
    from vrt_lite.runs.judging import PairJudge
    from vrt_lite.runs.run import Run


ALL_PAIRS_UP_TO = 12
"""Up to this many clips in a group, every pair is judged, unless a budget or a confidence is given."""
CONFIDENCE = 0.8
"""How certain each place must be if judgements are chosen and no confidence is given.

A higher value is rarely reached: two judgements of a pair, by a judge that never contradicts itself, give about 0.85.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is judged. One judgement is one order of one pair; `budget` includes those of earlier calls.

    Without a budget or a confidence, every pair of a group of up to 12 clips is judged. Otherwise the judgement that
    tells most is next, until the budget is spent, or each clip is better than the next with this confidence (default
    0.8). Without `both_orders` a pair is judged in one order only. With `exclude_flagged` clips with a measured fault
    are left out. `pointwise` is for a judge that judges each clip by itself: all pairs then follow.
    """

    both_orders: bool = True
    budget: int | None = None
    confidence: float | None = None
    exclude_flagged: bool = False
    pointwise: bool = False

    def for_judge(self, judge: PairJudge) -> Effort:
        """The effort as this judge can make it. UsageError for a limit on pairs where none are judged."""
        if not judge.pointwise:
            return self
        if self.budget is not None or self.confidence is not None:
            raise UsageError("This judge judges each clip once, by itself: leave --budget and --stop-at out.")
        return replace(self, both_orders=False, pointwise=True)

    @property
    def least_clips(self) -> int:
        """How many clips a group needs at least."""
        return 1 if self.pointwise else 2

    def chooses(self, clips: int) -> bool:
        """Return whether judgements are chosen in a group of this many clips; otherwise all of them are made."""
        return self.budget is not None or self.confidence is not None or clips > ALL_PAIRS_UP_TO


class KeptClip(msgspec.Struct, frozen=True):
    """A ranked clip, and the number of its group."""

    sha256: str
    name: str = ""
    path: str = ""
    group: int = 0


class KeptGroup(msgspec.Struct, frozen=True):
    """A group; its `clips` are indices into the list of all clips."""

    name: str
    prompt: str
    clips: tuple[int, ...]


class RankAbout(msgspec.Struct, frozen=True, kw_only=True):
    """The clips in their groups, the judge's key, its model's name and scope, and how much was to be judged.

    `prompt` is that of all groups; where they differ, `prompts` has them all.
    """

    clips: tuple[KeptClip, ...] = ()
    groups: tuple[KeptGroup, ...] = ()
    prompt: str | msgspec.UnsetType = msgspec.UNSET
    prompts: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    judge: str = ""
    model: str = ""
    scope: str = ""
    options: Effort = Effort()
    left_out: tuple[ExcludedClip, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data; `read_rank_about` reads it."""
        return msgspec.to_builtins(self, enc_hook=str)


def identify_run(groups: Sequence[ClipGroup], judge: PairJudge) -> Identity:
    """Return what a run of these groups may be resumed with: the same judge, and for each group the same prompt.

    Clips and groups may come and go.
    """
    facts = {f"prompt of group {group.name!r}" if group.name else "prompt": group.prompt for group in groups}
    return Identity(judge.key(), judge.describe(), facts)


def describe_run(participants: Participants, identity: Identity, effort: Effort, scope: str) -> RankAbout:
    """Describe a run with these participants, this judge, what it sees (`scope`), and this effort."""
    clips: list[KeptClip] = []
    groups: list[KeptGroup] = []
    for number, group in enumerate(participants.groups):
        places = range(len(clips), len(clips) + len(group.clips))
        groups.append(KeptGroup(group.name, group.prompt, tuple(places)))
        clips += [KeptClip(clip.sha256, clip.name, str(clip.path.absolute()), number) for clip in group.clips]
    prompts = tuple(dict.fromkeys(group.prompt for group in groups))
    return RankAbout(
        clips=tuple(clips),
        groups=tuple(groups),
        prompt=prompts[0] if len(prompts) == 1 else msgspec.UNSET,
        prompts=prompts if len(prompts) != 1 else msgspec.UNSET,
        judge=identity.judge,
        model=identity.model,
        scope=scope,
        options=effort,
        left_out=participants.left_out,
    )


def read_rank_about(run: Run) -> RankAbout:
    """Read what a ranking's run is about; StoreError if it is something else."""
    try:
        return msgspec.convert(run.about, RankAbout, dec_hook=lambda kind, value: kind(value))
    except (msgspec.ValidationError, UnicodeError) as error:
        raise StoreError(f"Run {run.name!r} is not the run of a ranking: {error}.") from error


def read_groups(run: Run) -> tuple[ClipGroup, ...]:
    """Read the groups of a run with the results stored by now, whether the run has ended or not."""
    about = read_rank_about(run)
    flags = read_flags(run)
    clips = [RankedClip(clip.name, Path(clip.path), clip.sha256, flags.get(clip.sha256, ())) for clip in about.clips]
    results = list(run.all_results())
    groups = tuple(ClipGroup(group.name, group.prompt, tuple(clips[i] for i in group.clips)) for group in about.groups)
    for group in groups:
        group.add_stored(results)
    return groups
