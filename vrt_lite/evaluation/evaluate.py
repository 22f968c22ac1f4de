"""The driver: a labelled set, a store and judges in; cases in the run, and figures out.

Every pair of the set ends as a case: judged, or failed with a reason. What was judged is found again, so the same call
resumes. Knows runs; refuses to know the command line, how a judge is opened and how figures are shown.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.evaluation.cases import Case, Failure, Order, Orders, asked, case_of, mirrored
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.figures import VERSION, figures
from vrt_lite.evaluation.layouts import LabelledPair
from vrt_lite.evaluation.progress import Progress
from vrt_lite.evaluation.sets import LabelledSet
from vrt_lite.runs.judged import Question, Result
from vrt_lite.runs.work import Task, judge_all

if TYPE_CHECKING:
    from vrt_lite.api import Judge
    from vrt_lite.runs.run import Run
    from vrt_lite.runs.store import Store

KIND = "pair"
"""What a case is among its run's items; its key is `Case.item`."""
_NAMED = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pairs, in which order, and how many judgements at most are made now (None: no end)."""

    order: Orders = "given"
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Judging:
    """Who judges, `jobs` pairs at once; `key` is the judge's `key()`, `model` what people call it."""

    judge: Judge
    key: str
    model: str
    jobs: int = 1


def run_name(found: LabelledSet, choice: Choice, judge: str) -> str:
    """The name that the same set, choice and judge always get."""
    facts = [found.place.layout.name, found.sha256, choice.order, choice.limit, choice.sample, choice.seed, judge]
    return f"{found.place.layout.name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"


def begin(name: str, found: LabelledSet, choice: Choice, *, judging: Judging, store: Store) -> Run:
    """The run of that name, new or taken up again; UsageError if it is about something else."""
    place = found.place
    about: dict[str, Any] = {
        "set": place.layout.name,
        "title": place.layout.title,
        "split": place.layout.split,
        "labels": found.label_counts,
        "table": str(place.table),
        "table_sha256": found.sha256,
        "folder": str(place.folder),
        "judge": judging.key,
        "model": judging.model,
        "order": choice.order,
        "limit": choice.limit,
        "sample": choice.sample,
        "seed": choice.seed,
        "left_out": found.left_out_counts,
        "left_out_rows": [f"{row.kind}: {row.why}" for row in found.left_out[:_NAMED]],
    }
    run = store.begin(name, kind="eval", about=about)
    for fact in ("table_sha256", "judge", "order", "limit", "sample", "seed"):
        if run.about.get(fact) != about[fact]:
            raise UsageError(
                f"Run {name!r} is of another {fact.replace('_', ' ')} ({run.about.get(fact)}, not {about[fact]}). "
                "Give another --name; what was judged is found again."
            )
    # Figures of an unfinished run are made when they are asked for.
    run.note({key: value for key, value in {**run.about, **about}.items() if key != "figures"})
    return run


def evaluate(
    found: LabelledSet,
    pairs: Sequence[LabelledPair],
    choice: Choice,
    *,
    run: Run,
    store: Store,
    judging: Judging,
    progress: Progress,
) -> dict[str, Any]:
    """Judge what is not judged yet, and note the figures in the run; they are returned as well.

    Raises what `judge_all` raises. Whatever happens, each judged pair is in the run.
    """
    place = found.place
    clips = Clips(place.folder, table=place.table, anywhere=place.layout.own)
    work = _Work(run, store, judging.key, clips, choice, progress)
    run.note({**run.about, "chosen": len(pairs)})
    judge_all(
        work.tasks(pairs),
        run,
        store=store,
        judge=judging.judge,
        jobs=judging.jobs,
        done=work.done,
        observe=progress.observe,
        judge_key=judging.key,
    )
    made = figures_of(run)
    run.note({**run.about, "figures": made})
    return made


def figures_of(run: Run) -> dict[str, Any]:
    """The figures that a run ended with; of a run that has not ended, those of what is judged by now.

    Figures of an older version are computed again.
    """
    about: Mapping[str, Any] = run.about
    if (noted := about.get("figures")) and noted.get("version") == VERSION:
        return dict(noted)
    return figures(
        (case_of(value) for _, value in run.items(KIND)),
        name=about["set"],
        title=about["title"],
        split=about.get("split", ""),
        labels=about.get("labels", {}),
        order=about["order"],
        chosen=about.get("chosen", 0),
        left_out=about["left_out"],
    )


def orders_of(pair: LabelledPair, choice: Choice) -> tuple[Order, ...]:
    """In which orders a pair is judged. Chance is a pair's own: it does not depend on the others."""
    match choice.order:
        case "both":
            return ("given", "swapped")
        case "random":
            coin = hashlib.sha256(f"{choice.seed} {pair.row}".encode()).digest()[0] & 1
            return ("swapped",) if coin else ("given",)
        case order:
            return (order,)


@dataclass(slots=True)
class _Work:
    """What is asked for, and what is kept of the answers. `done` is called between two tasks, in the same thread."""

    run: Run
    store: Store
    judge: str
    clips: Clips
    choice: Choice
    progress: Progress
    known: dict[str, Case] = field(default_factory=dict[str, Case])
    asked: int = 0
    found: int = 0

    def tasks(self, pairs: Sequence[LabelledPair]) -> Iterator[Task]:
        """The pairs whose clips are there; the others are failures at once. Ends when the budget is used."""
        self.known = {key: case_of(value) for key, value in self.run.items(KIND)}
        for pair in pairs:
            a, b = self.clips.find(pair.a), self.clips.find(pair.b)
            for order in orders_of(pair, self.choice):
                case = asked(pair, order)
                if isinstance(a, str) or isinstance(b, str):
                    why = "; ".join(lost for lost in (a, b) if isinstance(lost, str))
                    self._keep(replace(case, failure="missing clip", why=why))
                    self.progress.count(None, None, judged=False)
                    continue
                shown = (a, b) if order == "given" else (b, a)
                if self._is_known(case, Task(*shown, pair.prompt)):
                    continue
                if self.choice.budget is not None and self.asked - self.found >= self.choice.budget:
                    return
                self.asked += 1
                yield Task(*shown, pair.prompt, label=case)

    def _is_known(self, case: Case, task: Task) -> bool:
        """Whether this run has the verdict on these very clips; a quick look, so that a long run goes on at once.

        A failure is looked up the long way: it may have been forgotten in the store.
        """
        before = self.known.get(case.item)
        if before is None or before.failure or before.labels != case.labels:
            return False
        with contextlib.suppress(VideoError):
            first, second = self.store.digest(task.first), self.store.digest(task.second)
            if Question(first, second, task.prompt, self.judge).key == before.key:
                self.progress.count(before.labels.get("OA"), before.winners.get("OA"), judged=False)
                return True
        return False

    def done(self, task: Task, result: Result, now: bool) -> None:
        """Keep what came of a task."""
        if not now or not result.first:
            self.found += 1  # nothing was spent on it
        case: Case = task.label
        before = self.known.get(case.item)
        if before is None or before.key != result.key or not result.first or before.labels != case.labels:
            before = self._answered(case, result)
            self._keep(before)
        self.progress.count(before.labels.get("OA"), before.winners.get("OA"), judged=now and bool(result.first))

    def _answered(self, case: Case, result: Result) -> Case:
        if result.error:
            return replace(case, failure=_kind_of(result), why=result.error, key=result.key if result.first else "")
        winners, odds = dict(result.winners), dict(result.odds)
        if case.order == "swapped":
            winners, odds = mirrored(winners, odds)
        judgement = self.run.judgement(result.key)
        lengths = [float(clip["duration_seconds"]) for clip in judgement["inputs"]] if judgement else []
        return replace(
            case,
            key=result.key,
            winners=winners,
            odds=odds,
            source=result.source,
            rounds=result.rounds,
            calls=result.calls,
            tokens=result.tokens,
            seconds=result.seconds,
            clip_seconds=max(lengths, default=None),
        )

    def _keep(self, case: Case) -> None:
        before = self.known.get(case.item)
        if before != case:
            self.run.put(KIND, case.item, case.to_json())
            self.known[case.item] = case


def _kind_of(result: Result) -> Failure:
    """Whose failure it is: a message about a clip begins with its path in quotes, one about the judge with words."""
    if not result.first:
        return "missing clip"
    return "broken clip" if result.error.startswith(("'", '"')) else "no verdict"
