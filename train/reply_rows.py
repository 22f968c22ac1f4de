"""The rows from which a supervised stage learns: cases with their replies, rendered in a Trainer's collator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from train.policy.policy_tokenizer import PAD, PolicyTokenizer
from train.policy.rendering import Collator, Rendered, Renderer, Segment, segments
from train.traces import Trace, replay
from train.training_cases import Cases, Exchanged, TrainingCase
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated


def render(
    case: TrainingCase, replies: Sequence[str], renderer: Renderer, profile: Profile, *, orders: int = 1
) -> list[Rendered]:
    """Render a case with its replies: one row for each context in which replies were written.

    With `orders` 2, rows with the clips in the other order and their script follow.
    """
    with case.open(profile) as frames:
        rows = [renderer.render(segment, frames) for segment in _cut(case, replies, profile)]
        if orders > 1 and case.exchanged:
            other = case.exchanged()
            rows += [renderer.render(segment, Exchanged(frames)) for segment in _cut(other, other.script, profile)]
    return rows


def _cut(case: TrainingCase, replies: Sequence[str], profile: Profile) -> list[Segment]:
    """Cut a replayed conversation into segments."""
    visible, _ = replay(case, replies, profile)
    return segments(visible, [Generated(reply) for reply in replies[: len(visible)]])


class RepliedCases:
    """Cases with their replies, by number: their scripts, or `traces` of some of them."""

    def __init__(self, cases: Cases, traces: Sequence[Trace] | None) -> None:
        self._cases, self._traces = cases, traces
        self._place = {} if traces is None else {cases[i].key: i for i in range(len(cases))}
        if traces and (unknown := next((t.key for t in traces if t.key not in self._place), "")):
            raise UsageError(
                f"Trace {unknown} is of none of the {len(cases)} cases: give those that it was sampled from."
            )

    def __len__(self) -> int:
        return len(self._cases if self._traces is None else self._traces)

    def __getitem__(self, number: int) -> tuple[TrainingCase, tuple[str, ...]]:
        if self._traces is None:
            case = self._cases[number]
            return case, case.script
        trace = self._traces[number]
        return self._cases[self._place[trace.key]], trace.replies


class ReplyCollator:
    """The collator. It renders the cases, so that they are rendered in the data loader's workers."""

    def __init__(self, replied: RepliedCases, tokenizer: PolicyTokenizer, profile: Profile, *, orders: int) -> None:
        self._replied, self._profile, self._orders = replied, profile, orders
        self._renderer, self._collate = Renderer(tokenizer, profile), Collator(tokenizer.id(PAD))

    def __call__(self, samples: Sequence[Mapping[str, int]]) -> dict[str, torch.Tensor]:
        """Build the batch of these cases."""
        replied = (self._replied[sample["case"]] for sample in samples)
        return self._collate(
            [
                row
                for case, replies in replied
                for row in render(case, replies, self._renderer, self._profile, orders=self._orders)
            ]
        )
