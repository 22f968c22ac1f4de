"""The llama.cpp back end with the bundled judge: what is kept is exact, and nothing is computed twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import EngineSettings, LlamaCppBackend
from vrt_lite.backends.llamacpp.decoding import Sampler, loops, odds
from vrt_lite.errors import ContextFullError, ModelError
from vrt_lite.interfaces import Encoding, Event, Prefill, Sampling, Working, Wrote, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.models import find
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Part, Reply, Text, Video

FILES = find("vrt-tiny-0")
PAIR = Pair("A red circle moving down.", (3.0, 3.0))
SHORT = Sampling(24)


class Drawn:
    """A store that draws frames: a disc that moves, on noise; each clip its own. Counts what it drew."""

    def __init__(self, size: tuple[int, int] = (252, 140), seed: int = 0) -> None:
        self.size = size
        self.seed = seed

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [self._draw(frame) for frame in frames]

    def _draw(self, frame: FrameRef) -> NDArray[np.uint8]:
        width, height = self.size
        noise = np.random.default_rng(self.seed + frame.clip).integers(60, 120, (height, width, 3), dtype=np.uint8)
        y, x = np.mgrid[:height, :width]
        disc = (x - width // 2) ** 2 + (y - height * (frame.index + 5) // 60) ** 2 < (height // 6) ** 2
        noise[disc] = (220, 30, 30) if frame.clip == 0 else (200, 60, 40)
        return noise


def open_backend(**settings: Any) -> LlamaCppBackend:
    return LlamaCppBackend(
        FILES.text, FILES.projector, profile=FILES.profile, settings=EngineSettings(gpu_layers=0, **settings)
    )


@pytest.fixture(scope="module")
def backend() -> Iterator[LlamaCppBackend]:
    with open_backend() as opened:
        yield opened


def trial_of(backend: LlamaCppBackend, store: Drawn) -> list[Reply]:
    """Three replies, with a correction and frames between them."""
    conversation = opening(PAIR, FILES.profile)
    replies: list[Reply] = []
    for parts in ((Text("Again."),), (Image(FrameRef(0, 8)), Image(FrameRef(1, 8))), ()):
        replies.append(backend.reply(conversation, store, sampling=SHORT, observe=ignore))
        conversation = grown(conversation, replies[-1], *parts)
    return replies


def grown(conversation: Conversation, reply: Reply, *parts: Part) -> Conversation:
    """The conversation with the judge's reply and what it is told next."""
    said = Message("assistant", (Generated(reply.text, reply.tokens),))
    return (*conversation, said, Message("user", parts, tool_outcome=True))


@pytest.mark.parametrize("characters", [1, 9, 40])
def test_a_concluded_reply_is_the_beginning_of_the_whole_one(backend: LlamaCppBackend, characters: int) -> None:
    """It ends with the first token that reaches the place, whatever was guessed."""
    conversation, store = opening(PAIR, FILES.profile), Drawn()
    whole = backend.reply(conversation, store, sampling=SHORT, observe=ignore)
    sampling = replace(SHORT, concluded=lambda text: len(text) >= characters)
    part = backend.reply(conversation, store, sampling=sampling, observe=ignore)
    assert part.tokens == whole.tokens[: len(part.tokens)]
    assert whole.text.startswith(part.text)
    assert (len(part.text) >= characters, part.stop) == (True, "end")
    before = backend.reply(conversation, store, sampling=Sampling(len(part.tokens) - 1 or 1), observe=ignore)
    assert len(before.text) < characters or len(part.tokens) == 1


def test_nothing_is_computed_twice_within_a_verdict() -> None:
    opened = opening(PAIR, FILES.profile)
    with open_backend() as fresh:
        first = fresh.reply(opened, Drawn(), sampling=SHORT, observe=ignore)
        asked = [Image(FrameRef(clip, index)) for clip in (0, 1) for index in (3, 9, 16, 30)]
        second = fresh.reply(grown(opened, first, *asked), Drawn(), sampling=SHORT, observe=ignore)
    assert first.usage.frames_encoded == 8
    assert first.usage.tokens_reused == 0
    assert second.usage.frames_encoded == 8
    # The last token of a reply that its limit cut off is evaluated when it is read.
    assert second.usage.tokens_reused == first.usage.tokens_prefilled + first.usage.tokens_generated - 1
    # The turn's end, the frames (45 tokens each, with their start and end), and the next turn's opening.
    assert 8 * 47 < second.usage.tokens_prefilled < 8 * 47 + 21


def test_a_stale_frame_is_never_shown(backend: LlamaCppBackend) -> None:
    conversation = opening(PAIR, FILES.profile)
    texts = {}
    for seed in (1, 2, 3, 4, 1, 2, 3, 4):
        reply = backend.reply(conversation, Drawn(seed=seed), sampling=SHORT, observe=ignore)
        assert texts.setdefault(seed, (reply.tokens, reply.odds)) == (reply.tokens, reply.odds)


def test_the_same_pixels_are_encoded_once_whatever_asks_for_them(backend: LlamaCppBackend) -> None:
    store = Drawn(seed=11)
    opened = opening(PAIR, FILES.profile)
    assert backend.reply(opened, store, sampling=SHORT, observe=ignore).usage.frames_encoded == 8
    system, user = opened
    first, second, *words = user.parts
    exchanged: Conversation = (system, Message("user", (second, first, *words)))
    again = backend.reply(exchanged, store, sampling=SHORT, observe=ignore)
    assert again.usage.frames_encoded == 0
    assert again.usage.frames_reused == 8


def test_odd_sizes_and_an_odd_number_of_frames(backend: LlamaCppBackend) -> None:
    for size in ((28, 28 * 9), (28 * 7, 28), (28 * 5, 28 * 3)):
        message = Message("user", (Video(tuple(FrameRef(0, i) for i in range(3)), 1.5), Image(FrameRef(1, 0))))
        reply = backend.reply((message,), Drawn(size), sampling=Sampling(4), observe=ignore)
        cells = (size[0] // 28) * (size[1] // 28)
        assert reply.usage.tokens_prefilled > 3 * cells


def test_the_same_seed_draws_the_same_reply(backend: LlamaCppBackend) -> None:
    def draw(seed: int) -> Reply:
        sampling = Sampling(60, temperature=1.5, seed=seed)
        return backend.reply(opening(PAIR, FILES.profile), Drawn(), sampling=sampling, observe=ignore)

    assert draw(1).tokens == draw(1).tokens
    assert len({draw(seed).tokens for seed in range(6)}) > 1


def test_a_context_too_small_says_so() -> None:
    with open_backend(context=512) as small, pytest.raises(ContextFullError, match=r"holds 512\. Raise --ctx"):
        trial_of(small, Drawn())


def test_the_token_limit_is_a_reason_to_stop(backend: LlamaCppBackend) -> None:
    reply = backend.reply(opening(PAIR, FILES.profile), Drawn(), sampling=Sampling(5), observe=ignore)
    assert (reply.stop, len(reply.tokens)) == ("limit", 5)


def test_events_tell_what_happens(backend: LlamaCppBackend) -> None:
    events: list[Event] = []
    reply = backend.reply(opening(PAIR, FILES.profile), Drawn(seed=23), sampling=SHORT, observe=events.append)
    assert events[:2] == [Working("decoding frames"), Encoding(0, 4)]
    assert Encoding(4, 4) in events
    reads = [event for event in events if isinstance(event, Prefill)]
    assert reads[-1].done == reads[-1].total == reply.usage.tokens_prefilled
    assert "".join(event.text for event in events if isinstance(event, Wrote)) == reply.text


def test_odds_stand_at_the_digits_and_sum_to_one(backend: LlamaCppBackend) -> None:
    asked = [Message("user", (Text("TA=1, VQ=2, MQ=0, OA="),))]
    reply = backend.reply((*opening(PAIR, FILES.profile), *asked), Drawn(), sampling=Sampling(80), observe=ignore)
    assert reply.odds
    for at, found in reply.odds.items():
        assert reply.text[at] in "012"
        assert sum(found) == pytest.approx(1.0)
        assert int(np.argmax(found)) == int(reply.text[at])


def test_sampler() -> None:
    logits = np.array([0.0, 3.0, 1.0, 2.0], dtype=np.float32)
    assert Sampler(temperature=0.0, seed=0, banned=[]).pick(logits.copy()) == 1
    assert Sampler(temperature=0.0, seed=0, banned=[1]).pick(logits.copy()) == 3
    drawn = Sampler(temperature=1.0, seed=5, banned=[1])
    counts = np.bincount([drawn.pick(logits.copy()) for _ in range(4000)], minlength=4) / 4000
    expected = np.exp([0.0, -np.inf, 1.0, 2.0]) / np.exp([0.0, -np.inf, 1.0, 2.0]).sum()
    assert counts == pytest.approx(expected, abs=0.03)
    assert odds(logits, [0, 1, 2]) == pytest.approx(tuple(np.exp([0, 3, 1]) / np.exp([0, 3, 1]).sum()))


def test_endless_repetition_is_seen() -> None:
    assert loops([1] * 97)
    assert loops(list(range(50)) + [7, 8, 9] * 40)
    assert loops(list(range(64)) * 8)
    assert not loops([1] * 40)
    assert not loops(list(range(500)))
    assert not loops([1, 2, 3] * 20 + list(range(100)))


THREADS_START = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from vrt_lite.backends.llamacpp import engine

made = []

class Slow(engine.EngineLog):
    def __init__(self):
        made.append(self)
        time.sleep(0.2)
        super().__init__()

engine.EngineLog = Slow
together = threading.Barrier(6)

def start(_):
    together.wait()
    return engine.start_engine()

with ThreadPoolExecutor(6) as pool:
    found = set(map(id, pool.map(start, range(6))))
print(len(made), len(found))
"""


def test_threads_that_start_the_engine_at_once_share_one_log() -> None:
    """The engine would go on calling a second log after it is collected, and the process would crash."""
    done = subprocess.run([sys.executable, "-c", THREADS_START], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


def test_each_back_end_decides_for_itself_whether_the_engine_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def heard() -> bool:
        return "load" in capsys.readouterr().err

    with open_backend(verbose=True):
        assert heard()
        with open_backend():
            assert heard(), "the first one still is"
        with pytest.raises(ModelError):
            LlamaCppBackend(
                FILES.projector, FILES.projector, profile=FILES.profile, settings=EngineSettings(verbose=True)
            )
        capsys.readouterr()
    capsys.readouterr()
    with open_backend():
        assert not heard()
