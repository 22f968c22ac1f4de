"""Measures the time of `compare` outside vision, prefill and generation, after the bundled judge is loaded.

The bundled judge is the hard case: a judgement takes about a second, so any other time is a large share.
"""

from __future__ import annotations

import cProfile
import io
import pstats
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.measurements import Figure, Report
from bench.side import STAGES
from vrt_lite.api import Judge
from vrt_lite.backends import open_backend
from vrt_lite.comparing import Comparer, PairToCompare
from vrt_lite.interfaces import ignore
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.scheduler import run_alone
from vrt_lite.settings import Settings

MOST_SHARE = 0.10
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXAMPLE_PAIR = (_EXAMPLES / "a.mp4", _EXAMPLES / "b.mp4")
EXAMPLE_PROMPT = "A red square moving right."
EXAMPLE_JUDGE = "vrt-tiny-0"
_FUNCTIONS = 25


def measure(*, repeat: int, threads: int | None, profiled: bool) -> Report:
    """Compare the example pair several times, each time with an empty cache. Returns medians."""
    files = find(EXAMPLE_JUDGE)
    settings = Settings(cache=False)
    profile, engine = settings.applied_to(files.profile), EngineSettings(threads=threads)
    with (
        open_backend(files, profile=profile, settings=engine) as backend,
        Judge(EXAMPLE_JUDGE, settings=settings, backend=backend) as judge,
    ):
        runs: list[dict[str, float]] = []
        listing = ""
        for _ in range(repeat + 1):
            backend.reset()
            judgement = judge.compare(*EXAMPLE_PAIR, prompt=EXAMPLE_PROMPT)
            runs.append({**asdict(judgement.timings), "whole": judgement.timings.total})
        if profiled:
            backend.reset()
            listing = _listing(judge)
    runs = runs[1:]  # the first opens the context and digests the model's files
    seconds = {stage: median(run[stage] for run in runs) for stage in runs[0]}
    share = median(1 - sum(run[stage] for stage in STAGES) / run["whole"] for run in runs)
    order = (*STAGES, "decode", "resize", "other", "whole")
    figures = [Figure(stage, "s", {"ours": seconds[stage]}) for stage in order]
    verdict = "within" if share <= MOST_SHARE else "ABOVE"
    notes = [
        f"outside vision, prefill and generate: {share:.1%} of the whole, {verdict} the {MOST_SHARE:.0%} allowed",
        "decode and resize are part of other; the two clips decode side by side, so they may add up to more",
        *listing.splitlines(),
    ]
    detail = {"share": share, "runs": runs, "profile": listing}
    return Report(
        "overhead",
        "The bundled judge on the example pair, after load",
        {"repeat": repeat, "threads": threads},
        figures,
        notes,
        detail,
    )


def _listing(judge: Judge) -> str:
    """Profile a comparison by function, the slowest first. Other threads are not included."""
    profile = cProfile.Profile()
    one, two = map(Path, EXAMPLE_PAIR)
    comparer = Comparer(judge.mode, judge.settings, measures=True)
    profile.runcall(run_alone, comparer._compare(PairToCompare((one, two), EXAMPLE_PROMPT), ignore))
    out = io.StringIO()
    pstats.Stats(profile, stream=out).strip_dirs().sort_stats("cumulative").print_stats(_FUNCTIONS)
    return out.getvalue().strip()
