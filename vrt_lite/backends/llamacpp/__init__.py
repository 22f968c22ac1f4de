"""The llama.cpp back end: a GGUF pair judges on this machine.

The context is a value. Each round the whole visible conversation is lowered to one flat list; what the KV cache
holds is kept as far as the two lists agree, the rest is cut and evaluated. The memory window, corrections and
exchanged orders need no other mechanism.
"""

from __future__ import annotations

import codecs
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.engine import Context, Model, engine_log
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower
from vrt_lite.backends.llamacpp.positions import patch_positions
from vrt_lite.backends.llamacpp.reading import FRAME, Reading
from vrt_lite.backends.llamacpp.sampling import Sampler, loops, odds
from vrt_lite.backends.llamacpp.vision import Vision, content_key
from vrt_lite.errors import ContextFullError
from vrt_lite.interfaces import Encoding, FrameStore, Observe, Prefill, Sampling, Wrote, ignore
from vrt_lite.profile import CELL, PIXELS_PER_TOKEN, Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Image, Odds, Reply, StopReason, Usage, Video

NEVER_WRITTEN = (
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Control tokens that a judge has no use for in its own turn."""

_LOOP_CHECK_EVERY = 32
_TURN_OVERHEAD = 64
_CONTEXT_STEP = 256

Frames = dict[str, tuple[FrameRef, ...]]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What a user may set about the engine; None lets it choose.

    `exact` rounds nothing to F16 on the way (keys, values, attention): for comparing with the reference.
    """

    context: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    verbose: bool = False
    exact: bool = False


class LlamaCppBackend:
    """A judge from a text GGUF and its projector; a context manager. Raises ModelError, OutOfMemoryError."""

    def __init__(
        self, text: Path, projector: Path, *, profile: Profile, settings: EngineSettings | None = None
    ) -> None:
        settings = settings or EngineSettings()
        engine_log().echo = settings.verbose
        self._profile = profile
        self._settings = settings
        self._free = contextlib.ExitStack()
        try:
            self._model = self._free.enter_context(Model(text, gpu_layers=settings.gpu_layers))
            vision = Vision(projector, self._model, threads=settings.threads, exact=settings.exact)
            self._vision = self._free.enter_context(vision)
            self._banned = [self._model.control(name) for name in NEVER_WRITTEN]
            self._digits = [self._model.control(digit) for digit in "012"]
        except BaseException:
            self._free.close()
            raise
        self._context: Context | None = None
        self._held: list[Item] = []

    def __enter__(self) -> LlamaCppBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context, the projector and the model, in this order."""
        if self._context:
            self._context.close()
        self._free.close()

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        # One request for all frames lets the store decode both clips at once.
        frames.pixels([frame for message in conversation for frame in message.frames])
        patches: Frames = {}
        items = lower(conversation, self._model, lambda part: self._block(part, frames, patches))
        began = time.perf_counter()
        context = self._room_for(items)
        encoded = self._encode(patches, frames, observe)
        seen = time.perf_counter()
        kept = self._agreed(items)
        position = self._evaluate(context, items, kept, observe)
        read = time.perf_counter()
        reply = self._generate(context, position, sampling, observe)
        wrote = time.perf_counter()
        self._vision.trim(frozenset(patches))
        usage = Usage(
            tokens_prefilled=_tokens(items[kept:]),
            tokens_reused=_tokens(items[:kept]),
            tokens_generated=len(reply.tokens),
            frames_encoded=sum(len(patches[key]) for key in encoded),
            frames_reused=sum(len(shown) for key, shown in patches.items() if key not in encoded),
            vision_seconds=seen - began,
            prefill_seconds=read - seen,
            generate_seconds=wrote - read,
        )
        return replace(reply, usage=usage)

    def read(self, conversation: Conversation, frames: FrameStore) -> Reading:
        """The conversation read from its start, with what every stage gave: for comparisons, not for judging."""
        patches: Frames = {}
        items = lower(conversation, self._model, lambda part: self._block(part, frames, patches))
        context = self._room_for(items)
        self._encode(patches, frames, ignore)
        context.cut(0)
        self._held = []
        tokens: list[int] = []
        positions: list[NDArray[np.int32]] = [np.empty((4, 0), np.int32)]
        embeddings: list[NDArray[np.float32]] = [np.empty((0, self._model.width), np.float32)]
        logits: list[NDArray[np.float32]] = []
        position = 0
        for run in _runs(items):
            if isinstance(run, FrameBlock):
                self._feed_block(context, run, position)
                tokens += [FRAME] * run.tokens
                positions += [patch_positions(position, step, run.rows, run.columns) for step in run.steps]
                embeddings += [self._vision.embeddings(key) for key in run.patches]
                position += run.positions
            else:
                logits.append(context.feed_for_logits(run, position))
                tokens += run
                positions.append(np.tile(np.arange(position, position + len(run), dtype=np.int32), (4, 1)))
                position += len(run)
        self._held = items
        planes = np.concatenate(positions, axis=1)[:3].astype(np.int64)
        return Reading(np.array(tokens), planes, np.concatenate(embeddings), np.concatenate(logits))

    def _block(self, part: Video | Image, frames: FrameStore, patches: Frames) -> FrameBlock:
        """A part's block, by content; notes in `patches` which frames each of its patches shows."""
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

    def _room_for(self, items: list[Item]) -> Context:
        """A context that can hold this conversation to its end, by the profile's bounds."""
        needed = _tokens(items) + 1
        context = self._context
        if context is None or (needed > context.size and self._settings.context is None):
            # A conversation's first round tells its bound; a later one that outgrows it, of larger clips, a new one.
            size = self._settings.context or self._bound(items)
            if context is None or size > context.size:
                context = self._open_context(size)
        if needed > context.size:
            raise ContextFullError(
                f"The conversation needs {needed} tokens, but the context holds {context.size}. "
                "Raise --ctx, lower --max-pixels, or shorten the prompt."
            )
        return context

    def _bound(self, items: list[Item]) -> int:
        """(N_in + p·N_ex)·V_t + text: what all rounds of a conversation that begins with `items` can need."""
        p = self._profile
        cells = max((b.rows * b.columns for b in items if isinstance(b, FrameBlock)), default=0)
        tool_frames = p.frames_per_call * min(p.window, p.rounds - 1) * (cells + 2)
        text = p.rounds * (p.max_new_tokens + _TURN_OVERHEAD)
        total = _tokens(items) + tool_frames + text
        return min(-(-total // _CONTEXT_STEP) * _CONTEXT_STEP, self._model.trained_context)

    def _open_context(self, size: int) -> Context:
        if self._context:
            self._context.close()
        self._held = []
        largest = self._profile.max_pixels // PIXELS_PER_TOKEN
        settings = self._settings
        self._context = Context(
            self._model, size=size, largest_block=largest, threads=settings.threads, exact=settings.exact
        )
        return self._context

    def _encode(self, patches: Frames, frames: FrameStore, observe: Observe) -> set[str]:
        """Encode what was never encoded; the keys of those."""
        new = [key for key in patches if not self._vision.holds(key)]
        for done, key in enumerate(new):
            observe(Encoding(done, len(new)))
            self._vision.encode(key, frames.pixels(patches[key]))
        if new:
            observe(Encoding(len(new), len(new)))
        return set(new)

    def _agreed(self, items: list[Item]) -> int:
        """How many leading items the cache holds already. The last is always evaluated: its logits are needed."""
        kept = 0
        for held, item in zip(self._held, items[:-1], strict=False):
            if held != item:
                break
            kept += 1
        return kept

    def _evaluate(self, context: Context, items: list[Item], kept: int, observe: Observe) -> int:
        """Cut what does not agree, evaluate what is new; the position after the last item."""
        position = sum(1 if isinstance(item, int) else item.positions for item in items[:kept])
        context.cut(position)
        self._held = items[:kept]
        done, total = 0, _tokens(items[kept:])
        observe(Prefill(0, total))
        for run in _runs(items[kept:]):
            if isinstance(run, FrameBlock):
                self._feed_block(context, run, position)
                position += run.positions
                done += run.tokens
                self._held.append(run)
                observe(Prefill(done, total))
                continue
            for fed in context.feed(run, position):
                observe(Prefill(done + fed, total))
            position += len(run)
            done += len(run)
            self._held.extend(run)
        return position

    def _feed_block(self, context: Context, block: FrameBlock, start: int) -> None:
        before = -1
        for key, step in zip(block.patches, block.steps, strict=True):
            positions = patch_positions(start, step, block.rows, block.columns)
            feed = context.feed_patch_in_order if step == before else context.feed_patch
            feed(self._vision.embeddings(key), positions)
            before = step

    def _generate(self, context: Context, position: int, sampling: Sampling, observe: Observe) -> Reply:
        sampler = Sampler(temperature=sampling.temperature, seed=sampling.seed, banned=self._banned)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text, tokens, found = "", list[int](), dict[int, Odds]()
        stop: StopReason = "limit"
        room = context.size - _tokens(self._held)
        for _ in range(min(sampling.max_new_tokens, room)):
            logits = context.logits()
            token = sampler.pick(logits)
            if self._model.ends(token):
                stop = "end"
                break
            tokens.append(token)
            piece = decoder.decode(self._model.piece(token))
            text += piece
            if token in self._digits:
                found[len(text) - 1] = odds(logits, self._digits)
            observe(Wrote(piece))
            if len(tokens) % _LOOP_CHECK_EVERY == 0 and loops(tokens):
                stop = "loop"
                break
            for _ in context.feed([token], position):
                position += 1
            self._held.append(token)
        text += decoder.decode(b"", final=True)
        return Reply(text, tuple(tokens), stop, found)


def _tokens(items: list[Item]) -> int:
    return sum(1 if isinstance(item, int) else item.tokens for item in items)


def _runs(items: list[Item]) -> Iterator[list[int] | FrameBlock]:
    """Consecutive tokens as one run, blocks by themselves."""
    run: list[int] = []
    for item in items:
        if isinstance(item, int):
            run.append(item)
            continue
        if run:
            yield run
        yield item
        run = []
    if run:
        yield run
