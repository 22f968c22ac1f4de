"""Judges cases with a checkpoint, a GGUF pair or any back end, and keeps what each said: the verb `evaluate`.

Whoever judges, the loop is `vrt_lite.judge` and the frames are the case's own, so that two judges can be compared case
by case. Goes on where it ended, in legs of some minutes. Knows judges and files; counting is `measures`'.
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

from train.cases import Case, Cases
from train.evaluation.measures import agreement, difference, figures
from train.evaluation.outcomes import VIEWS, Judged, Outcome, View, append_outcomes, outcome, read_outcomes
from train.evaluation.views import seen, viewed
from train.recipe import Precision
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.errors import ModelError, NoVerdictError, UsageError
from vrt_lite.interfaces import Backend, Sampling
from vrt_lite.judge import Round, judge
from vrt_lite.models.store import write_whole
from vrt_lite.profile import PROFILE_NAME, Profile, load_profile

OUTCOMES = "outcomes.jsonl"
FIGURES = "figures.json"


@dataclass(frozen=True, slots=True)
class Judging:
    """A judge that is open. `digest` tells it from every other: an outcome is kept under it.

    `judge` says of some cases at once what it thinks of each, in any order; `batch` is how many it is best given.
    """

    name: str
    digest: str
    profile: Profile
    judge: Callable[[Sequence[Case], View], Iterator[Outcome]]
    batch: int = 1


def by_backend(backend: Backend, profile: Profile, *, name: str, digest: str) -> Judging:
    """Any back end of vrt-lite as a judge: one case at a time, greedily."""

    def judged(cases: Sequence[Case], view: View) -> Iterator[Outcome]:
        for case in cases:
            yield judge_one(case, profile, backend, view=view)

    return Judging(name, _digest(digest, profile), profile, judged)


def judge_one(case: Case, profile: Profile, backend: Backend, *, view: View = "asked") -> Outcome:
    """One case through the loop that users run. A missing verdict is an outcome; a broken back end is an error."""
    rounds: list[Round] = []
    under = viewed(profile, view)
    began = time.perf_counter()
    verdict, error = None, ""
    with case.open(under) as frames:
        shown = seen(frames, view, profile=under, seed=case.key)
        try:
            greedy = Sampling(under.max_new_tokens)
            verdict = judge(case.pair, under, backend, shown, sampling=greedy, on_round=rounds.append).verdict
        except NoVerdictError as missing:
            error = str(missing)
    return outcome(case, rounds, verdict, profile=under, error=error, seconds=round(time.perf_counter() - began, 6))


@contextlib.contextmanager
def open_gguf(model: str | Path | None, *, projector: Path | None = None, exact: bool = False) -> Generator[Judging]:
    """A GGUF pair on this machine, as `vrt-lite compare` finds it: a name, a folder, or a text GGUF.

    `exact` rounds nothing to F16 on the way, which users' runs do. Raises ModelError.
    """
    from vrt_lite.backends.llamacpp import LlamaCppBackend  # noqa: PLC0415  the engine, only where it judges
    from vrt_lite.models.files import find, sha256  # noqa: PLC0415

    files = find(model, projector=projector)
    digest = f"{sha256(files.text)} {sha256(files.projector)}{' exact' * exact}"
    settings = EngineSettings(exact=exact)
    with LlamaCppBackend(files.text, files.projector, profile=files.profile, settings=settings) as backend:
        yield by_backend(backend, files.profile, name=files.name, digest=digest)


@contextlib.contextmanager
def open_checkpoint(
    folder: Path, *, device: str = "cpu", precision: Precision = "float32", batch: int = 16
) -> Generator[Judging]:
    """A checkpoint's folder through the policy that training samples with, many cases at once, greedily."""
    from train.policy.rollout import open_policy, rollouts  # noqa: PLC0415  torch, only where it judges

    own = folder / PROFILE_NAME
    if not own.is_file():
        raise ModelError(f"{folder} has no {PROFILE_NAME}: it is no checkpoint of this training.")
    profile = load_profile(own)
    with open_policy(folder, profile, device=device, precision=precision, batch=batch) as policy:

        def judged(cases: Sequence[Case], view: View) -> Iterator[Outcome]:
            under = viewed(profile, view)
            for made in rollouts(policy, cases, profile, samples=1, temperature=0.0, seed=0, view=view):
                verdict = made.trial.verdict if made.trial else None
                yield outcome(made.case, made.rounds, verdict, profile=under)

        # Some batches at once: trials that end early make room for others.
        yield Judging(folder.name, _digest(f"{_weights(folder)} {precision}", profile), profile, judged, 4 * batch)


@contextlib.contextmanager
def open_judge(
    where: str | Path, *, device: str = "cpu", precision: Precision = "float32", batch: int = 16
) -> Generator[Judging]:
    """A judge by where it is: a folder with safetensors is a checkpoint, anything else a GGUF pair or its name."""
    folder = Path(where)
    if folder.is_dir() and any(folder.glob("*.safetensors")):
        with open_checkpoint(folder, device=device, precision=precision, batch=batch) as judging:
            yield judging
    else:
        with open_gguf(where) as judging:
            yield judging


def evaluate(
    judging: Judging,
    cases: Cases,
    *,
    folder: Path,
    view: View = "asked",
    minutes: float | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Judged | None:
    """Judge what `folder` does not have yet; what was said of every case, or None when this leg's minutes ended first.

    At least one batch is judged, so that every leg gets on. A case whose labels have changed since is judged anew. Two
    cases of one key are a UsageError.
    """
    file = folder / OUTCOMES
    known = read_outcomes(file).get((judging.digest, view), {})
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    found: dict[str, Outcome | None] = {}
    done = 0
    for batch in _batches(cases, judging.batch, known, found):
        if ends is not None and time.monotonic() >= ends and done:
            return None
        for made in judging.judge(batch, view):
            append_outcomes(file, [made], judge=judging.digest, view=view)
            found[made.key] = made
            done += 1
        if lost := [case.key for case in batch if found[case.key] is None]:
            raise RuntimeError(f"The judge gave no outcome for {', '.join(lost)}.")
        progress(sum(made is not None for made in found.values()), len(cases))
    return {key: made for key, made in found.items() if made is not None}


def _batches(cases: Cases, size: int, known: Judged, found: dict[str, Outcome | None]) -> Iterator[list[Case]]:
    """The cases to judge, some at once. What is known goes to `found`, and what is not as None, in the cases' order."""
    batch: list[Case] = []
    for number in range(len(cases)):
        case = cases[number]
        if case.key in found:
            raise UsageError(f"Two cases have the key {case.key!r}: their outcomes could not be told apart.")
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
    """One judge's figures as plain JSON: {about, views: {view: figures}, differences}.

    `differences` are paired ones, on cases with hidden evidence: {"asked - random": …, "asked - none": …}; see
    `measures`.
    """
    asked = by_view.get("asked", {})
    told = {view: by_view[view] for view in VIEWS if by_view.get(view)}
    return {
        "about": dict(about),
        "views": {view: figures(judged.values()) for view, judged in told.items()},
        "differences": {
            f"asked - {view}": difference(asked, judged, hidden=True)
            for view, judged in told.items()
            if asked and view != "asked"
        },
    }


def write_report(made: Mapping[str, Any], folder: Path) -> Path:
    """Write a report beside its outcomes, whole or not at all; its path."""
    path = folder / FIGURES
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(made, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(f"Figures cannot be written to {path}: {error.strerror}.") from error
    return path


def load_report(path: Path) -> dict[str, Any]:
    """A report that `evaluate.write_report` wrote; UsageError if it is none."""
    try:
        made = json.loads(path.read_text("utf-8"))
        return {"about": made["about"], "views": made["views"], "differences": made["differences"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no report of an evaluation ({error}).") from error


def gains(folders: Mapping[str, Path]) -> dict[str, dict[str, dict[str, Any]]]:
    """How much more often each evaluation is right than the one before it, on the cases that both judged.

    `folders` are evaluations by name, first to last; of each, what was judged last with the frames asked for. Paired
    differences under "LATER - EARLIER", as `measures.difference` has them.
    """
    judged: dict[str, Judged] = {}
    for name, folder in folders.items():
        asked = [made for (_, view), made in read_outcomes(folder / OUTCOMES).items() if view == "asked"]
        if not asked:
            raise UsageError(f"{folder} has no outcomes with the frames asked for: evaluate it first.")
        judged[name] = asked[-1]
    return {f"{b} - {a}": difference(judged[b], judged[a]) for a, b in pairwise(judged)}


def agree(
    one: Judging, other: Judging, cases: Cases, *, folder: Path, minutes: float | None = None
) -> dict[str, Any] | None:
    """On how many cases two judges name the same four winners, and those that differ; None if minutes ended before.

    See `measures.agreement`. Both are kept as any evaluation is: what is judged already is not judged again. UsageError
    if they talk by different profiles.
    """
    if one.profile.sha256 != other.profile.sha256:
        raise UsageError(
            f"{one.name} and {other.name} talk by different profiles, so their verdicts cannot be compared: "
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
    """Digest of a checkpoint's weights and tokenizer."""
    found = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")]):
        with path.open("rb") as file:
            found.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def _digest(judge: str, profile: Profile) -> str:
    return hashlib.sha256(f"{judge} {profile.sha256}".encode()).hexdigest()[:32]
