"""Writes replies with a transformers model, many conversations at once, and says how likely it finds what was written.

Knows batches, the KV cache and how a token is drawn. What a conversation is made of it takes from
`train.policy.rendering`; refuses to know judges, rounds and rewards. A reply depends on its own request alone: its
random numbers come from its seed, and which others it is written together with changes its logits by rounding at most.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train.policy.rendering import Collator, Rendered, Renderer
from train.policy.tokenizer import END, PAD, Tokenizer
from vrt_lite.backends.llamacpp.sampling import loops
from vrt_lite.interfaces import FrameStore, Observe, Sampling, Wrote
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Odds, Reply, StopReason

_LOOP_CHECK_EVERY = 32
_NEVER = -1e9
"""Logit of a token that is never written: finite, so that what is multiplied by its probability 0 stays a number."""


@dataclass(frozen=True, slots=True)
class Request:
    """A reply to be written: what its writer sees, and how it is drawn."""

    conversation: Conversation
    frames: FrameStore
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Written:
    """A reply, and the log-probability of every token drawn for it.

    There is one a token of the reply, and one more for <|im_end|> where the model `ended` its turn with it.
    """

    reply: Reply
    logprobs: tuple[float, ...]
    ended: bool


class Policy:
    """A model as a judge: a vrt-lite back end, and the same for many requests at once.

    `batch` is the most replies written together. With "bfloat16" the arithmetic on a GPU is autocast, as in training.
    """

    def __init__(
        self, model: Any, tokenizer: Tokenizer, profile: Profile, *, precision: str = "float32", batch: int = 64
    ) -> None:
        self.model, self.tokenizer, self.profile, self.batch = model, tokenizer, profile, batch
        self.renderer = Renderer(tokenizer, profile)
        self.collator = Collator(tokenizer.id(PAD))
        self._precision = precision
        self._digits = [tokenizer.id(digit) for digit in "012"]
        self._end = tokenizer.id(END)
        rows = int(model.config.get_text_config().vocab_size)
        pieces = [tokenizer.text([token]) for token in range(rows)]
        self._closing = frozenset(token for token, piece in enumerate(pieces) if ">" in piece)
        # Rows of the embedding beyond the vocabulary have no text at all.
        silent = {i for i, piece in enumerate(pieces) if not piece}
        self._never = torch.tensor(sorted({*tokenizer.never, *silent} - tokenizer.ends), dtype=torch.long)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn, as `vrt_lite.interfaces.Backend` has it."""
        reply = self.write([Request(conversation, frames, sampling)])[0].reply
        observe(Wrote(reply.text))
        return reply

    def write(self, requests: Sequence[Request]) -> list[Written]:
        """A reply to each request, in their order."""
        written: list[Written] = []
        with self._reading():
            for i in range(0, len(requests), self.batch):
                written += self._together(requests[i : i + self.batch])
        return written

    def collated(self, rows: Sequence[Rendered]) -> dict[str, Tensor]:
        """What the model's forward takes for these rows, on its device; labels tell what was learned."""
        return {name: value.to(self.device) for name, value in self.collator(list(rows)).items()}

    def logprobs(self, model: Any, inputs: Mapping[str, Tensor], *, temperature: float) -> tuple[Tensor, Tensor]:
        """How likely `model` finds the labelled tokens, as `write` would draw them, and the entropies there.

        Both have shape (rows, n - 1): entry i is about token i + 1; 0 where it has no label.
        """
        told = {name: value for name, value in inputs.items() if name != "labels"}
        wanted = inputs["labels"][:, 1:] != -100
        wanted_at = wanted.any(0).nonzero()[:, 0]
        columns = wanted_at if len(wanted_at) else wanted_at.new_zeros(1)
        logits = model(**told, use_cache=False, logits_to_keep=columns).logits
        found = self._distribution(logits, temperature)
        here = wanted[:, columns]
        targets = inputs["input_ids"][:, 1:][:, columns]
        chosen = found.gather(2, targets[..., None])[..., 0]
        with torch.no_grad():
            entropies = -(found.exp() * found).sum(2)
        empty = torch.zeros(wanted.shape, dtype=found.dtype, device=found.device)
        likely, spread = (empty.index_copy(1, columns, torch.where(here, v, 0.0)) for v in (chosen, entropies))
        return likely, spread

    def _distribution(self, logits: Tensor, temperature: Tensor | float) -> Tensor:
        """Log-probabilities that a token is drawn with, over the last axis."""
        self._never = self._never.to(logits.device)
        return (logits.float().index_fill(-1, self._never, _NEVER) / temperature).log_softmax(-1)

    @contextlib.contextmanager
    def _reading(self) -> Generator[None]:
        """The model as it is when it only reads: no gradients, no checkpointing, the run's precision."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self.autocast():
                yield
        finally:
            self.model.train(training)

    def autocast(self) -> torch.autocast:
        """The arithmetic that training uses."""
        wanted = self._precision == "bfloat16" and self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=wanted)

    def _together(self, requests: Sequence[Request]) -> list[Written]:
        """One batch. Equal conversations over the same frames are read once."""
        logits, cache, mask, position = self._read(requests)
        pens = [_Pen(request.sampling, np.random.default_rng(request.sampling.seed)) for request in requests]
        rows = list(pens)
        while True:
            tokens, facts = self._pick(logits, rows)
            for pen, token, (logprob, *odds) in zip(rows, tokens.tolist(), facts.tolist(), strict=True):
                self._take(pen, token, logprob, (odds[0], odds[1], odds[2]))
            going = [row for row, pen in enumerate(rows) if pen.stop is None]
            if not going:
                return [Written(pen.reply, tuple(pen.logprobs), pen.ended) for pen in pens]
            if 2 * len(going) <= len(rows):
                kept = torch.tensor(going, device=self.device)
                cache.batch_select_indices(kept)
                rows, tokens = [rows[row] for row in going], tokens[kept]
                mask, position = mask[kept], position[kept]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            out = self.model(
                input_ids=tokens[:, None],
                attention_mask=mask,
                position_ids=position.expand(3, -1)[..., None],
                past_key_values=cache,
                use_cache=True,
            )
            logits, position = out.logits[:, -1], position + 1

    def _read(self, requests: Sequence[Request]) -> tuple[Tensor, Any, Tensor, Tensor]:
        """What follows each conversation: logits (rows, vocabulary), cache, mask (rows, n), next position (rows,)."""
        first: dict[tuple[int, Conversation], int] = {}
        keys = [(id(request.frames), request.conversation) for request in requests]
        of = torch.tensor([first.setdefault(key, len(first)) for key in keys], device=self.device)
        unique = {keys[i]: request for i, request in enumerate(requests)}
        inputs = self.collated([self.renderer.prompt(unique[key].conversation, unique[key].frames) for key in first])
        inputs.pop("labels", None)
        lengths = inputs["attention_mask"].sum(1)
        ends, place = (lengths - 1).unique(return_inverse=True)
        out = self.model(**inputs, use_cache=True, logits_to_keep=ends)
        every = torch.arange(len(first), device=self.device)
        logits = out.logits[every, place]
        position = inputs["position_ids"][0, every, lengths - 1] + 1
        out.past_key_values.batch_select_indices(of)
        return logits[of], out.past_key_values, inputs["attention_mask"][of], position[of]

    def _pick(self, logits: Tensor, pens: Sequence[_Pen]) -> tuple[Tensor, Tensor]:
        """The next token of each row, and (rows, 4): its log-probability, and the odds of the digits 0, 1 and 2."""
        heat = torch.tensor([pen.sampling.temperature for pen in pens], device=logits.device)[:, None]
        found = self._distribution(logits, torch.where(heat > 0, heat, 1.0))
        cumulative = found.double().exp().cumsum(1)
        dice = torch.tensor([pen.random.random() for pen in pens], dtype=torch.float64, device=logits.device)[:, None]
        drawn = torch.searchsorted(cumulative, dice * cumulative[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
        tokens = torch.where(heat > 0, drawn, found.argmax(1, keepdim=True))
        odds = logits[:, self._digits].double().softmax(1)
        return tokens[:, 0], torch.cat([found.gather(1, tokens).double(), odds], dim=1)

    def _take(self, pen: _Pen, token: int, logprob: float, odds: Odds) -> None:
        """Note one token, and whether the reply is over. A pen that has stopped takes nothing."""
        if pen.stop is not None:
            return
        if token in self.tokenizer.ends:
            # Only <|im_end|> is what a transcript holds behind a reply; another end is not learned from.
            pen.ended = token == self._end
            pen.logprobs += [logprob] * pen.ended
            pen.finish("end", self.tokenizer.text(pen.tokens))
            return
        pen.tokens.append(token)
        pen.logprobs.append(logprob)
        count = len(pen.tokens)
        if token in self._digits:
            pen.odds[len(self.tokenizer.text(pen.tokens)) - 1] = odds
        if token in self._closing and pen.sampling.concluded(text := self.tokenizer.text(pen.tokens)):
            pen.finish("end", text)
        elif count % _LOOP_CHECK_EVERY == 0 and loops(pen.tokens):
            pen.finish("loop", self.tokenizer.text(pen.tokens))
        elif count >= pen.sampling.max_new_tokens:
            pen.finish("limit", self.tokenizer.text(pen.tokens))


@dataclass(slots=True)
class _Pen:
    """One reply while it is written."""

    sampling: Sampling
    random: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    odds: dict[int, Odds] = field(default_factory=dict)
    ended: bool = False
    stop: StopReason | None = None
    text: str = ""

    def finish(self, stop: StopReason, text: str) -> None:
        self.stop, self.text = stop, text

    @property
    def reply(self) -> Reply:
        return Reply(self.text, tuple(self.tokens), self.stop or "limit", self.odds)
