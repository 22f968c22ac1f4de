"""The comparisons of two clips: kept in a run a day and judge, found again by content, listed as a history."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vrt_lite.errors import StoreError, UsageError, VideoError, Warned
from vrt_lite.records.judgement import Judgement, add_warning
from vrt_lite.records.pairs import JudgedPair, Question
from vrt_lite.runs.store import Identity, Run, Store

if TYPE_CHECKING:
    from vrt_lite.api import Judge

LEAST_CHARACTERS = 4
"""Of the beginning of a comparison's id."""


def begin_daily_run(store: Store, judge: Judge) -> Run:
    """Return the run that keeps what this judge was asked for one by one today."""
    name = f"comparisons {time.strftime('%Y-%m-%d')} {judge.key()[:6]}"
    identity = Identity(judge.key(), judge.describe())
    return store.begin(name, kind="compare", about={"model": identity.model}, identity=identity)


def _ask_pair(judge: Judge, store: Store, clips: tuple[Path, Path], prompt: str) -> Question:
    """Return the question that a comparison asks: an answer about one order is none about both."""
    one, two = map(store.digest, clips)
    which = judge.settings.both_orders
    orders = f"auto {judge.settings.confidence:g}" if which == "auto" else "both" if which else ""
    asked = (judge.key_here(), orders, "" if judge.measures else "unmeasured")
    return Question(one, two, prompt, " ".join(filter(None, asked)))


def compare_once(
    compare: Callable[[], Judgement],
    judge: Judge,
    clips: tuple[Path, Path],
    prompt: str,
    *,
    store: Store | None,
    again: bool,
) -> tuple[Judgement, float | None]:
    """Return the judgement of a comparison, and when it was made if it was found in the store.

    Else, or `again`, `compare` makes it. Where it cannot be kept it has a warning of that, unless there is no store.
    """
    if store is None:
        return compare(), None
    try:
        run, question = begin_daily_run(store, judge), _ask_pair(judge, store, clips, prompt)
        found = None if again else run.result(question)
        if found and found.verdict and (kept := run.judgement(found.key)):
            return name_clips(kept, clips), store.times("compare").get(found.key, time.time())
    except StoreError as error:
        return _add_not_kept(compare(), error), None
    except VideoError:  # judging says what is wrong with it
        return compare(), None
    judgement = compare()
    if tuple(clip.sha256 for clip in judgement.inputs) == (question.first, question.second):
        try:
            run.add(question, judgement, anew=True)
        except (StoreError, UsageError) as error:
            judgement = _add_not_kept(judgement, error)
    return judgement, None


def _add_not_kept(judgement: Judgement, error: Exception) -> Judgement:
    return add_warning(judgement, Warned("not_kept", f"This comparison is not kept. {error}"))


def name_clips(judgement: Judgement, clips: tuple[Path, Path]) -> Judgement:
    """The same judgement, of files with this content: it may have been judged before under another name."""
    one, two = (replace(clip, path=str(path)) for clip, path in zip(judgement.inputs, clips, strict=True))
    return replace(judgement, inputs=(one, two))


def list_history(store: Store) -> list[tuple[Run, JudgedPair, float]]:
    """List what was compared with the run that keeps it and when it was made, the newest first."""
    made = store.times("compare")
    found: dict[str, tuple[Run, JudgedPair, float]] = {}
    for run in (store.run(info.name) for info in store.runs() if info.kind == "compare"):
        for pair in run.pairs():
            found.setdefault(pair.id, (run, pair, max(made.get(result.key, 0.0) for result in pair.results)))
    return sorted(found.values(), key=lambda entry: -entry[2])


def find_compared(store: Store, id: str) -> tuple[Run, JudgedPair, float]:  # noqa: A002
    """Return the comparison that the beginning of an id stands for. UsageError if that is none, or several."""
    found = [entry for entry in list_history(store) if entry[1].id.startswith(id)]
    if len(id) < LEAST_CHARACTERS or not found:
        raise UsageError(f"There is no comparison {id!r}: give the first characters of an ID. See: vrt-lite history")
    if len(found) > 1:
        raise UsageError(f"{id!r} is the beginning of {len(found)} comparisons: give more of the ID.")
    return found[0]
