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
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.decoding import (
    MOST_GUESSED,
    Lane,
    Lanes,
    PromptLookup,
    Sampler,
    StepBatcher,
    generate_tokens,
    loops,
    odds,
)
from vrt_lite.backends.llamacpp.engine import Model, start_engine
from vrt_lite.backends.llamacpp.kv_cache import KvCache, PrefixCache, Step, count_tokens, split_runs, take_steps
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower
from vrt_lite.backends.llamacpp.vision import Vision, content_key
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import ContextFullError
from vrt_lite.interfaces import Encoding, Event, FrameStore, Observe, Sampling, Working, Wrote
from vrt_lite.machine import EngineSettings
from vrt_lite.profile import CELL, CONTEXT_STEP, PIXELS_PER_TOKEN, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Image, Odds, Reply, StopReason, Usage, Video
from vrt_lite.protocol.tags import FORMAT

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
        self._settings = settings
        with contextlib.ExitStack() as opened:
            opened.enter_context(start_engine().echo(settings.verbose))
            self._model = opened.enter_context(Model(text, settings=settings))
            self._vision = opened.enter_context(Vision(projector, self._model, settings=settings, cache=cache))
            self._banned = [self._model.control(name) for name in NEVER_WRITTEN]
            self._digits = [self._model.control(digit) for digit in "012"]
            self.enter_context(opened.pop_all())
        self.callback(self._close_context)
        self._context: Context | None = None
        self._prefixes = PrefixCache(settings.prefixes)
        self._lanes = Lanes(Lane(self._new_lookup()) for _ in range(settings.sequences))
        self._batcher = StepBatcher(self._take_steps)
        self.guesses = MOST_GUESSED

    def reset(self) -> None:
        """Forget all that was evaluated and encoded. The next reply computes everything again."""
        self._vision.clear()
        self._prefixes.clear()
        for lane in self._lanes:
            lane.lookup = self._new_lookup()
            if lane.cache:
                lane.cache.truncate(0)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn. Several threads may call it at once: as many as there are sequences get a reply."""
        with self._lanes.take(observe) as lane, self._batcher.reply():
            return self._reply(lane, conversation, frames, sampling, observe)

    def _reply(
        self, lane: Lane, conversation: Conversation, frames: FrameStore, sampling: Sampling, observe: Observe
    ) -> Reply:
        observe(Working("decoding frames"))
        # One request for all frames lets the store decode both clips at once.
        frames.pixels([frame for message in conversation for frame in message.frames])
        patches: Patches = {}
        items = lower(conversation, self._model, lambda part: self._block(part, frames, patches))
        lane.patches = frozenset(patches)
        with self._batcher.alone():
            if self._model.abort_check:
                self._model.abort_check.observe = observe
            start = time.perf_counter()
            cache = self._cache_for(lane, items, sampling.max_new_tokens)
            encoded = self._encode(patches, frames, observe)
            vision_end = time.perf_counter()
            kept = cache.prefill(items, observe, others=[o.cache for o in self._lanes if o.cache and o is not lane])
            logits = cache.context.logits()
            prefill_end, waited = time.perf_counter(), self._batcher.waited_seconds
        for run in split_runs(items[kept:]):
            if not isinstance(run, FrameBlock):
                lane.lookup.learn(run)
        reply = self._generate(lane, cache, logits, sampling, observe)
        generate_end, waited_at_end = time.perf_counter(), self._batcher.waited_seconds
        with self._batcher.alone():
            self._vision.trim(frozenset[str]().union(*(other.patches for other in self._lanes)))
        usage = Usage(
            tokens_prefilled=count_tokens(items[kept:]),
            tokens_reused=count_tokens(items[:kept]),
            tokens_generated=len(reply.tokens),
            frames_encoded=sum(len(patches[key]) for key in encoded),
            frames_reused=sum(len(shown) for key, shown in patches.items() if key not in encoded),
            vision_seconds=vision_end - start,
            prefill_seconds=prefill_end - vision_end,
            generate_seconds=generate_end - prefill_end - (waited_at_end - waited),
            waited_seconds=self._batcher.waited_seconds,
        )
        return replace(reply, usage=usage)

    def _take_steps(self, steps: Sequence[Step]) -> list[list[NDArray[np.float32]]]:
        """Evaluate what replies write next. The observer of each may stop it."""
        observers = [self._lanes[step.cache.sequence].observe for step in steps]

        def observe(event: Event) -> None:
            for each in observers:
                each(event)

        if self._model.abort_check:
            self._model.abort_check.observe = observe
        return take_steps(steps)

    def _block(self, part: Video | Image, frames: FrameStore, patches: Patches) -> FrameBlock:
        """A part's block, by content. Adds the frames of each of its patches to `patches`."""
        if isinstance(part, Image):
            groups, steps = [(part.frame,)], (0,)
        else:
            padded = (*part.frames, part.frames[-1]) if len(part.frames) % 2 else part.frames
            groups = [padded[i : i + 2] for i in range(0, len(padded), 2)]
            steps = self._profile.clock.steps(len(groups), part.seconds_per_patch)
        keys: list[str] = []
        height = width = 0
        for group in groups:
            pixels = frames.pixels(group)
            height, width = pixels[0].shape[:2]
            key = content_key(pixels)
            keys.append(key)
            patches[key] = group
        return FrameBlock(tuple(keys), steps, height // CELL, width // CELL)

    def _new_lookup(self) -> PromptLookup:
        """A prompt lookup that has learned the answer's format."""
        lookup = PromptLookup(self._model.control(digit) for digit in "0123456789")
        for text in FORMAT:
            lookup.learn(self._model.tokens(text, special=False), times=2)
        return lookup

    def _cache_for(self, lane: Lane, items: list[Item], reply_tokens: int) -> KvCache:
        """The lane's cache with room for this conversation and, unless the user set its size, for the longest reply."""
        needed = count_tokens(items) + 2
        cache = lane.cache or self._open_context(lane, self._settings.context or self._bound(items))
        size = min(needed + reply_tokens, self._model.trained_context)
        if size > cache.context.size and self._settings.context is None:
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
        if not p.tool_min_pixels <= largest * PIXELS_PER_TOKEN <= p.tool_max_pixels:
            largest = p.tool_cells
        return min(p.context_bound(count_tokens(items), largest), self._model.trained_context)

    def _open_context(self, lane: Lane, size: int) -> KvCache:
        """Open a context of this size, with what the one before held; returns the lane's cache."""
        held = [(lane.cache, lane.cache.items, lane.cache.state()) for lane in self._lanes if lane.cache]
        self._close_context()
        self._context = context = Context(self._model, size=size, settings=self._settings)
        for number, each in enumerate(self._lanes):
            if each.cache:
                each.cache.move(context)
            else:
                each.cache = KvCache(context, self._vision.embeddings, self._prefixes, sequence=number)
        for cache, items, state in held:
            if items:
                cache.restore(items, state)
        assert lane.cache
        return lane.cache

    def _close_context(self) -> None:
        if self._context:
            self._context.close()
            self._context = None

    def _encode(self, patches: Patches, frames: FrameStore, observe: Observe) -> set[str]:
        """Encode the patches that are not encoded yet; returns their keys."""
        new = [key for key in patches if not self._vision.has(key)]
        for done, key in enumerate(new):
            observe(Encoding(done, len(new)))
            self._vision.encode(key, frames.pixels(patches[key]))
        if new:
            observe(Encoding(len(new), len(new)))
        return set(new)

    def _sampler(self, sampling: Sampling) -> Sampler:
        return Sampler(temperature=sampling.temperature, seed=sampling.seed, banned=self._banned)

    def _generate(
        self, lane: Lane, cache: KvCache, logits: NDArray[np.float32], sampling: Sampling, observe: Observe
    ) -> Reply:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text, tokens, digit_odds = "", list[int](), dict[int, Odds]()
        most = min(sampling.max_new_tokens, cache.free_tokens)
        stop: StopReason = "limit"
        sampler = self._sampler(sampling)
        generated = generate_tokens(cache, logits, sampler, lane.lookup, self._batcher, guesses=self.guesses)
        with contextlib.closing(generated):
            for token, picked_from in generated if most > 0 else ():
                if self._model.ends(token):
                    stop = "end"
                    break
                tokens.append(token)
                piece = decoder.decode(self._model.piece(token))
                text += piece
                if token in self._digits:
                    digit_odds[len(text) - 1] = odds(picked_from, self._digits)
                observe(Wrote(piece))
                if sampling.concluded(text):
                    stop = "end"
                    break
                if len(tokens) % _LOOP_CHECK_EVERY == 0 and loops(tokens):
                    stop = "loop"
                    break
                if len(tokens) == most:
                    break
        text += decoder.decode(b"", final=True)
        return Reply(text, tuple(tokens), stop, digit_odds)
