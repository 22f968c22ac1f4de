"""Random conversations, answered by a back end that keeps what it can and by one that keeps nothing: the same bits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import Lane, LlamaCppBackend
from vrt_lite.backends.llamacpp.decoding import Sampler
from vrt_lite.interfaces import Sampling, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find
from vrt_lite.profile import Clock
from vrt_lite.protocol.messages import (
    Conversation,
    FrameRef,
    Generated,
    Image,
    Message,
    Part,
    Reply,
    Text,
    Video,
    apply_window,
)

FILES = find("vrt-tiny-0")
SEEDS = pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.nightly)], ids=str)
SIZES = ((56, 84), (84, 56), (112, 56))


class Noise:
    """Frames of noise, each clip's its own; clips are numbered by `clips`."""

    def __init__(self, clips: tuple[int, int]) -> None:
        self.clips = clips

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        found: list[NDArray[np.uint8]] = []
        for frame in frames:
            clip = self.clips[frame.clip]
            width, height = SIZES[clip % len(SIZES)]
            seeded = np.random.default_rng(1000 * clip + frame.index)
            found.append(seeded.integers(0, 256, (height, width, 3), dtype=np.uint8))
        return found


@dataclass
class Listening(Sampler):
    """A sampler that remembers the logits it chose from."""

    inner: Sampler
    heard: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])

    def pick(self, logits: NDArray[np.float32]) -> int:
        self.heard.append(logits.copy())
        return self.inner.pick(logits)


class Listened(LlamaCppBackend):
    """The back end, and the logits behind its last reply."""

    def _sampler(self, lane: Lane, sampling: Sampling) -> Sampler:
        self.listening = Listening(super()._sampler(lane, sampling))
        return self.listening

    def reply_heard(
        self, conversation: Conversation, store: Noise, sampling: Sampling
    ) -> tuple[Reply, NDArray[np.float32]]:
        reply = self.reply(conversation, store, sampling=sampling, observe=ignore)
        return reply, np.stack(self.listening.heard)


def opened(**settings: int) -> Listened:
    profile = replace(FILES.profile, max_new_tokens=64, clock=Clock("truncate"))
    engine = EngineSettings(gpu_layers=0, threads=1, **settings)
    return Listened(FILES.text, FILES.projector, profile=profile, settings=engine)


@pytest.fixture(scope="module")
def keeping() -> Iterator[Listened]:
    with opened(context=2048, prefixes=3) as backend:
        yield backend


@pytest.fixture(scope="module")
def forgetting() -> Iterator[Listened]:
    with opened(context=4096, prefixes=0) as backend:
        yield backend


def begin(draw: random.Random) -> Conversation:
    """A short opening of two videos, in either order; sometimes with an odd number of frames, or at one position."""
    videos: list[Part] = [
        Video(tuple(FrameRef(clip, i) for i in range(draw.choice((2, 3, 4)))), draw.choice((0.4, 1.5, 4.0)))
        for clip in (0, 1)
    ]
    if draw.random() < 0.3:
        videos.reverse()
    task = draw.choice(("Which is better?", "A red circle moves down. Answer as TA=0, VQ=1, MQ=0, OA=1."))
    return (Message("system", (Text("You judge."),)), Message("user", (*videos, Text(task))))


def go_on(transcript: Conversation, reply: Reply, draw: random.Random) -> Conversation:
    """What follows a reply: frames, a correction, or the same turn again."""
    if draw.random() < 0.15:
        return transcript
    said = Message("assistant", (Generated(reply.text, reply.tokens),))
    if draw.random() < 0.3:
        return (*transcript, said, Message("user", (Text("That cannot be used. TA=0, VQ=1?"),)))
    asked = [FrameRef(draw.randrange(2), draw.randrange(48)) for _ in range(draw.randrange(1, 5))]
    return (*transcript, said, Message("user", tuple(map(Image, asked)), tool_outcome=True))


@SEEDS
def test_kept_and_fresh_are_bit_equal(seeds: range, keeping: Listened, forgetting: Listened) -> None:
    reused = 0
    for seed in seeds:
        draw = random.Random(seed)
        store = Noise((draw.randrange(5), draw.randrange(5)))
        transcript = begin(draw)
        for _ in range(draw.randrange(1, 5)):
            sampling = Sampling(draw.randrange(1, 40), draw.choice((0.0, 0.0, 1.2)), seed)
            shown = apply_window(transcript, window=1, stand_in=draw.choice(("", "(forgotten)")))
            kept, logits = keeping.reply_heard(shown, store, sampling)
            forgetting.reset()
            fresh, anew = forgetting.reply_heard(shown, store, sampling)
            assert fresh.usage.tokens_reused == fresh.usage.frames_reused == 0 or len(set(shown[1].frames)) < 2
            assert (kept.tokens, kept.odds, kept.stop) == (fresh.tokens, fresh.odds, fresh.stop), seed
            assert np.array_equal(logits, anew), f"conversation {seed}: off by {np.abs(logits - anew).max()}"
            reused += kept.usage.tokens_reused
            transcript = go_on(transcript, kept, draw)
    assert reused > 0


def test_the_real_opening_with_guesses_and_without(keeping: Listened, forgetting: Listened) -> None:
    """The same reply token for token, whether known text is guessed at or not."""
    store = Noise((1, 2))
    conversation = opening(Pair("A red circle moving down.", (3.0, 4.0)), FILES.profile)
    for seed in range(6):
        sampling = Sampling(200, temperature=0.7 * (seed > 0), seed=seed)
        forgetting.reset()
        forgetting.guesses = 0
        plain, logits = forgetting.reply_heard(conversation, store, sampling)
        quick, anew = keeping.reply_heard(conversation, store, sampling)
        assert plain.tokens == quick.tokens
        assert np.array_equal(logits, anew)


def test_a_clip_shown_first_again_is_not_read_again(forgetting: Listened) -> None:
    """Clips in all ordered pairs: each clip's frames are encoded once, and read once as video 1."""
    clips = 4
    with opened(context=2048, prefixes=clips) as backend:
        encoded, read = 0, list[int]()
        for a in range(clips):
            for b in range(a + 1, clips):
                for first, second in ((a, b), (b, a)):
                    conversation = opening(Pair("A cat.", (3.0, 3.0)), FILES.profile)
                    store = Noise((first, second))
                    reply, logits = backend.reply_heard(conversation, store, Sampling(8))
                    encoded += reply.usage.frames_encoded
                    read.append(reply.usage.tokens_reused)
                    forgetting.reset()
                    fresh, anew = forgetting.reply_heard(conversation, store, Sampling(8))
                    assert fresh.tokens == reply.tokens
                    assert np.array_equal(logits, anew)
        assert encoded == clips * 4
        assert len(read) == clips * (clips - 1)
        opening_alone = min(reused for reused in read if reused)
        assert sum(reused <= opening_alone for reused in read) == clips


def context_size(backend: LlamaCppBackend) -> int:
    assert backend._context
    return backend._context.size


def test_a_context_grows_with_what_it_holds(forgetting: Listened) -> None:
    """Replies beyond the usual length: the larger context takes over, and nothing is read twice."""
    profile = replace(FILES.profile, max_new_tokens=64, rounds=2, clock=Clock("truncate"))
    engine = EngineSettings(gpu_layers=0, threads=1)
    store = Noise((1, 2))
    conversation = opening(Pair("A red circle moving down.", (3.0, 4.0)), profile)
    with Listened(FILES.text, FILES.projector, profile=profile, settings=engine) as growing:
        sizes: list[int] = []
        for seed, most in enumerate((40, 40, 2500)):
            reply, logits = growing.reply_heard(conversation, store, Sampling(most, 3.0, seed))
            sizes.append(context_size(growing))
            forgetting.reset()
            fresh, anew = forgetting.reply_heard(conversation, store, Sampling(len(reply.tokens), 3.0, seed))
            assert (reply.tokens, reply.odds) == (fresh.tokens, fresh.odds)
            assert np.array_equal(logits[: len(anew)], anew)
            if seed:
                assert reply.usage.tokens_prefilled < 20
            said = Message("assistant", (Generated(reply.text, reply.tokens),))
            conversation = (*conversation, said, Message("user", (Text("Again."),)))
    assert sizes[0] == sizes[1] < sizes[2]
