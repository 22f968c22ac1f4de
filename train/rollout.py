"""Rollouts: many trials at once with one model, in the same loop that users run.

A trial (`vrt_lite.judge.judge`) is a generator that asks for one reply after another, and waits for each. The replies
of all waiting trials are written as one batch. Nothing runs in parallel, so that the result depends on seeds alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from train.data import TrainingCase
from train.writing import Request, Writer, WrittenReply
from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.judge import Round, Trial, judge
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Generated, Reply


@dataclass(frozen=True, slots=True)
class Rollout:
    """Trial `number` of the query `name`. `trial` is None if it reached no verdict.

    For each round, `visible` is the conversation before it, and `written` the reply with its log-probabilities.
    """

    name: str
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


def roll_out(
    writer: Writer,
    queries: Mapping[str, TrainingCase],
    profile: Profile,
    *,
    samples: int,
    temperature: float,
    seed: int,
) -> dict[str, list[Rollout]]:
    """Return `samples` trials of each query by its name.

    The same seed gives the same trial for the same name and number. At most `writer.batch` trials are active at a time.
    The frames of a query are open until its last trial ends.
    """
    found: dict[str, list[Rollout]] = {name: [] for name in queries}
    sampling = Sampling(profile.max_new_tokens, temperature)
    with contextlib.ExitStack() as stack:

        def begin() -> Iterator[_Run]:
            for name, case in queries.items():
                opened = stack.enter_context(contextlib.ExitStack())
                shown = _OpenFrames(opened.enter_context(case.open(profile)), opened, samples)
                for number in range(samples):
                    yield _Run(name, case, number, shown, profile, sampling, f"{seed}/{name}/{number}")

        waiting, active = begin(), list[_Run]()
        while True:
            while len(active) < writer.batch and (run := next(waiting, None)):
                active.append(run)
            if not active:
                break
            for run, written in zip(active, writer.write([run.request for run in active]), strict=True):
                run.take(written)
            for run in active:
                if run.over:
                    found[run.name].append(run.rollout())
            active = [run for run in active if not run.over]
    return {name: sorted(rollouts, key=lambda one: one.number) for name, rollouts in found.items()}


@dataclass(slots=True)
class _OpenFrames:
    """A query's open frames; `left` is the number of its unfinished trials."""

    frames: FrameStore
    opened: contextlib.ExitStack
    left: int

    def release(self) -> None:
        self.left -= 1
        if not self.left:
            self.opened.close()


class _Run:
    """An unfinished trial: the replies written for it, and its next request."""

    request: Request

    def __init__(
        self,
        name: str,
        case: TrainingCase,
        number: int,
        shown: _OpenFrames,
        profile: Profile,
        sampling: Sampling,
        seed: str,
    ) -> None:
        self.name, self.over = name, False
        self._case, self._number, self._shown, self._seed = case, number, shown, seed
        self._judging = judge(case.pair, profile, sampling=sampling)
        self._written: list[WrittenReply] = []
        self._visible: list[Conversation] = []
        self._rounds: list[Round] = []
        self._trial: Trial | None = None
        self._advance(None)

    def take(self, written: WrittenReply) -> None:
        """Add the requested reply, and go on."""
        self._written.append(written)
        self._advance(written.reply)

    def rollout(self) -> Rollout:
        """Return the trial as a rollout."""
        parts = tuple(self._rounds), tuple(self._visible), tuple(self._written)
        return Rollout(self.name, self._case, self._number, self._trial, *parts)

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
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}/{len(self._visible)}".encode()).digest()[:8], "big")
        self._visible.append(wanted.conversation)
        self.request = Request(wanted.conversation, self._shown.frames, replace(wanted.sampling, seed=seed))
