"""The llama.cpp back end with the bundled judge: nothing is computed twice, and replies at once are those alone."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import EngineSettings, Lane, LlamaCppBackend
from vrt_lite.backends.llamacpp.decoding import PromptLookup, Sampler, loops, odds
from vrt_lite.backends.llamacpp.engine import EngineLog, llama
from vrt_lite.backends.llamacpp.kv_cache import Step, take_steps
from vrt_lite.errors import ContextFullError, ModelError
from vrt_lite.interfaces import Encoding, Event, Observe, Prefill, Sampling, Working, Wrote, ignore
from vrt_lite.judge import Pair, opening
from vrt_lite.models import find
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Part, Reply, Text
from vrt_lite.scheduler import Scheduler, Work, run_alone

FILES = find("vrt-tiny-0")
PAIR = Pair("A red circle moving down.", (3.0, 3.0))
OPENING = opening(PAIR, FILES.profile)
OTHER = opening(replace(PAIR, caption="A blue star moving up."), FILES.profile)
SHORT = Sampling(24)
SMALL = (84, 56)


class Drawn:
    """A store that draws frames: a disc that moves, on noise; each clip its own."""

    def __init__(self, size: tuple[int, int] = (252, 140), seed: int = 0) -> None:
        self.size, self.seed = size, seed

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
    engine = EngineSettings(gpu_layers=0, threads=1, **settings)
    return LlamaCppBackend(FILES.text, FILES.projector, profile=FILES.profile, settings=engine)


@pytest.fixture(scope="module")
def backend() -> Iterator[LlamaCppBackend]:
    with open_backend() as opened:
        yield opened


def reply_of(
    backend: LlamaCppBackend,
    conversation: Conversation = OPENING,
    store: Drawn | None = None,
    sampling: Sampling = SHORT,
    observe: Observe = ignore,
) -> Reply:
    return backend.reply(conversation, store or Drawn(), sampling=sampling, observe=observe)


def grown(conversation: Conversation, reply: Reply, *parts: Part) -> Conversation:
    """The conversation with the judge's reply and what it is told next."""
    said = Message("assistant", (Generated(reply.text, reply.tokens),))
    return (*conversation, said, Message("user", parts, tool_outcome=True))


@pytest.mark.parametrize("characters", [1, 9, 40])
def test_a_concluded_reply_is_the_beginning_of_the_whole_one(backend: LlamaCppBackend, characters: int) -> None:
    """It ends with the first token that reaches the place, whatever was guessed."""
    whole = reply_of(backend)
    part = reply_of(backend, sampling=replace(SHORT, concluded=lambda text: len(text) >= characters))
    assert part.tokens == whole.tokens[: len(part.tokens)]
    assert whole.text.startswith(part.text)
    assert (len(part.text) >= characters, part.stop) == (True, "end")
    most = len(part.tokens) - 1 or 1
    before = reply_of(backend, sampling=Sampling(most))
    assert (before.stop, len(before.tokens)) == ("limit", most)
    assert len(before.text) < characters or len(part.tokens) == 1


def test_nothing_is_computed_twice_within_a_verdict() -> None:
    with open_backend() as fresh:
        first = reply_of(fresh)
        asked = [Image(FrameRef(clip, index)) for clip in (0, 1) for index in (3, 9, 16, 30)]
        second = reply_of(fresh, grown(OPENING, first, *asked))
        system, user = OPENING
        one, other, *words = user.parts
        exchanged = reply_of(fresh, (system, Message("user", (other, one, *words))))
    assert (first.usage.frames_encoded, first.usage.tokens_reused) == (8, 0)
    assert second.usage.frames_encoded == 8
    # The last token of a reply that its limit cut off is evaluated when it is read.
    assert second.usage.tokens_reused == first.usage.tokens_prefilled + first.usage.tokens_generated - 1
    # The turn's end, the frames (45 tokens each, with their start and end), and the next turn's opening.
    assert 8 * 47 < second.usage.tokens_prefilled < 8 * 47 + 21
    assert (exchanged.usage.frames_encoded, exchanged.usage.frames_reused) == (0, 8), "whatever asks for them"


def test_a_context_too_small_says_so() -> None:
    with open_backend(context=512) as small, pytest.raises(ContextFullError, match=r"holds 512\. Raise --ctx"):
        reply_of(small)


def test_events_tell_what_happens(backend: LlamaCppBackend) -> None:
    events: list[Event] = []
    reply = reply_of(backend, store=Drawn(seed=23), observe=events.append)
    assert events[:2] == [Working("decoding frames"), Encoding(0, 4)]
    assert Encoding(4, 4) in events
    reads = [event for event in events if isinstance(event, Prefill)]
    assert reads[-1].done == reads[-1].total == reply.usage.tokens_prefilled
    assert "".join(event.text for event in events if isinstance(event, Wrote)) == reply.text


def test_odds_stand_at_the_digits_and_sum_to_one(backend: LlamaCppBackend) -> None:
    asked = Message("user", (Text("TA=1, VQ=2, MQ=0, OA="),))
    reply = reply_of(backend, (*OPENING, asked), sampling=Sampling(80))
    assert reply.odds
    for at, found in reply.odds.items():
        assert reply.text[at] in "012"
        assert sum(found) == pytest.approx(1.0)
        assert int(np.argmax(found)) == int(reply.text[at])


# Choosing and guessing tokens


def test_a_sampler_draws_by_the_odds_and_never_what_is_banned() -> None:
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


def test_fixed_text_that_was_read_twice_is_guessed_up_to_a_digit() -> None:
    lookup, fixed = PromptLookup(range(10)), [60, 61, 62, 1, 63, 64, 65, 2, 66]

    def guesses_behind(*tokens: int, most: int = 7) -> list[int]:
        for token in tokens:
            lookup.add(token)
        return lookup.guess(most)

    lookup.learn(fixed)
    assert guesses_behind(60, 61, 62, 1) == [], "one witness is not believed"
    lookup.learn(fixed)
    assert guesses_behind(60, 61, 62) == []
    assert guesses_behind(7) == [63, 64, 65], "a digit is a slot"
    assert lookup.guess(2) == [63, 64]
    assert lookup.guess(0) == []
    assert guesses_behind(63, 64, 65) == []
    assert guesses_behind(2) == [66]


# Several conversations at once in one context


def judge_rounds(backend: LlamaCppBackend, lane: Lane, number: int, observe: Observe = ignore) -> Work[list[Reply]]:
    """Two replies, with frames between them; the first one is observed."""
    conversation, store = (OPENING, OTHER)[number % 2], Drawn(SMALL, number)
    first = yield from backend.answer(lane, conversation, store, sampling=SHORT, observe=observe)
    more = grown(conversation, first, Image(FrameRef(0, 8)), Image(FrameRef(1, 8)))
    return [first, (yield from backend.answer(lane, more, store, sampling=SHORT, observe=ignore))]


def judge_at_once(backend: LlamaCppBackend, told: list[int]) -> list[list[Reply]]:
    """All conversations in lanes of their own; `told` gets the number of each that encodes or reads."""
    with closing(Scheduler(len(backend.lanes))) as scheduler:

        def begin(number: int, lane: Lane) -> Any:
            def observe(event: Event) -> None:
                if isinstance(event, Encoding | Prefill):
                    told.append(number)

            return scheduler.submit(judge_rounds(backend, lane, number, observe))

        begun = [begin(number, lane) for number, lane in enumerate(backend.lanes)]
        return [each.result() for each in begun]


def test_each_conversation_is_read_without_a_break_and_gets_the_reply_that_it_gets_alone() -> None:
    told: list[int] = []
    with open_backend() as alone:
        expected = [run_alone(judge_rounds(alone, alone.lanes[0], number)) for number in range(3)]
    with open_backend(sequences=3) as together:
        got = judge_at_once(together, told)
    assert sorted(number for number, _ in itertools.groupby(told)) == [0, 1, 2]
    for mine, theirs in zip(got, expected, strict=True):
        assert [(reply.tokens, reply.odds) for reply in mine] == [(reply.tokens, reply.odds) for reply in theirs]


def test_a_cache_that_changes_while_another_copies_it_is_copied_wrongly() -> None:
    """Why nothing may wait while it reads: no error tells of this."""
    with open_backend(sequences=2, context=512) as backend:
        backend._open_context(backend.lanes[0], 512)
        one, other = (lane.cache for lane in backend.lanes)
        assert one and other
        first, second = (list(range(start, start + 12)) for start in (100, 200))
        wanted = [*first[:-2], 7, 8]
        one.prefill([*first], ignore)
        other.prefill([*wanted], ignore, others=[one])
        assert other.items == wanted
        other.truncate(0)

        def disturb(event: Event) -> None:  # what to copy was found, and told of
            if one.items == first:
                one.prefill([*second], ignore)

        other.prefill([*wanted], disturb, others=[one])
        assert other.items == [*second[:-2], 7, 8]


def test_what_another_sequence_has_read_is_not_read_again(backend: LlamaCppBackend) -> None:
    """The system prompt and both videos: the captions differ. No state of a first video is kept here."""
    backend.reset()
    expected = reply_of(backend, OTHER)
    with open_backend(sequences=2, prefixes=0) as two:
        first = reply_of(two)
        second = run_alone(two.answer(two.lanes[1], OTHER, Drawn(), sampling=SHORT, observe=ignore))
    assert first.usage.tokens_reused == 0
    assert second.usage.tokens_reused > second.usage.tokens_prefilled
    assert second.usage.tokens_reused + second.usage.tokens_prefilled == expected.usage.tokens_prefilled
    assert (second.tokens, second.odds) == (expected.tokens, expected.odds)


def test_steps_are_one_evaluation_in_whatever_order_they_come() -> None:
    """The engine evaluates only sequences with consecutive numbers together; others it evaluates one by one."""
    nodes = Counter[tuple[int, ...]]()
    order: tuple[int, ...] = ()

    def count(node: int, ask: bool, data: object) -> bool:
        nodes[order] += 1
        return not ask

    callback = llama.ggml_backend_sched_eval_callback(count)
    with open_backend(sequences=3, on_eval=callback) as backend:
        for lane in backend.lanes:
            run_alone(backend.answer(lane, OPENING, Drawn(), sampling=Sampling(4), observe=ignore))
        caches = [lane.cache for lane in backend.lanes if lane.cache]
        rows = {}
        for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
            found = take_steps([Step(caches[number], len(caches[number].items), [40 + number]) for number in order])
            rows[order] = [found[order.index(number)][0] for number in range(3)]
            for cache in caches:
                cache.truncate(len(cache.items) - 1)
    assert len({nodes[order] for order in rows}) == 1
    for mixed in rows.values():
        assert np.array_equal(mixed, rows[0, 1, 2])
    assert not np.array_equal(rows[0, 1, 2][0], rows[0, 1, 2][1])


# The engine's log

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


def test_the_log_explains_a_failure_while_the_engine_goes_on_writing_to_it() -> None:
    class Line(str):
        __slots__ = ()

        def lower(self) -> str:
            log._write(2, b"another thread loads a model\n", None)
            return super().lower()

    log = EngineLog()
    log.lines += [Line("loading"), Line("it failed")]
    assert not log.shows_out_of_memory()
    assert log.explain("nothing yet") == "it failed"


def test_each_back_end_decides_for_itself_whether_the_engine_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def heard() -> bool:
        return "load" in capsys.readouterr().err

    with open_backend(verbose=True):
        assert heard()
        with open_backend():
            assert heard(), "the first one still is"
        verbose = EngineSettings(verbose=True)
        with pytest.raises(ModelError):
            LlamaCppBackend(FILES.projector, FILES.projector, profile=FILES.profile, settings=verbose)
        capsys.readouterr()
    capsys.readouterr()
    with open_backend():
        assert not heard()
