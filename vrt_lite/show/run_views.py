"""A run at work: its leaderboard on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vrt_lite.interfaces import Event, Loading, TimeRange, Waiting
from vrt_lite.show.leaderboard import draw_board, name_first
from vrt_lite.show.pair_words import write_headline
from vrt_lite.show.screen import Screen, Status
from vrt_lite.show.words import count_of, describe_event, format_range, format_time

if TYPE_CHECKING:
    from vrt_lite.ranking.rank import Label
    from vrt_lite.ranking.rank_run import ClipGroup
    from vrt_lite.records.ladders import Progress
    from vrt_lite.records.pairs import Result

_LONG_SECONDS: Final = 60.0
"""What takes as long is said on a terminal too before it begins."""
_RATED_EVERY_SECONDS: Final = 0.4


class _RunView(Screen):
    """A screen that shows a run; `done` counts its judgements, also those of earlier calls.

    `total` is how many there will be, if that is known; the other options are those of `Screen`.
    """

    def __init__(self, *args: Any, total: int = 0, **of_screen: Any) -> None:
        super().__init__(*args, **of_screen)
        self.done, self._total, self._figures = 0, total, ""
        self._end = 0.0
        self._update("reading the clips")

    def observe(self, event: Event) -> None:
        """Show what the judge does."""
        if stage := describe_event(event):
            self._update(stage, now=isinstance(event, Loading | Waiting))

    def _begin(self, words: str, judgements: int, predicted: TimeRange | None) -> None:
        """Say what is judged, and how long it will take. A terminal is told only what takes long, as it has a bar."""
        self._plan(predicted and predicted.middle)
        if predicted and judgements:
            words += f"; {format_range(predicted.times(1 / judgements))} each here, {format_range(predicted)} in all"
        if not self.console or (predicted and predicted.middle >= _LONG_SECONDS):
            self.say(words)
        self._update()

    def _update(self, stage: str = "", *, now: bool = False) -> None:
        counts = f"{self.done} of {self._total}" if self._total else ""
        words = ", ".join(filter(None, (counts, self._figures, stage)))
        self.show(Status(words, self.done, self._total, self._describe_time_left), now=now)

    def _describe_time_left(self) -> str:
        left = self._end - time.monotonic()
        return f"{format_time(left)} left" if left > 0 else ""

    def _plan(self, seconds_left: float | None) -> None:
        self._end = time.monotonic() + (seconds_left or 0.0)


class RankingView(_RunView):
    """Shows a ranking at work: its leaderboard on a terminal, a line for each judgement elsewhere."""

    _groups: Sequence[ClipGroup] = ()
    _rate_at = 0.0

    def begins(self, groups: Sequence[ClipGroup], progress: Progress, predicted: TimeRange | None) -> None:
        """Show how many judgements there will be, how long they will take, and what is known already."""
        self._groups, self.done, self._total = groups, progress.done, progress.most
        clips = count_of(sum(len(group.clips) for group in groups), "clip")
        words = f"{clips}, at most {count_of(self._total, 'judgement')}, {self.done} of them made before"
        self._begin(words, self._total - self.done, predicted)
        self._rate(groups[0])

    def judged(self, label: Label, result: Result, progress: Progress) -> None:
        """Show the result of a pair."""
        self.done, self._total = progress.done, progress.most
        self._plan(progress.seconds_left)
        if self.done >= self._total:  # a watched folder's leaderboard may stay so for long
            self._rate_at = 0.0
        last = describe_judgement(self._groups, label, result)
        if self.console:
            self.step(last)
            self._update()
            self._rate(self._groups[label[0]])
        else:
            counts = (f"{self.done} of {self._total}", self._describe_time_left())
            self.step(f"{', '.join(filter(None, counts))}: {last}")

    def _rate(self, group: ClipGroup) -> None:
        """Draw the leaderboard anew, at most a few times a second."""
        start = time.monotonic()
        if not self.console or start < self._rate_at:
            return
        from vrt_lite.ranking.ladder import rate_group  # noqa: PLC0415 - numpy

        ladder = rate_group(group)
        end = time.monotonic()
        # Rating hundreds of clips takes longer, and must not hold up the judge.
        self._rate_at = end + max(_RATED_EVERY_SECONDS, 10 * (end - start))
        self._board = functools.partial(draw_board, ladder) if ladder.standings else None


class FolderView(RankingView):
    """Shows what is judged in watched folders, which clips came and went, and which are waited for."""

    _names: frozenset[str] = frozenset()
    _waiting: frozenset[str] = frozenset()

    def changed(self, group: ClipGroup, progress: Progress, waiting: Mapping[Path, str]) -> None:
        """Show what changed in the folders."""
        names, late = frozenset(clip.name for clip in group.clips), frozenset(path.name for path in waiting)
        # Why it is waited for changes with each piece that is written; the end of the run says it.
        parts = {"new": names - self._names, "gone": self._names - names, "waiting for": late - self._waiting}
        self._names, self._waiting, self._groups = names, late, (group,)
        self.done, self._total, self._rate_at = progress.done, progress.most, 0.0
        self._figures = f"waiting for {name_first(sorted(late)) or 'new clips'}"
        if news := [f"{what}: {name_first(sorted(which))}" for what, which in parts.items() if which]:
            self.step("; ".join([count_of(len(names), "clip"), *news]))
        self._plan(None)
        self._update()
        self._rate(group)


class EvaluationView(_RunView):
    """Shows an evaluation at work: counts, failures, and the time left."""

    _failed = 0

    def begins(self, judgements: int, predicted: TimeRange | None) -> None:
        """Say how long so many judgements will take, if that is known."""
        if judgements:
            self._begin(count_of(judgements, "judgement"), judgements, predicted)

    def count(self, *, failed: bool, seconds_left: float | None) -> None:
        """Count a pair."""
        self.done += 1
        self._failed += failed
        self._plan(seconds_left)
        self._figures = f"{self._failed} failed" if self._failed else ""
        self._update(now=self.done == self._total)


def describe_judgement(groups: Sequence[ClipGroup], label: Label, result: Result) -> str:
    """Describe one judgement of a ranking in a line, by the clips' names."""
    number, i, j = label
    one, two = (groups[number].clips[clip].name for clip in (i, j))
    verdict, scores = result.verdict, result.scores
    words = write_headline(verdict, (one, two)) if verdict else f"no verdict ({result.error})"
    if i == j:
        told = ", ".join(f"{name} {score.value:.3g}" for name, score in scores[0].items()) if scores else words
        return f"{one}: {told}"
    return f"{one} and {two}: {words}"
