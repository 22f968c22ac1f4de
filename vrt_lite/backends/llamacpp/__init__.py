"""The llama.cpp back end: a GGUF pair judges on this machine.

The context is a value. Each round the whole visible conversation is lowered to one flat list; what the KV cache
holds is kept as far as the two lists agree, the rest is cut and evaluated. The memory window, corrections and
exchanged orders need no other mechanism.
"""

from __future__ import annotations

import codecs
import contextlib
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.context import Context
from vrt_lite.backends.llamacpp.engine import Model, engine_log
from vrt_lite.backends.llamacpp.held import Held, Prefixes, runs, tokens_in
from vrt_lite.backends.llamacpp.lookup import Lookup
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower
from vrt_lite.backends.llamacpp.positions import patch_positions
from vrt_lite.backends.llamacpp.reading import FRAME, Reading
from vrt_lite.backends.llamacpp.sampling import Sampler, loops, odds
from vrt_lite.backends.llamacpp.vision import Vision, content_key
from vrt_lite.backends.llamacpp.writing import MOST_GUESSED, written
from vrt_lite.backends.settings import EngineSettings
from vrt_lite.embeddings import EmbeddingCache
from vrt_lite.errors import ContextFullError
from vrt_lite.interfaces import Encoding, FrameStore, Observe, Sampling, Wrote, ignore
from vrt_lite.profile import CONTEXT_STEP, Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Image, Odds, Reply, StopReason, Usage, Video
from vrt_lite.protocol.tags import FORMAT
from vrt_lite.resize import CELL

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

Frames = dict[str, tuple[FrameRef, ...]]


class LlamaCppBackend:
    """A judge from a text GGUF and its projector; a context manager. Raises ModelError, OutOfMemoryError.

    The namespace of a `cache` with a disk is the projector's digest; without one, frames are encoded once a back end.
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
        settings = settings or EngineSettings()
        engine_log().echo = settings.verbose
        self._profile = profile
        self._settings = settings
        self._free = contextlib.ExitStack()
        try:
            self._model = self._free.enter_context(Model(text, settings=settings))
            vision = Vision(projector, self._model, settings=settings, cache=cache)
            self._vision = self._free.enter_context(vision)
            self._banned = [self._model.control(name) for name in NEVER_WRITTEN]
            self._digits = [self._model.control(digit) for digit in "012"]
        except BaseException:
            self._free.close()
            raise
        self._held: Held | None = None
        self._prefixes = Prefixes(settings.prefixes)
        self._lookup = self._primed()
        self.guesses = MOST_GUESSED

    def __enter__(self) -> LlamaCppBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context, the projector and the model, in this order."""
        if self._held:
            self._held.context.close()
        self._free.close()

    @property
    def context_size(self) -> int:
        """Tokens that the context holds at most; 0 before the first reply."""
        return self._held.context.size if self._held else 0

    def reset(self) -> None:
        """Forget all that was read and seen: the next reply computes everything anew."""
        self._vision.forget()
        self._prefixes.clear()
        self._lookup = self._primed()
        if self._held:
            self._held.cut(0)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn."""
        # One request for all frames lets the store decode both clips at once.
        frames.pixels([frame for message in conversation for frame in message.frames])
        patches: Frames = {}
        items = lower(conversation, self._model, lambda part: self._block(part, frames, patches))
        began = time.perf_counter()
        held = self._room_for(items, sampling.max_new_tokens)
        encoded = self._encode(patches, frames, observe)
        seen = time.perf_counter()
        kept = held.read(items, observe)
        for run in runs(items[kept:]):
            if not isinstance(run, FrameBlock):
                self._lookup.learn(run)
        read = time.perf_counter()
        reply = self._generate(held, sampling, observe)
        wrote = time.perf_counter()
        self._vision.trim(frozenset(patches))
        usage = Usage(
            tokens_prefilled=tokens_in(items[kept:]),
            tokens_reused=tokens_in(items[:kept]),
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
        held = self._room_for(items, 0)
        self._encode(patches, frames, ignore)
        held.cut(0)
        tokens: list[int] = []
        positions: list[NDArray[np.int32]] = [np.empty((4, 0), np.int32)]
        embeddings: list[NDArray[np.float32]] = [np.empty((0, self._model.width), np.float32)]
        logits: list[NDArray[np.float32]] = []
        for run in runs(items):
            start = held.position
            if isinstance(run, FrameBlock):
                held.show(run)
                tokens += [FRAME] * run.tokens
                positions += [patch_positions(start, step, run.rows, run.columns) for step in run.steps]
                embeddings += [self._vision.embeddings(key) for key in run.patches]
            else:
                logits.append(np.stack(held.write(run)))
                tokens += run
                positions.append(np.tile(np.arange(start, start + len(run), dtype=np.int32), (4, 1)))
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

    def _primed(self) -> Lookup:
        """What guesses known text, with the answer's format known for sure."""
        lookup = Lookup(self._model.control(digit) for digit in "0123456789")
        for text in FORMAT:
            lookup.learn(self._model.tokens(text, special=False), times=2)
        return lookup

    def _room_for(self, items: list[Item], more: int) -> Held:
        """A context for this conversation and, if none was asked for, for a reply of `more` tokens."""
        needed = tokens_in(items) + 2
        held = self._held or self._open_context(self._settings.context or self._bound(items))
        wanted = min(needed + more, self._model.trained_context)
        if wanted > held.context.size and self._settings.context is None:
            held = self._open_context(-(-wanted // CONTEXT_STEP) * CONTEXT_STEP)
        if needed > held.context.size:
            raise ContextFullError(
                f"The conversation needs {needed} tokens, but the context holds {held.context.size}. "
                "Raise --ctx, lower --max-pixels, or shorten the prompt."
            )
        return held

    def _bound(self, items: list[Item]) -> int:
        """What all rounds of a conversation that begins with `items` can need."""
        p = self._profile
        largest = max((item.rows * item.columns for item in items if isinstance(item, FrameBlock)), default=0)
        if (p.tool_min_pixels, p.tool_max_pixels) != (p.min_pixels, p.max_pixels):
            largest = p.tool_cells
        return min(p.context_bound(tokens_in(items), largest), self._model.trained_context)

    def _open_context(self, size: int) -> Held:
        """A context of this size that holds what the one before it held."""
        before = self._held
        state = before.context.state() if before and before.items else None
        if before:
            self._held = None
            before.context.close()
        context = Context(self._model, size=size, settings=self._settings)
        self._held = Held(context, self._vision.embeddings, self._prefixes)
        if before and state is not None:
            self._held.take_over(before.items, state)
        return self._held

    def _encode(self, patches: Frames, frames: FrameStore, observe: Observe) -> set[str]:
        """Encode what was never encoded; the keys of those."""
        new = [key for key in patches if not self._vision.holds(key)]
        for done, key in enumerate(new):
            observe(Encoding(done, len(new)))
            self._vision.encode(key, frames.pixels(patches[key]))
        if new:
            observe(Encoding(len(new), len(new)))
        return set(new)

    def _sampler(self, sampling: Sampling) -> Sampler:
        return Sampler(temperature=sampling.temperature, seed=sampling.seed, banned=self._banned)

    def _generate(self, held: Held, sampling: Sampling, observe: Observe) -> Reply:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        text, tokens, found = "", list[int](), dict[int, Odds]()
        most = min(sampling.max_new_tokens, held.room)
        stop: StopReason = "limit"
        with contextlib.closing(written(held, self._sampler(sampling), self._lookup, guesses=self.guesses)) as writing:
            for token, logits in writing if most > 0 else ():
                if self._model.ends(token):
                    stop = "end"
                    break
                tokens.append(token)
                piece = decoder.decode(self._model.piece(token))
                text += piece
                if token in self._digits:
                    found[len(text) - 1] = odds(logits, self._digits)
                observe(Wrote(piece))
                if ">" in piece and sampling.concluded(text):
                    stop = "end"
                    break
                if len(tokens) % _LOOP_CHECK_EVERY == 0 and loops(tokens):
                    stop = "loop"
                    break
                if len(tokens) == most:
                    break
        text += decoder.decode(b"", final=True)
        return Reply(text, tuple(tokens), stop, found)
