"""Writes the traces of a cold start with a strong model on an OpenAI-compatible server (paper, 3.2.1 and appendix D).

The server is asked as any judge is, with VR-Thinker's own prompt and the words of the table's dimensions. A trace is
kept if it has the strict format and is right in every label.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from train.data import Cases, TrainingCase, append_rows, read_traces, right
from train.strict_format import find_flaw
from vrt_lite.backends import open_remote
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import Backend, Sampling
from vrt_lite.judge import Round, judge_with
from vrt_lite.profile import Profile
from vrt_lite.settings import Remote


def write_traces(
    cases: Cases,
    remote: Remote,
    profile: Profile,
    out: Path,
    *,
    tries: int = 1,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Ask for a trace of each case that `out` lacks, `jobs` cases at a time, each up to `tries` times.

    Returns how many traces there are. Raises BackendError; what was written before is kept.
    """
    known = read_traces(out)
    missing = [case for case in cases if case.key not in known]
    with open_remote(remote, profile=profile) as backend, ThreadPoolExecutor(jobs) as pool:
        asked = [pool.submit(_ask_for, case, backend, profile, tries=tries) for case in missing]
        try:
            for number, each in enumerate(as_completed(asked), start=1):
                row = each.result()
                append_rows(out, [row])
                progress(f"{number} of {len(missing)}, {row['key']}: {row['flaw'] or 'kept'}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return sum(bool(replies) for replies in read_traces(out).values())


def _ask_for(case: TrainingCase, backend: Backend, profile: Profile, *, tries: int) -> dict[str, Any]:
    """Ask for a trace of a case until one is good. Returns its line."""
    replies, flaw = None, ""
    for seed in range(tries):
        replies, flaw = _ask(case, backend, profile, seed=seed)
        if replies:
            break
    return {"key": case.key, "replies": replies, "flaw": flaw}


def _ask(case: TrainingCase, backend: Backend, profile: Profile, *, seed: int) -> tuple[list[str] | None, str]:
    """Ask for one trace. Returns its replies, or None and what is wrong with it."""
    rounds: list[Round] = []
    how = Sampling(profile.max_new_tokens, temperature=1.0, seed=seed)
    with case.open(profile) as frames:
        try:
            trial = judge_with(case.pair, profile, backend, frames, sampling=how, on_round=rounds.append)
        except NoVerdictError as error:
            return None, str(error)
    if flaw := find_flaw(rounds):
        return None, flaw
    winners = {key: preference.winner for key, preference in trial.verdict.preferences.items()}
    wrong = [key for key, good in right(winners, case.labels).items() if not good]
    return (None, f"{', '.join(wrong)} wrong") if wrong else ([r.reply.text for r in rounds], "")
