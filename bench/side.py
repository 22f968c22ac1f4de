"""Runs one side of a comparison: `python -m bench.side` reads a job from standard input and prints its cost.

Each side has its own process. So the peak memory is of one side alone, and a side cannot use the other's results.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import click

from bench import reply_texts
from bench.measurements import peak_resident_bytes
from bench.scenes import Scenes
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.judge import Answer, Pair, Trial, follow
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import Profile, default_profile
from vrt_lite.scheduler import Scheduler, Together, Work

SIDES = ("ours", "former", "stock", "transformers", "in-turn", "at-once")
"""The last two are vrt-lite's again, with both orders of each pair: one after the other, or as two sequences."""
STAGES = ("vision", "prefill", "generate")
COUNTERS = ("frames_encoded", "frames_reused", "tokens_prefilled", "tokens_reused", "tokens_generated")
SOURCE_SIZE = (1280, 720)
CLIP_SECONDS = 6.0
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one process. `plan` lists judgements: the numbers of the two clips, and the number of rounds.

    `stock_projector` is the stock handler's, if it is given another one. `former` is a checkout of an earlier state of
    vrt-lite, whose own code runs the side "former". `engine` has the settings of vrt-lite's engine that differ from the
    defaults, by name; with `sequences` that many judgements of the side "ours" are made at once.
    """

    side: str
    text: str
    projector: str
    plan: tuple[tuple[int, int, int], ...]
    threads: int
    max_pixels: int
    stock_context: int = 16_384
    checkpoint: str = ""
    dtype: str = "bfloat16"
    gpu_layers: int | None = 0
    engine: Mapping[str, Any] = field(default_factory=dict)
    stock_projector: str = ""
    former: str = ""

    @property
    def files(self) -> list[str]:
        """The model's files that the sides read."""
        return [self.text, self.projector, *filter(None, [self.stock_projector])]


class Side(Protocol):
    """A back end that writes given texts."""

    whole_seconds: float

    def run(self, trial: Callable[[Answer], Work[Trial]], frames: FrameStore, texts: Sequence[str]) -> Work[Trial]:
        """Run a trial whose replies are these texts."""
        ...


def profile_for(max_pixels: int) -> Profile:
    """Return VR-Thinker's profile with this maximum of pixels."""
    return default_profile().with_max_pixels(max_pixels)


def frame_size(max_pixels: int) -> tuple[int, int]:
    """Return (width, height) at which a 720p frame is shown."""
    return profile_for(max_pixels).frame_size(*SOURCE_SIZE, called=False)


def run(job: Job) -> dict[str, Any]:
    """Run a job in its own process. Returns its cost. If the side fails, the whole run ends with the reason."""
    if job.side == "former":
        # Only what its `Job` must know.
        values = {f.name: getattr(job, f.name) for f in fields(Job) if f.name not in ("stock_projector", "former")}
        return run_module("bench.side", {**values, "side": "ours"}, name="The former state", root=Path(job.former))
    return run_module("bench.side", asdict(job), name=f"The side {job.side!r}")


def run_module(module: str, job: dict[str, Any], *, name: str, root: Path = _ROOT) -> dict[str, Any]:
    """Run a module of the checkout `root` in its own process: JSON on its standard input, and as its last line.

    ClickException, with this name of the job and the reason, if the process fails.
    """
    child = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(job),
        cwd=root,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if child.returncode:
        lines = [line for line in child.stderr.splitlines() if line.strip()] or ["it gave no reason"]
        raise click.ClickException(f"{name} ended with status {child.returncode}: {lines[-1]}")
    return json.loads(child.stdout.splitlines()[-1])


def open_side(job: Job) -> AbstractContextManager[Side]:
    """Load the back end of a side. The libraries of the other sides are not imported."""
    text, projector, profile = Path(job.text), Path(job.projector), profile_for(job.max_pixels)
    if job.side in ("ours", "in-turn", "at-once"):
        from bench.vrt_lite_side import VrtLiteSide  # noqa: PLC0415

        sequences = 2 if job.side == "at-once" else 1
        common = {"threads": job.threads, "gpu_layers": job.gpu_layers, "sequences": sequences}
        settings = EngineSettings(**{**common, **job.engine})
        return VrtLiteSide(text, projector, profile=profile, settings=settings)
    if job.side == "stock":
        from bench.stock_side import StockHandlerSide  # noqa: PLC0415

        width, height = frame_size(job.max_pixels)
        image = width * height // 28**2
        projector = Path(job.stock_projector or job.projector)
        return StockHandlerSide(text, projector, context=job.stock_context, threads=job.threads, largest_image=image)
    from bench.transformers_side import TransformersSide  # noqa: PLC0415

    return TransformersSide(Path(job.checkpoint), profile=profile, threads=job.threads, dtype=job.dtype)


def work(job: Job) -> dict[str, Any]:
    """Run a job in this process. Returns its cost."""
    began = time.perf_counter()
    at_once = job.engine.get("sequences", 1) if job.side == "ours" else 1
    with open_side(job) as side:
        loaded = time.perf_counter() - began

        def judge_entry(number: int) -> Work[dict[str, Any]]:
            judge_order = functools.partial(_judge_order, side, job, job.plan[number], number)
            before, started, processor = side.whole_seconds, time.perf_counter(), time.process_time()
            trials = yield from _judge_pair(job, judge_order)
            took = side.whole_seconds - before if job.side != "at-once" else time.perf_counter() - started
            return {**_cost(trials, took), "processor": time.process_time() - processor}

        started, processor = time.perf_counter(), time.process_time()
        entries = range(len(job.plan))
        with closing(Scheduler(at_once)) as scheduler:
            if at_once > 1:
                begun = [scheduler.submit(judge_entry(number)) for number in entries]
                judgements = [each.result() for each in begun]
            else:
                judgements = [scheduler.submit(judge_entry(number)).result() for number in entries]
        if at_once > 1:
            count = len(judgements)
            shares = {"whole": time.perf_counter() - started, "processor": time.process_time() - processor}
            judgements = [{**each, **{name: spent / count for name, spent in shares.items()}} for each in judgements]
        peak = peak_resident_bytes()
    return {"load_seconds": loaded, "peak_resident_bytes": peak, "judgements": judgements}


def _judge_order(side: Side, job: Job, entry: tuple[int, int, int], number: int, order: int) -> Work[Trial]:
    """Judge an order of an entry of the plan. The second one writes other words, as a real judge does."""
    profile, (first, second, rounds) = profile_for(job.max_pixels), entry
    pair = Pair(reply_texts.replies()["caption"], (CLIP_SECONDS, CLIP_SECONDS), (SOURCE_SIZE, SOURCE_SIZE))
    frames = Scenes((second, first) if order else (first, second), frame_size(job.max_pixels))
    sampling = Sampling(profile.max_new_tokens)

    def trial(answer: Answer) -> Work[Trial]:
        return follow(pair, profile, answer, sampling=sampling, order=order)

    return side.run(trial, frames, reply_texts.script(rounds, number=number + order))


def _judge_pair(job: Job, judge_order: Callable[[int], Work[Trial]]) -> Work[list[Trial]]:
    if job.side == "at-once":
        return (yield Together([judge_order(0), judge_order(1)]))
    trials = [(yield from judge_order(0))]
    if job.side == "in-turn":
        trials.append((yield from judge_order(1)))
    return trials


def _cost(trials: Sequence[Trial], whole_seconds: float) -> dict[str, Any]:
    """Return the cost of one order or of both, and the verdict of the first."""
    usages, trial = [r.reply.usage for trial in trials for r in trial.rounds], trials[0]
    return {
        "orders": len(trials),
        "rounds": len(trial.rounds),
        "outcomes": [r.outcome for r in trial.rounds],
        "choices": {key: preference.winner for key, preference in trial.verdict.preferences.items()},
        "odds": {key: preference.odds for key, preference in trial.verdict.preferences.items()},
        "whole": whole_seconds,
        **{stage: sum(getattr(usage, f"{stage}_seconds") for usage in usages) for stage in STAGES},
        **{name: sum(getattr(usage, name) for usage in usages) for name in COUNTERS},
    }


def main() -> None:
    """Read a job, run it, and print its cost."""
    values = json.load(sys.stdin)
    job = Job(**{**values, "plan": tuple(tuple(entry) for entry in values["plan"])})
    result = work(job)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
