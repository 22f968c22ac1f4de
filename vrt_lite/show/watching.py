"""Shows a ranking of folders that are watched: its leaderboard on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.show.progress import LiveScreen, RankingView, RunState

if TYPE_CHECKING:
    from vrt_lite.ranking.clip_groups import ClipGroup
    from vrt_lite.ranking.rank import RankProgress

_MOST_NAMED = 3


class FolderView(RankingView):
    """Shows what is judged, which clips came and went, and which are waited for."""

    _names: frozenset[str] = frozenset()
    _waiting: Mapping[Path, str] = {}

    def changed(self, group: ClipGroup, done: int, most: int, waiting: Mapping[Path, str]) -> None:
        """Show what changed in the folders."""
        names = frozenset(clip.name for clip in group.clips)
        came, went = sorted(names - self._names), sorted(self._names - names)
        # Why it is waited for changes with each piece that is written; the end of the run says it.
        later = sorted(path.name for path in waiting if path not in self._waiting)
        parts = (("new", came), ("gone", went), ("waiting for", later))
        news = [f"{what}: {_list(which)}" for what, which in parts if which]
        self._names, self._waiting, self._groups, self.done = names, dict(waiting), (group,), done
        words = "; ".join([f"{len(names)} clip{'s' if len(names) != 1 else ''}", *news]) if news else ""
        self._screen.begin(words, RunState(done, most, figures=self._describe_waiting(), last="; ".join(news)))
        self._due = 0.0
        if len(names) > 1:
            self._rate(group)
        elif isinstance(self._screen, LiveScreen):
            self._screen.show_ladder(None)

    def judged(self, progress: RankProgress) -> None:
        """Show the result of a pair; after the last one, that new clips are waited for."""
        idle = progress.done >= progress.most
        if idle:
            self._due = 0.0  # the leaderboard stays as it is for long
        super().judged(progress)
        if idle and isinstance(self._screen, LiveScreen):
            self._screen.show_state(RunState(progress.done, progress.most, figures=self._describe_waiting()))

    def _describe_waiting(self) -> str:
        return f"waiting for {_list([path.name for path in self._waiting]) or 'new clips'}"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
