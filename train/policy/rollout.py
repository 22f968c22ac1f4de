"""Rollouts: many trials at once, by the loop that users run, with one model.

`vrt_lite.judge.judge` asks for one reply after another. Here a trial that asks is left where it stands; when its reply
has been written, together with those of all others that wait, the trial is begun anew and plays what it wrote before.
Nothing runs at the same time as something else, so that what comes out depends on seeds alone.
Knows trials and views; refuses to know how a reply is written, and what it is worth.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train.cases import Case, Cases
from train.evaluation.outcomes import View
from train.evaluation.views import seen, viewed
from train.policy.model import load
from train.policy.writing import Policy, Request, Written
from train.recipe import Model, Precision, Recipe
from train.traces import UNSEEN
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judge import Round, Trial, judge
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Generated, Reply
from vrt_lite.protocol.tags import Marks


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trial of a case, number `number` of it; `trial` is None where it reached no verdict.

    A round each: what was `visible` before it, and what was written, with its log-probabilities.
    """

    case: Case
    number: int
    trial: Trial | None
    rounds: tuple[Round, ...]
    visible: tuple[Conversation, ...]
    written: tuple[Written, ...]

    @property
    def replies(self) -> tuple[Generated, ...]:
        """What was written, as a conversation holds it."""
        return tuple(Generated(w.reply.text, w.reply.tokens) for w in self.written)

    @property
    def tokens(self) -> int:
        """How many were drawn."""
        return sum(len(w.logprobs) for w in self.written)

    @property
    def marks(self) -> tuple[Marks | None, ...]:
        """What each round answered or recommended, if it did."""
        return tuple(r.marks for r in self.rounds)


def rollouts(
    policy: Policy,
    cases: Cases,
    profile: Profile,
    *,
    samples: int,
    temperature: float,
    seed: int | str,
    view: View = "asked",
) -> Iterator[Rollout]:
    """`samples` trials of each case, as they end. The same seed gives the same trial of the same case and number.

    At most `policy.batch` are under way; frames of a case are open while its trials last.
    """
    profile = viewed(profile, view)
    with contextlib.ExitStack() as stack:
        waiting = _runs(cases, profile, stack, samples=samples, temperature=temperature, seed=seed, view=view)
        active: list[_Run] = []
        while True:
            while len(active) < policy.batch and (run := next(waiting, None)):
                active.append(run)
            if not active:
                return
            for run, written in zip(active, policy.write([run.request for run in active]), strict=True):
                run.take(written)
            yield from (run.rollout() for run in active if run.over)
            active = [run for run in active if not run.over]


def replayed(case: Case, number: int, written: Sequence[Written], profile: Profile) -> Rollout:
    """The rollout that these replies make. Nothing is written, and no frame is looked at."""
    run = _Run(case, number, _Shown(UNSEEN, contextlib.ExitStack(), 1), profile, Sampling(profile.max_new_tokens), "")
    for reply in written:
        run.take(reply)
    return run.rollout()


@contextlib.contextmanager
def open_policy(
    folder: Path, profile: Profile, *, device: str = "cpu", precision: Precision = "float32", batch: int = 64
) -> Generator[Policy]:
    """A checkpoint's folder as a policy that only writes."""
    recipe = Recipe(folder.name, profile, Model(precision=precision))
    model, tokenizer = load(recipe, folder, trainable=False)
    yield Policy(model.to(device).eval(), tokenizer, profile, precision=precision, batch=batch)


def _runs(
    cases: Cases,
    profile: Profile,
    stack: contextlib.ExitStack,
    *,
    samples: int,
    temperature: float,
    seed: int | str,
    view: View,
) -> Iterator[_Run]:
    """Trials that have asked for their first reply."""
    sampling = Sampling(profile.max_new_tokens, temperature)
    for index in range(len(cases)):
        case = cases[index]
        opened = stack.enter_context(contextlib.ExitStack())
        frames = seen(opened.enter_context(case.open(profile)), view, profile=profile, seed=case.key)
        shown = _Shown(frames, opened, samples)
        for number in range(samples):
            yield _Run(case, number, shown, profile, sampling, f"{seed}/{case.key}/{number}")


@dataclass(slots=True)
class _Shown:
    """A case's frames, open as long as `left` of its trials are not over."""

    frames: FrameStore
    opened: contextlib.ExitStack
    left: int

    def release(self) -> None:
        self.left -= 1
        if not self.left:
            self.opened.close()


class _AskedError(Exception):
    """A trial needs a reply that has not been written."""


class _Run:
    """A trial under way: what was written for it, and what it asks for next."""

    def __init__(self, case: Case, number: int, shown: _Shown, profile: Profile, sampling: Sampling, seed: str) -> None:
        self._case, self._number, self._shown, self._profile = case, number, shown, profile
        self._sampling, self._seed = sampling, seed
        self._written: list[Written] = []
        self._visible: list[Conversation] = []
        self._rounds: list[Round] = []
        self._trial: Trial | None = None
        self.request: Request
        self.over = False
        self._advance()

    def take(self, written: Written) -> None:
        """Go on with the reply that was asked for."""
        self._written.append(written)
        self._advance()

    def rollout(self) -> Rollout:
        """What the trial came to."""
        return Rollout(
            self._case,
            self._number,
            self._trial,
            tuple(self._rounds),
            tuple(self._visible),
            tuple(self._written),
        )

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The back end that the trial's loop sees: plays what was written, and leaves the loop where that ends."""
        number = len(self._visible)
        self._visible.append(conversation)
        if number == len(self._written):
            self.request = Request(conversation, frames, replace(sampling, seed=_digest(f"{self._seed}/{number}")))
            raise _AskedError
        return self._written[number].reply

    def _advance(self) -> None:
        """Run the loop from its start, up to the next reply that is not there or to its end."""
        self._visible, self._rounds = [], []
        with contextlib.suppress(_AskedError):
            with contextlib.suppress(NoVerdictError):
                self._trial = judge(
                    self._case.pair,
                    self._profile,
                    self,
                    self._shown.frames,
                    sampling=self._sampling,
                    on_round=self._rounds.append,
                )
            self.over = True
            self._shown.release()


def _digest(text: str) -> int:
    """A seed from a text: the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
