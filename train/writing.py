"""Writes replies with a transformers model, many conversations at once, and computes the probabilities of replies.

`train.rendering` renders the conversations. A reply depends on its own request alone: its random numbers come
from its seed, and the other replies of its batch change its logits at most by rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from train.policy_tokenizer import END, PAD, PolicyTokenizer
from train.rendering import IGNORED, Collator, Rendered, Renderer
from vrt_lite.backends.llamacpp.decoding import loops
from vrt_lite.interfaces import FrameStore, Observe, Sampling, Wrote
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Conversation, Reply, StopReason

_CHECK_EVERY = 32
_NEVER = -1e9
"""Logit of a token that is never written. It is finite, so that its product with the probability 0 is a number."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a reply: the conversation before it, its frames, and the sampling."""

    conversation: Conversation
    frames: FrameStore
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """A reply, and the log-probability of every token drawn for it.

    There is one for each token of the reply, and one for <|im_end|> if the model `ended` its turn with it.
    """

    reply: Reply
    logprobs: tuple[float, ...]
    ended: bool


class Writer(Protocol):
    """Writes replies; `batch` of them are best written at once."""

    batch: int

    def write(self, requests: Sequence[Request]) -> list[WrittenReply]:
        """Write a reply to each request, in the order of the requests."""
        ...


class Policy:
    """A model as a judge: a vrt-lite back end that can also write many replies at once.

    `batch` is the most replies written at once. With "bfloat16" the arithmetic on a GPU is autocast, as in training.
    """

    def __init__(
        self, model: Any, tokenizer: PolicyTokenizer, profile: Profile, *, precision: str = "float32", batch: int = 64
    ) -> None:
        self.model, self.tokenizer, self.profile, self.batch = model, tokenizer, profile, batch
        self.renderer = Renderer(tokenizer, profile)
        self.collator = Collator(tokenizer.id(PAD))
        self._precision = precision
        self._end = tokenizer.id(END)
        rows = int(model.config.get_text_config().vocab_size)
        pieces = [tokenizer.text([token]) for token in range(rows)]
        # Rows of the embedding beyond the vocabulary have no text.
        silent = {i for i, piece in enumerate(pieces) if not piece}
        self._never = torch.tensor(sorted({*tokenizer.never, *silent} - tokenizer.ends), dtype=torch.long)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """Write the judge's next turn, as `vrt_lite.interfaces.Backend` requires."""
        reply = self.write([Request(conversation, frames, sampling)])[0].reply
        observe(Wrote(reply.text))
        return reply

    def write(self, requests: Sequence[Request]) -> list[WrittenReply]:
        """Write a reply to each request, in the order of the requests."""
        written: list[WrittenReply] = []
        with self._inference_mode():
            for i in range(0, len(requests), self.batch):
                written += self._write_batch(requests[i : i + self.batch])
        return written

    def collate(self, rows: Sequence[Rendered]) -> dict[str, Tensor]:
        """Build the arguments of the model's forward for these rows, on its device, and the labels."""
        return {name: value.to(self.device) for name, value in self.collator(list(rows)).items()}

    def logprobs(self, model: Any, inputs: Mapping[str, Tensor], *, temperature: float) -> Tensor:
        """Compute the log-probabilities with which `model` would draw the labelled tokens: (rows, n - 1).

        Entry i is about token i + 1, and 0 if that token has no label.
        """
        arguments = {name: value for name, value in inputs.items() if name != "labels"}
        labelled = inputs["labels"][:, 1:] != IGNORED
        labelled_at = labelled.any(0).nonzero()[:, 0]
        columns = labelled_at if len(labelled_at) else labelled_at.new_zeros(1)
        logits = model(**arguments, use_cache=False, logits_to_keep=columns).logits
        targets = inputs["input_ids"][:, 1:][:, columns]
        chosen = self._distribution(logits, temperature).gather(2, targets[..., None])[..., 0]
        empty = torch.zeros(labelled.shape, dtype=chosen.dtype, device=chosen.device)
        return empty.index_copy(1, columns, torch.where(labelled[:, columns], chosen, 0.0))

    def _distribution(self, logits: Tensor, temperature: Tensor | float) -> Tensor:
        """Compute the log-probabilities of drawing each token, over the last axis."""
        self._never = self._never.to(logits.device)
        return (logits.float().index_fill(-1, self._never, _NEVER) / temperature).log_softmax(-1)

    @contextlib.contextmanager
    def _inference_mode(self) -> Generator[None]:
        """Switch the model to inference: no gradients, no checkpointing, the run's precision."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self.autocast():
                yield
        finally:
            self.model.train(training)

    def autocast(self) -> torch.autocast:
        """Return a context with the arithmetic that training uses."""
        enabled = self._precision == "bfloat16" and self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def _write_batch(self, requests: Sequence[Request]) -> list[WrittenReply]:
        """Write one batch of replies. Equal conversations with the same frames are read once."""
        logits, cache, mask, position = self._read(requests)
        replies = [
            _ReplyInProgress(request.sampling, np.random.default_rng(request.sampling.seed)) for request in requests
        ]
        rows = list(replies)
        while True:
            tokens, logprobs = self._pick(logits, rows)
            for reply, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
                self._append_token(reply, token, logprob)
            going = [row for row, reply in enumerate(rows) if reply.stop is None]
            if not going:
                return [WrittenReply(reply.reply, tuple(reply.logprobs), reply.ended) for reply in replies]
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
        """Read the conversations. Returns logits (rows, vocabulary), cache, mask (rows, n), next position (rows,)."""
        first: dict[tuple[int, Conversation], int] = {}
        keys = [(id(request.frames), request.conversation) for request in requests]
        of = torch.tensor([first.setdefault(key, len(first)) for key in keys], device=self.device)
        unique = {keys[i]: request for i, request in enumerate(requests)}
        inputs = self.collate([self.renderer.prompt(unique[key].conversation, unique[key].frames) for key in first])
        inputs.pop("labels", None)
        lengths = inputs["attention_mask"].sum(1)
        ends, place = (lengths - 1).unique(return_inverse=True)
        out = self.model(**inputs, use_cache=True, logits_to_keep=ends)
        every = torch.arange(len(first), device=self.device)
        logits = out.logits[every, place]
        position = inputs["position_ids"][0, every, lengths - 1] + 1
        out.past_key_values.batch_select_indices(of)
        return logits[of], out.past_key_values, inputs["attention_mask"][of], position[of]

    def _pick(self, logits: Tensor, replies: Sequence[_ReplyInProgress]) -> tuple[Tensor, Tensor]:
        """Draw the next token of each row. Returns the tokens and their log-probabilities."""
        heat = torch.tensor([reply.sampling.temperature for reply in replies], device=logits.device)[:, None]
        found = self._distribution(logits, torch.where(heat > 0, heat, 1.0))
        cumulative = found.double().exp().cumsum(1)
        dice = torch.tensor([reply.random.random() for reply in replies], dtype=torch.float64, device=logits.device)[
            :, None
        ]
        drawn = torch.searchsorted(cumulative, dice * cumulative[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
        tokens = torch.where(heat > 0, drawn, found.argmax(1, keepdim=True))
        return tokens[:, 0], found.gather(1, tokens)[:, 0]

    def _append_token(self, reply: _ReplyInProgress, token: int, logprob: float) -> None:
        """Add one token to a reply, and finish the reply if it is over. A finished reply does not change."""
        if reply.stop is not None:
            return
        if token in self.tokenizer.ends:
            # A conversation has only <|im_end|> after a reply; another end is not learned from.
            reply.ended = token == self._end
            reply.logprobs += [logprob] * reply.ended
            reply.finish("end", self.tokenizer.text(reply.tokens))
            return
        reply.tokens.append(token)
        reply.logprobs.append(logprob)
        count = len(reply.tokens)
        checked = count % _CHECK_EVERY == 0
        if checked and reply.sampling.concluded(text := self.tokenizer.text(reply.tokens)):
            reply.finish("end", text)
        elif checked and loops(reply.tokens):
            reply.finish("loop", self.tokenizer.text(reply.tokens))
        elif count >= reply.sampling.max_new_tokens:
            reply.finish("limit", self.tokenizer.text(reply.tokens))


@dataclass(slots=True)
class _ReplyInProgress:
    """One reply while it is written."""

    sampling: Sampling
    random: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    stop: StopReason | None = None
    text: str = ""

    def finish(self, stop: StopReason, text: str) -> None:
        self.stop, self.text = stop, text

    @property
    def reply(self) -> Reply:
        return Reply(self.text, tuple(self.tokens), self.stop or "limit")
