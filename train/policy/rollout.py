"""Rollouts: many trials at once with one model, in the same loop that users run.

A trial (`vrt_lite.judge.judge`) asks for one reply after another, and waits for each. The replies of all waiting trials
are written as one batch. Nothing runs in parallel, so that the result depends on seeds alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train.policy.model import load
from train.policy.writing import Policy, Request, WrittenReply
from train.recipe import ModelRecipe, Precision, TrainingRecipe
from train.traces import UNSEEN
from train.training_cases import Cases, TrainingCase
from train.views import View, frames_in_view, profile_in_view
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.judge import Round, Trial, judge
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Generated, Reply
from vrt_lite.protocol.tags import Marks


@dataclass(frozen=True, slots=True)
class Rollout:
    """Trial `number` of a case. `trial` is None if it reached no verdict.

    For each round, `visible` is the conversation before it, and `written` the reply with its log-probabilities.
    """

    case: TrainingCase
    number: int
    trial: Trial | None
    rounds: tuple[Round, ...]
    visible: tuple[Conversation, ...]
    written: tuple[WrittenReply, ...]

    @property
    def replies(self) -> tuple[Generated, ...]:
        """The replies in the form of a conversation's parts."""
        return tuple(Generated(w.reply.text, w.reply.tokens) for w in self.written)

    @property
    def tokens(self) -> int:
        """The number of tokens drawn."""
        return sum(len(w.logprobs) for w in self.written)

    @property
    def marks(self) -> tuple[Marks | None, ...]:
        """The answer or recommendation of each round, if it has one."""
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
    """Yield `samples` trials of each case, in the order in which they end.

    The same seed gives the same trial for the same case and number. At most `policy.batch` trials are active at a time.
    The frames of a case are open until its last trial ends.
    """
    profile = profile_in_view(profile, view)
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


def replay_rollout(case: TrainingCase, number: int, written: Sequence[WrittenReply], profile: Profile) -> Rollout:
    """Replay written replies as a rollout, without the model and without frames."""
    run = _Run(
        case, number, _OpenFrames(UNSEEN, contextlib.ExitStack(), 1), profile, Sampling(profile.max_new_tokens), ""
    )
    for reply in written:
        run.take(reply)
    return run.rollout()


@contextlib.contextmanager
def open_policy(
    folder: Path, profile: Profile, *, device: str = "cpu", precision: Precision = "float32", batch: int = 64
) -> Generator[Policy]:
    """Load a checkpoint's folder as a policy for writing only."""
    recipe = TrainingRecipe(folder.name, profile, ModelRecipe(precision=precision))
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
    """Yield trials that wait for their first reply."""
    sampling = Sampling(profile.max_new_tokens, temperature)
    for index in range(len(cases)):
        case = cases[index]
        opened = stack.enter_context(contextlib.ExitStack())
        frames = frames_in_view(opened.enter_context(case.open(profile)), view, profile=profile, seed=case.key)
        shown = _OpenFrames(frames, opened, samples)
        for number in range(samples):
            yield _Run(case, number, shown, profile, sampling, f"{seed}/{case.key}/{number}")


@dataclass(slots=True)
class _OpenFrames:
    """A case's open frames; `left` is the number of its unfinished trials."""

    frames: FrameStore
    opened: contextlib.ExitStack
    left: int

    def release(self) -> None:
        self.left -= 1
        if not self.left:
            self.opened.close()


class _Run:
    """An unfinished trial: the replies written for it, and its next request."""

    def __init__(
        self, case: TrainingCase, number: int, shown: _OpenFrames, profile: Profile, sampling: Sampling, seed: str
    ) -> None:
        self._case, self._number, self._shown, self._seed = case, number, shown, seed
        self._judging = judge(case.pair, profile, sampling=sampling)
        self._written: list[WrittenReply] = []
        self._visible: list[Conversation] = []
        self._rounds: list[Round] = []
        self._trial: Trial | None = None
        self.request: Request
        self.over = False
        self._advance(None)

    def take(self, written: WrittenReply) -> None:
        """Add the requested reply, and go on."""
        self._written.append(written)
        self._advance(written.reply)

    def rollout(self) -> Rollout:
        """Return the trial as a rollout."""
        return Rollout(
            self._case,
            self._number,
            self._trial,
            tuple(self._rounds),
            tuple(self._visible),
            tuple(self._written),
        )

    def _advance(self, reply: Reply | None) -> None:
        """Run the trial to its next request, or to its end."""
        try:
            while isinstance(wanted := self._judging.send(reply), Round):
                self._rounds.append(wanted)
                reply = None
        except (StopIteration, NoVerdictError) as end:
            self._trial = end.value if isinstance(end, StopIteration) else None
            self.over = True
            self._shown.release()
            return
        sampling = replace(wanted.sampling, seed=_digest(f"{self._seed}/{len(self._visible)}"))
        self._visible.append(wanted.conversation)
        self.request = Request(wanted.conversation, self._shown.frames, sampling)


def _digest(text: str) -> int:
    """Derive a seed from a text; it is the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
