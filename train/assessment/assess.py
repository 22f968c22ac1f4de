"""Judges cases with a checkpoint, a GGUF pair or any back end, and stores each outcome: the verb `evaluate`.

The loop is always `vrt_lite.judge`, and the frames are those of the case. So two judges can be compared case by case.
An evaluation runs in legs of some minutes, and goes on where the last leg ended. `compute_figures` computes the
figures.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from train.assessment.compute_figures import agreement, difference, figures
from train.assessment.outcomes import CaseOutcome, Judged, append_outcomes, outcome, read_outcomes
from train.recipe import Precision
from train.training_cases import Cases, TrainingCase
from train.views import VIEWS, View, frames_in_view, profile_in_view
from vrt_lite.disk import file_sha256, write_file
from vrt_lite.errors import ModelError, NoVerdictError, UsageError
from vrt_lite.interfaces import Backend, Sampling
from vrt_lite.judge import Round, judge_with
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import PROFILE_NAME, Profile, load_profile

OUTCOMES = "outcomes.jsonl"
FIGURES = "figures.json"


@dataclass(frozen=True, slots=True)
class LoadedJudge:
    """A judge that is loaded. `digest` identifies it: its outcomes are stored under it.

    `judge` judges several cases at once and yields their outcomes in any order; `batch` is the best number of cases.
    """

    name: str
    digest: str
    profile: Profile
    judge: Callable[[Sequence[TrainingCase], View], Iterator[CaseOutcome]]
    batch: int = 1


def wrap_backend(backend: Backend, profile: Profile, *, name: str, digest: str) -> LoadedJudge:
    """Wrap a back end of vrt-lite as a judge, which judges one case at a time, greedily."""

    def judged(cases: Sequence[TrainingCase], view: View) -> Iterator[CaseOutcome]:
        for case in cases:
            yield judge_one(case, profile, backend, view=view)

    return LoadedJudge(name, _digest(digest, profile), profile, judged)


def judge_one(case: TrainingCase, profile: Profile, backend: Backend, *, view: View = "asked") -> CaseOutcome:
    """Judge one case with the loop that users run. A missing verdict is an outcome; a broken back end is an error."""
    rounds: list[Round] = []
    under = profile_in_view(profile, view)
    began = time.perf_counter()
    verdict, error = None, ""
    with case.open(under) as frames:
        shown = frames_in_view(frames, view, profile=under, seed=case.key)
        try:
            greedy = Sampling(under.max_new_tokens)
            verdict = judge_with(case.pair, under, backend, shown, sampling=greedy, on_round=rounds.append).verdict
        except NoVerdictError as missing:
            error = str(missing)
    return outcome(case, rounds, verdict, profile=under, error=error, seconds=round(time.perf_counter() - began, 6))


@contextlib.contextmanager
def open_gguf(
    model: str | Path | None, *, projector: Path | None = None, exact: bool = False
) -> Generator[LoadedJudge]:
    """Open a GGUF pair on this machine, found as by `vrt-lite compare`: a name, a folder, or a text GGUF.

    `exact` rounds nothing to F16 on the way, which users' runs do. Raises ModelError.
    """
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415  the engine, only where it judges
    from vrt_lite.models import find, gguf_sha256  # noqa: PLC0415

    files = find(model, projector=projector)
    digest = f"{gguf_sha256(files.text, file_sha256)} {file_sha256(files.projector)}{' exact' * exact}"
    settings = EngineSettings(exact=exact)
    with LlamaCppBackend(files.text, files.projector, profile=files.profile, settings=settings) as backend:
        yield wrap_backend(backend, files.profile, name=files.name, digest=digest)


@contextlib.contextmanager
def open_checkpoint(
    folder: Path, *, device: str = "cpu", precision: Precision = "float32", batch: int = 16
) -> Generator[LoadedJudge]:
    """Open a checkpoint's folder as a judge with training's policy, which judges many cases at once, greedily."""
    from train.policy.rollout import open_policy, rollouts  # noqa: PLC0415  torch, only where it judges

    own = folder / PROFILE_NAME
    if not own.is_file():
        raise ModelError(f"{folder} has no {PROFILE_NAME}: it is not a checkpoint of this training.")
    profile = load_profile(own)
    with open_policy(folder, profile, device=device, precision=precision, batch=batch) as policy:

        def judged(cases: Sequence[TrainingCase], view: View) -> Iterator[CaseOutcome]:
            under = profile_in_view(profile, view)
            for result in rollouts(policy, cases, profile, samples=1, temperature=0.0, seed=0, view=view):
                verdict = result.trial.verdict if result.trial else None
                yield outcome(result.case, result.rounds, verdict, profile=under)

        # Several batches at a time, so that new trials can replace those that end early.
        yield LoadedJudge(folder.name, _digest(f"{_weights(folder)} {precision}", profile), profile, judged, 4 * batch)


@contextlib.contextmanager
def open_judge(
    where: str | Path, *, device: str = "cpu", precision: Precision = "float32", batch: int = 16
) -> Generator[LoadedJudge]:
    """Open a judge: a folder with safetensors is a checkpoint, anything else a GGUF pair or its name."""
    folder = Path(where)
    if folder.is_dir() and any(folder.glob("*.safetensors")):
        with open_checkpoint(folder, device=device, precision=precision, batch=batch) as loaded_judge:
            yield loaded_judge
    else:
        with open_gguf(where) as loaded_judge:
            yield loaded_judge


def evaluate(
    loaded_judge: LoadedJudge,
    cases: Cases,
    *,
    folder: Path,
    view: View = "asked",
    minutes: float | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Judged | None:
    """Judge the cases that `folder` lacks. Returns the outcome of every case, or None if the leg's minutes ended first.

    At least one batch is judged, so that every leg gets on. A case whose labels have changed since is judged anew. Two
    cases of one key are a UsageError.
    """
    file = folder / OUTCOMES
    known = read_outcomes(file).get((loaded_judge.digest, view), {})
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    found: dict[str, CaseOutcome | None] = {}
    done = 0
    for batch in _batches(cases, loaded_judge.batch, known, found):
        if ends is not None and time.monotonic() >= ends and done:
            return None
        for result in loaded_judge.judge(batch, view):
            append_outcomes(file, [result], judge=loaded_judge.digest, view=view)
            found[result.key] = result
            done += 1
        if lost := [case.key for case in batch if found[case.key] is None]:
            raise RuntimeError(f"The judge gave no outcome for {', '.join(lost)}.")
        progress(sum(result is not None for result in found.values()), len(cases))
    return {key: result for key, result in found.items() if result is not None}


def _batches(
    cases: Cases, size: int, known: Judged, found: dict[str, CaseOutcome | None]
) -> Iterator[list[TrainingCase]]:
    """Yield the cases to judge, in batches. `found` gets an entry for each case, in order: its outcome or None."""
    batch: list[TrainingCase] = []
    for number in range(len(cases)):
        case = cases[number]
        if case.key in found:
            raise UsageError(f"Two cases have the key {case.key!r}: their outcomes cannot be distinguished.")
        before = known.get(case.key)
        found[case.key] = before if before and before.labels == case.labels else None
        if found[case.key] is None:
            batch.append(case)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def report(by_view: Mapping[View, Judged], *, about: Mapping[str, Any]) -> dict[str, Any]:
    """Compute one judge's figures as plain JSON: {about, views: {view: figures}, differences}.

    `differences` are paired ones, on cases with hidden evidence: {"asked - random": …, "asked - none": …}; see
    `compute_figures`.
    """
    asked = by_view.get("asked", {})
    judged = {view: by_view[view] for view in VIEWS if by_view.get(view)}
    return {
        "about": dict(about),
        "views": {view: figures(outcomes.values()) for view, outcomes in judged.items()},
        "differences": {
            f"asked - {view}": difference(asked, outcomes, hidden=True)
            for view, outcomes in judged.items()
            if asked and view != "asked"
        },
    }


def write_report(result: Mapping[str, Any], folder: Path) -> Path:
    """Write a report beside its outcomes, complete or not at all. Returns its path."""
    path = folder / FIGURES
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(result, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(f"Figures cannot be written to {path}: {error.strerror}.") from error
    return path


def load_report(path: Path) -> dict[str, Any]:
    """A report that `evaluate.write_report` wrote; UsageError if it is none."""
    try:
        result = json.loads(path.read_text("utf-8"))
        return {"about": result["about"], "views": result["views"], "differences": result["differences"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a report of an evaluation ({error}).") from error


def gains(folders: Mapping[str, Path]) -> dict[str, dict[str, dict[str, Any]]]:
    """Compute how much more often each evaluation is right than the previous one, on the cases that both judged.

    `folders` are evaluations by name, first to last. The last outcomes in the view "asked" of each count.
    Returns paired differences under "LATER - EARLIER", as in `compute_figures.difference`.
    """
    judged: dict[str, Judged] = {}
    for name, folder in folders.items():
        asked = [result for (_, view), result in read_outcomes(folder / OUTCOMES).items() if view == "asked"]
        if not asked:
            raise UsageError(f"{folder} has no outcomes with the frames asked for: evaluate it first.")
        judged[name] = asked[-1]
    return {f"{b} - {a}": difference(judged[b], judged[a]) for a, b in pairwise(judged)}


def agree(
    one: LoadedJudge, other: LoadedJudge, cases: Cases, *, folder: Path, minutes: float | None = None
) -> dict[str, Any] | None:
    """Compare two judges' winners (see `compute_figures.agreement`). Returns None if the minutes ended first.

    The outcomes of both are stored as in any evaluation, so that no case is judged again. Raises UsageError if the
    judges have different profiles.
    """
    if one.profile.sha256 != other.profile.sha256:
        raise UsageError(
            f"{one.name} and {other.name} have different profiles, so their verdicts cannot be compared: "
            f"put the checkpoint's {PROFILE_NAME} beside the GGUF."
        )
    began = time.monotonic()
    first = evaluate(one, cases, folder=folder, minutes=minutes)
    if first is None:
        return None
    left = None if minutes is None else max(minutes - (time.monotonic() - began) / 60, 0.0)
    second = evaluate(other, cases, folder=folder, minutes=left)
    return None if second is None else agreement(first, second)


def _weights(folder: Path) -> str:
    """Compute the digest of a checkpoint's weights and tokenizer."""
    found = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")]):
        found.update(f"{path.name} {file_sha256(path)}\n".encode())
    return found.hexdigest()


def _digest(judge: str, profile: Profile) -> str:
    return hashlib.sha256(f"{judge} {profile.sha256}".encode()).hexdigest()[:32]
