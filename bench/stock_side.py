"""The stock side of a comparison: llama-cpp-python's own multimodal chat handler, which runs the same rounds.

Its interface takes each frame as an image, and each round sends the whole conversation again. Settings are its
defaults, except the size of the context, the number of threads, and the repacking of weights. Repacking is off as on
vrt-lite's side: with some compilers the engine crashes with it on processors with AMX. The handler's code runs
unchanged. Three calls are timed. The call that encodes and evaluates an image is split into its two parts
(mtmd-helper.cpp), so that vision and prefill have separate times. Writing the PNG files is not timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as engine
import llama_cpp.mtmd_cpp as _mtmd
import numpy as np
from llama_cpp import Llama, LogitsProcessorList
from llama_cpp.llama_chat_format import Qwen25VLChatHandler
from numpy.typing import NDArray
from PIL import Image as Picture

from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judge import Answer, Trial, answer_with
from vrt_lite.profile import CELL
from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Reply, Text, Usage, Video
from vrt_lite.scheduler import Work

mtmd: Any = _mtmd  # only partly typed
_BATCH = 512


class _SilentLog:
    """Discards the engine's log. The class keeps the callback alive as long as the engine can call it."""

    callback = engine.llama_log_callback(lambda level, text, data: None)


@dataclass
class _ReplyCost:
    """The cost of one reply."""

    vision_seconds: float = 0.0
    prefill_seconds: float = 0.0
    generate_seconds: float = 0.0
    images: int = 0
    image_tokens: int = 0
    text_tokens: int = 0


class _TimedModule:
    """The module that the handler calls. One of its functions is replaced by its two parts, which are timed."""

    def __init__(self) -> None:
        self.spent = _ReplyCost()

    def __getattr__(self, name: str) -> Any:
        return getattr(mtmd, name)

    def mtmd_helper_eval_chunk_single(self, *arguments: Any) -> int:
        context, text_context, chunk, position, sequence, batch, _, next_position = arguments
        began = time.perf_counter()
        status = mtmd.mtmd_encode_chunk(context, chunk)
        encoded_at = time.perf_counter()
        if not status:
            embeddings, no_callback = mtmd.mtmd_get_output_embd(context), mtmd.mtmd_helper_post_decode_callback()
            status = mtmd.mtmd_helper_decode_image_chunk(
                context, text_context, chunk, embeddings, position, sequence, batch, next_position, no_callback, None
            )
        self.spent.vision_seconds += encoded_at - began
        self.spent.prefill_seconds += time.perf_counter() - encoded_at
        self.spent.images += 1
        self.spent.image_tokens += mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        return status


class _ForcedTokens:
    """A logits processor that allows only one token: the next token of a text."""

    def __init__(self, tokens: Sequence[int], vocabulary: int) -> None:
        self._tokens = iter(tokens)
        self._last = 0
        self._scores = np.full(vocabulary, -1e9, np.float32)

    def __call__(self, tokens: NDArray[np.intc], scores: NDArray[np.single]) -> NDArray[np.single]:
        self._scores[self._last] = -1e9
        self._last = next(self._tokens)
        self._scores[self._last] = 0.0
        return self._scores


@contextlib.contextmanager
def _no_repacking() -> Iterator[None]:
    """Change the engine's default, so that it does not repack weights; `Llama` has no option for it."""
    usual = engine.llama_model_default_params

    def changed() -> Any:
        params = usual()
        params.use_extra_bufts = False
        return params

    engine.llama_model_default_params = changed
    try:
        yield
    finally:
        engine.llama_model_default_params = usual


class StockHandlerSide:
    """The chat handler as a back end of vrt-lite, which writes given texts; a context manager."""

    def __init__(self, text: Path, projector: Path, *, context: int, threads: int, largest_image: int) -> None:
        self._free = contextlib.ExitStack()
        for route in (mtmd.mtmd_log_set, mtmd.mtmd_helper_log_set):
            route(_SilentLog.callback, ctypes.c_void_p())
        handler: Any = Qwen25VLChatHandler(clip_model_path=str(projector), verbose=False)
        self._timed = handler._mtmd_cpp = _TimedModule()
        batch = max(_BATCH, largest_image)
        with _no_repacking():
            self._llama = Llama(
                model_path=str(text),
                n_ctx=context,
                n_batch=batch,
                n_ubatch=batch,
                n_threads=threads,
                n_threads_batch=threads,
                chat_handler=handler,
                verbose=False,
            )
        self._free.callback(self._llama.close)
        self._end = self._llama.token_eos()
        self.whole_seconds = 0.0
        self._writes = False
        self._eval, self._complete = self._llama.eval, self._llama.create_completion
        self._llama.eval = self._timed_eval
        self._llama.create_completion = self._timed_completion
        self._replies: Iterator[str] = iter(())

    def __enter__(self) -> StockHandlerSide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._free.close()

    def run(self, trial: Callable[[Answer], Work[Trial]], frames: FrameStore, texts: Sequence[str]) -> Work[Trial]:
        """Run a trial whose replies are these texts."""
        self._replies = iter(texts)
        return trial(answer_with(self, frames))

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """Write the next text, at the full cost of a reply."""
        messages = [_message(message, frames) for message in conversation]
        text = next(self._replies)
        tokens = self._llama.tokenize(text.encode(), add_bos=False, special=True)
        forced = _ForcedTokens([*tokens, self._end], self._llama.n_vocab())
        spent = self._timed.spent = _ReplyCost()
        began = time.perf_counter()
        answer: Any = self._llama.create_chat_completion(
            messages,
            temperature=0.0,
            max_tokens=sampling.max_new_tokens,
            logits_processor=LogitsProcessorList([forced]),
        )
        self.whole_seconds += time.perf_counter() - began
        wrote = answer["choices"][0]["message"]["content"]
        if wrote != text:
            raise RuntimeError(f"The stock handler wrote {len(wrote)} characters of {len(text)}: raise --stock-ctx.")
        _check_images(conversation, frames, spent)
        usage = Usage(
            tokens_prefilled=spent.text_tokens + spent.image_tokens,
            tokens_generated=len(tokens),
            frames_encoded=spent.images,
            vision_seconds=spent.vision_seconds,
            prefill_seconds=spent.prefill_seconds,
            generate_seconds=spent.generate_seconds,
        )
        return Reply(text, usage=usage)

    def _timed_eval(self, tokens: Sequence[int]) -> None:
        began = time.perf_counter()
        self._eval(tokens)
        if not self._writes:
            self._timed.spent.prefill_seconds += time.perf_counter() - began
            self._timed.spent.text_tokens += len(tokens)

    def _timed_completion(self, *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        self._writes = True
        try:
            return self._complete(*arguments, **named)
        finally:
            self._writes = False
            self._timed.spent.generate_seconds += time.perf_counter() - began


def _check_images(conversation: Conversation, frames: FrameStore, spent: _ReplyCost) -> None:
    """Check that the handler did not resize a frame: it must have one token for each cell of the frames."""
    shown = [frames.pixels([frame])[0].shape for message in conversation for frame in message.frames]
    cells = sum(height * width // CELL**2 for height, width, _ in shown)
    if (len(shown), cells) != (spent.images, spent.image_tokens):
        raise RuntimeError(
            f"The stock handler made {spent.images} images and {spent.image_tokens} tokens of {len(shown)} frames and "
            f"{cells} cells: it resized them, so the two sides cannot be compared at this size."
        )


def _message(message: Message, frames: FrameStore) -> Any:
    """Convert a message to the form of the chat handler. Only a user's message can have images."""
    if message.role != "user":
        texts = [part.text for part in message.parts if isinstance(part, Text | Generated)]
        return {"role": message.role, "content": "".join(texts)}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text(text) | Generated(text):
                content.append({"type": "text", "text": text})
            case Video(shown):
                content += [_image(pixels) for pixels in frames.pixels(shown)]
            case Image(frame):
                content += [_image(pixels) for pixels in frames.pixels([frame])]
    return {"role": message.role, "content": content}


def _image(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    buffer = io.BytesIO()
    Picture.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"}}
