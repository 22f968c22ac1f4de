"""The llama.cpp back end: a GGUF pair judges on this machine.

In each round the whole visible conversation is lowered to one flat list. The KV cache keeps the prefix that it has in
common with that list, drops the rest, and evaluates what is new. The memory window, corrections and exchanged orders
need no other mechanism.
"""

from __future__ import annotations

import codecs
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.decoding import MOST_GUESSED, PromptLookup, Sampler, loops, odds, odds_of_opening
from vrt_lite.backends.llamacpp.engine import Model, start_engine
from vrt_lite.backends.llamacpp.heads import Heads
from vrt_lite.backends.llamacpp.kv_cache import KvCache, PrefixCache, Step, count_tokens, split_runs, take_steps
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower, stamp
from vrt_lite.backends.llamacpp.vision import Vision, content_key
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import ContextFullError, OutOfMemoryError
from vrt_lite.interfaces import Encoding, FrameStore, Observe, Sampling, Working, Wrote
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import CONTEXT_STEP, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Image, Odds, Reply, StopReason, Usage, Video
from vrt_lite.protocol.tags import FORMAT
from vrt_lite.scheduler import Batched, InThread, Work, run_alone

NEVER_WRITTEN = (
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Control tokens that a judge never writes in its own turn."""

_LOOP_CHECK_EVERY = 32

Patches = dict[str, tuple[FrameRef, ...]]
"""The frames that each temporal patch shows, by its key."""


Rows: TypeAlias = list[NDArray[np.float32]]
"""Logits (vocabulary,) after each token of a step."""


@dataclass(eq=False)
class Lane:
    """One sequence of the context, for one reply at a time: the conversation that it holds, and what a reply needs.

    `patches` are those of the last conversation.
    """

    lookup: PromptLookup
    cache: KvCache | None = None
    patches: frozenset[str] = frozenset()


class LlamaCppBackend(contextlib.ExitStack):
    """A judge from a text GGUF and its projector; a context manager. Raises ModelError, OutOfMemoryError.

    The namespace of a `cache` with a disk is the projector's digest; without one, every back end encodes all frames.
    """

    def __init__(
        self,
        text: Path,
        projector: Path,
        *,
        profile: Profile,
        settings: EngineSettings | None = None,
        cache: EmbeddingCache | None = None,
    ) -> None:
        super().__init__()
        settings = settings or EngineSettings()
        self._profile = profile
        self.settings = settings
        with contextlib.ExitStack() as opened:
            opened.enter_context(start_engine().echo(settings.verbose))
            self._model = opened.enter_context(Model(text, settings=settings))
            self._vision = opened.enter_context(Vision(projector, self._model, settings=settings, cache=cache))
            self._banned = [self._model.control(name) for name in NEVER_WRITTEN]
            self._digits = [self._model.control(digit) for digit in "012"]
            self._heads = Heads(text, self._model, tuple(profile.answer.head) if profile.answer else ())
            self.enter_context(opened.pop_all())
        self.callback(self._end)
        self._context: Context | None = None
        self._prefixes = PrefixCache(settings.prefixes)
        self.lanes = tuple(Lane(self._new_lookup()) for _ in range(settings.sequences))
        self.guesses = MOST_GUESSED
        self.ended = False
        """Whether it was closed. Replies that waited meanwhile end with OutOfMemoryError."""

    def reset(self) -> None:
        """Forget all that was evaluated and encoded. The next reply computes everything again."""
        self._vision.clear()
        self._prefixes.clear()
        for lane in self.lanes:
            lane.lookup = self._new_lookup()
            if lane.cache:
                lane.cache.truncate(0)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn, if there is no other at the same time."""
        return run_alone(self.answer(self.lanes[0], conversation, frames, sampling=sampling, observe=observe))

    def answer(
        self, lane: Lane, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe
    ) -> Work[Reply]:
        """The judge's next turn, in a lane that no other reply uses. It waits for frames and for the steps of others.

        It waits for nothing while it reads: nobody else may change a cache then.
        """
        observe(Working("decoding frames"))

        def decode(_: Observe) -> float:
            # One request for all frames lets the store decode both clips at once.
            frames.pixels([frame for message in conversation for frame in message.frames])
            return time.perf_counter()

        decoded = yield InThread(decode)
        start = time.perf_counter()
        self._check_open()
        patches: Patches = {}
        items = self._lower(conversation, frames, patches)
        lane.patches = frozenset(patches)
        heads = self._heads.find_places(items, sampling.heads)
        items = items[: 1 + max(heads.values(), default=len(items))]  # what follows the last head has no effect
        cache = self._cache_for(lane, items, sampling.max_new_tokens)
        encoded = self._encode(patches, frames, observe)
        vision_end = time.perf_counter()
        others = [o.cache for o in self.lanes if o.cache and o is not lane]
        if heads:
            read, scores = self._heads.read_scores(cache, items, heads, observe=observe, others=others)
            prefill_end = time.perf_counter()
            reply = Reply("", scores=scores)
        else:
            kept = cache.prefill(items, observe, others=others)
            read = count_tokens(items[kept:])
            logits = cache.context.logits()
            prefill_end = time.perf_counter()
            for run in split_runs(items[kept:]):
                if not isinstance(run, FrameBlock):
                    lane.lookup.learn(run)
            reply = yield from self._write(lane, cache, logits, sampling, observe)
        self._vision.trim(frozenset[str]().union(*(other.patches for other in self.lanes)))
        usage = Usage(
            tokens_prefilled=read,
            tokens_reused=count_tokens(items) - read,
            tokens_generated=len(reply.tokens),
            frames_encoded=sum(len(patches[key]) for key in encoded),
            frames_reused=sum(len(shown) for key, shown in patches.items() if key not in encoded),
            vision_seconds=vision_end - start,
            prefill_seconds=prefill_end - vision_end,
            generate_seconds=reply.usage.generate_seconds,
            waited_seconds=reply.usage.waited_seconds + start - decoded,
        )
        return replace(reply, usage=usage)

    def evaluate(self, steps: Sequence[Step]) -> list[tuple[Rows, float]]:
        """Evaluate what several replies write next, as one batch; for each its logits, and its part of the seconds."""
        self._check_open()
        began = time.perf_counter()
        found = take_steps(steps)
        share = (time.perf_counter() - began) / len(steps)
        return [(rows, share) for rows in found]

    def _check_open(self) -> None:
        if self.ended:
            raise OutOfMemoryError("The engine was closed for lack of memory. Lower --ctx, --max-pixels or --jobs.")

    def _lower(self, conversation: Conversation, frames: FrameStore, patches: Patches) -> list[Item]:
        """The conversation as items. Adds the frames of each patch to `patches`."""
        if self._profile.clock.rule == "text":
            conversation = stamp(conversation)
        return lower(conversation, self._model, lambda part: self._block(part, frames, patches))

    def _block(self, part: Video | Image, frames: FrameStore, patches: Patches) -> FrameBlock:
        """A part's block, by content. Adds the frames of each of its patches to `patches`."""
        if isinstance(part, Image):
            groups, steps = [(part.frame,)], (0,)
        else:
            padded = (*part.frames, part.frames[-1]) if len(part.frames) % 2 else part.frames
            groups = [padded[i : i + 2] for i in range(0, len(padded), 2)]
            steps = self._profile.clock.steps(len(groups), part.seconds_per_patch)
        if self._profile.answer and self._profile.answer.positions == "sequential":
            steps = ()
        keys: list[str] = []
        height = width = 0
        for group in groups:
            pixels = frames.pixels(group)
            height, width = pixels[0].shape[:2]
            key = content_key(pixels)
            keys.append(key)
            patches[key] = group
        return FrameBlock(tuple(keys), steps, height // self._vision.cell, width // self._vision.cell)

    def _new_lookup(self) -> PromptLookup:
        """A prompt lookup that has learned the answer's format."""
        lookup = PromptLookup(self._model.control(digit) for digit in "0123456789")
        for text in FORMAT:
            lookup.learn(self._model.tokens(text, special=False), times=2)
        return lookup

    def _cache_for(self, lane: Lane, items: list[Item], reply_tokens: int) -> KvCache:
        """The lane's cache with room for this conversation and, unless the user set its size, for the longest reply."""
        needed = count_tokens(items) + 2
        cache = lane.cache or self._open_context(lane, self.settings.context or self._bound(items))
        size = min(needed + reply_tokens, self._model.trained_context)
        if size > cache.context.size and self.settings.context is None:
            cache = self._open_context(lane, -(-size // CONTEXT_STEP) * CONTEXT_STEP)
        if needed > cache.context.size:
            raise ContextFullError(
                f"The conversation needs {needed} tokens, but the context holds {cache.context.size}. "
                "Raise --ctx, lower --max-pixels, or shorten the prompt."
            )
        return cache

    def _bound(self, items: list[Item]) -> int:
        """The tokens that all rounds of a conversation that begins with `items` can need."""
        p = self._profile
        largest = max((item.rows * item.columns for item in items if isinstance(item, FrameBlock)), default=0)
        if not p.tool_min_pixels <= largest * p.pixels_per_token <= p.tool_max_pixels:
            largest = p.tool_cells
        return min(p.context_bound(count_tokens(items), largest), self._model.trained_context)

    def _open_context(self, lane: Lane, size: int) -> KvCache:
        """Open a context of this size, with what the one before held; returns the lane's cache.

        If it cannot be opened, nothing is held any more.
        """
        caches = [lane.cache for lane in self.lanes]
        held = [(cache, cache.items, cache.state()) for cache in caches if cache]
        self._close_context()
        self._context = context = Context(self._model, size=size, settings=self.settings)
        for number, (each, cache) in enumerate(zip(self.lanes, caches, strict=True)):
            if cache:  # a reply in progress goes on with it
                cache.move(context)
            each.cache = cache or KvCache(context, self._vision.embeddings, self._prefixes, sequence=number)
        for cache, items, state in held:
            if items:
                cache.restore(items, state)
        assert lane.cache
        return lane.cache

    def _close_context(self) -> None:
        for lane in self.lanes:
            lane.cache = None
        if self._context:
            self._context.close()
            self._context = None

    def _end(self) -> None:
        self.ended = True
        self._close_context()

    def _encode(self, patches: Patches, frames: FrameStore, observe: Observe) -> set[str]:
        """Encode the patches that are not encoded yet; returns their keys."""
        new = [key for key in patches if not self._vision.has(key)]
        for done, key in enumerate(new):
            observe(Encoding(done, len(new)))
            self._vision.encode(key, frames.pixels(patches[key]))
        if new:
            observe(Encoding(len(new), len(new)))
        return set(new)

    def _sampler(self, lane: Lane, sampling: Sampling) -> Sampler:
        return Sampler(temperature=sampling.temperature, seed=sampling.seed, banned=self._banned)

    def _opening_tokens(self, sampling: Sampling) -> list[tuple[int, int]]:
        """The tokens with which a winner and a tie begin, in a line and after a space."""
        texts = [[before + word for word in sampling.openings or ()] for before in ("", " ")]
        pairs = [tuple(self._model.tokens(text, special=False)[0] for text in pair) for pair in texts]
        return [(winner, tie) for winner, tie in pairs if winner != tie] if sampling.openings else []

    def _write(
        self, lane: Lane, cache: KvCache, logits: NDArray[np.float32], sampling: Sampling, observe: Observe
    ) -> Work[Reply]:
        """Write until the turn ends; `logits` are for its first token. The reply's usage has seconds alone.

        At its end the cache holds all tokens before the last one.
        """
        sampler, lookup = self._sampler(lane, sampling), lane.lookup
        openings = self._opening_tokens(sampling)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text, tokens, digit_odds = "", list[int](), dict[int, Odds]()
        most = min(sampling.max_new_tokens, cache.free_tokens)
        stop: StopReason = "limit"
        rows, guessed = [logits], list[int]()
        began, waited = time.perf_counter(), 0.0
        try:
            while len(tokens) < most:
                picked_from = rows.pop(0)
                token = sampler.pick(picked_from)
                if self._model.ends(token):
                    stop = "end"
                    break
                tokens.append(token)
                piece = decoder.decode(self._model.piece(token))
                text += piece
                if token in self._digits:
                    digit_odds[len(text) - 1] = odds(picked_from, self._digits)
                for opening in openings:
                    if token in opening:
                        digit_odds[len(text) - len(piece.lstrip())] = odds_of_opening(picked_from, *opening)
                observe(Wrote(piece))
                if sampling.concluded(text):
                    stop = "end"
                    break
                if len(tokens) % _LOOP_CHECK_EVERY == 0 and loops(tokens):
                    stop = "loop"
                    break
                if len(tokens) == most:
                    break
                lookup.add(token)
                if guessed and guessed[0] == token:
                    guessed.pop(0)
                    continue
                wrong = len(guessed)
                guessed = lookup.guess(min(self.guesses, cache.free_tokens + wrong - 1))
                asked = time.perf_counter()
                rows, share = yield Batched(self.evaluate, Step(cache, len(cache.items) - wrong, [token, *guessed]))
                waited += time.perf_counter() - asked - share
                del guessed[len(rows) - 1 :]
        finally:
            cache.truncate(len(cache.items) - len(guessed))
        spent = time.perf_counter() - began - waited
        text += decoder.decode(b"", final=True)
        usage = Usage(generate_seconds=spent, waited_seconds=waited)
        return Reply(text, tuple(tokens), stop, digit_odds, usage)
