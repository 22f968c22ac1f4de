"""Finds what a server is and what it serves, and builds the body of a request to it in a form that it takes.

A server gets a video as a lossless file on the clip's own clock, if it reads that; else its frames as single images.
Only vLLM from 0.31 on reads the clock of a video, which `make vllm` tests.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import io
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
from PIL import Image as PillowImage

from vrt_lite.advice import install
from vrt_lite.backends.http.faults import shorten
from vrt_lite.backends.http.sse import read_as
from vrt_lite.errors import BackendError, UsageError, Warned
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Text, Video
from vrt_lite.records.judgement import FormName, ServerKind
from vrt_lite.settings import Remote
from vrt_lite.video.encoding import LOSSLESS, has_codec, write_lossless

# The owner in the answer of /models, for vLLM, SGLang, llama-server and llama-cpp-python.
_OWNERS: dict[str, ServerKind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama", "me": "llama"}
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.\d|$)")
_READS_CLOCKS = (0, 31)
_NO_CLOCK = "of the servers only vLLM 0.31 and newer read a video's clock (is it one? --backend-kind vllm)"
LIKELIEST = {"logprobs": True, "top_logprobs": 20}
"""Alternatives requested for each token: the most that vLLM and OpenAI allow. The three digits are among them."""
_OWN_FIELDS: dict[ServerKind, dict[str, Any]] = {
    "vllm": {
        **{"min_p": 0.0, "top_k": -1, "repetition_penalty": 1.0},
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "sglang": {"min_p": 0.0, "top_k": -1, "repetition_penalty": 1.0, "separate_reasoning": False},
    "llama": {"min_p": 0.0, "top_k": 0, "repeat_penalty": 1.0, "reasoning_format": "none"},
    "openai": {},
}
"""Fields that one kind of server knows. A checkpoint's own defaults (Qwen2.5-VL: a repetition penalty) must not change
what it judges."""
_MOST_FRAMES_PER_SECOND = 1_000
_LONG_FRAME_SECONDS = 1000


class _Model(msgspec.Struct):
    id: str
    owned_by: Any = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _About(msgspec.Struct):
    version: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server is, the model that it serves, and the form in which it gets a video.

    `warning` is what a reader of a verdict must know about that form.
    """

    kind: ServerKind
    model: str
    form: FormName
    warning: Warned | None


async def find_server(remote: Remote, ask: Callable[[str], Awaitable[object]]) -> ServerInfo:
    """Ask for the server's kind and model. Raises BackendError, UsageError for a name it lacks.

    `ask` gets the JSON at a path below the URL, or raises BackendError.
    """
    listed = read_as(await ask("/models"), _Models)
    owners = {model.id: str(model.owned_by) for model in listed.data if model.id} if listed else {}
    if not owners:
        raise BackendError(f"The back end {remote.url} lists no models at /models. Is it an OpenAI-compatible server?")
    names = shorten(", ".join(map(repr, owners)))
    model = remote.served_model or next(iter(owners))
    if model not in owners:
        raise UsageError(f"The server has no model {model!r}; it serves {names}.")
    if remote.served_model is None and len(owners) > 1:
        raise UsageError(f"The server serves {names}: choose with --served-model NAME.")
    kind = _OWNERS.get(owners[model], "openai") if remote.kind == "auto" else remote.kind
    why = await _find_lack(ask) if kind == "vllm" else _NO_CLOCK
    if why is None:
        return ServerInfo(kind, model, "lossless video file", None)
    text = f"Frames are sent as single images, on which the judge was not trained: {why}. Verdicts may differ."
    return ServerInfo(kind, model, "single images", Warned("single_images", text))


async def _find_lack(ask: Callable[[str], Awaitable[object]]) -> str | None:
    """Why a vLLM cannot get a video as a file on its own clock, and what can be done; None if it can."""
    about = None
    with contextlib.suppress(BackendError):
        about = read_as(await ask("/../version"), _About)
    version = about.version if about else "unknown"
    release = _RELEASE.match(version)
    if release is None or (int(release[1]), int(release[2])) < _READS_CLOCKS:
        return (
            f"this vLLM is version {version[:40]!r}, and only 0.31 and newer read a video's clock: serve with such a "
            "release"
        )
    if has_codec(LOSSLESS):
        return None
    return f"PyAV was built without the encoder {LOSSLESS} here; install the one of the package index: {install('av')}"


def build_body(
    conversation: Conversation, frames: FrameStore, sampling: Sampling, *, server: ServerInfo, profile: Profile
) -> dict[str, Any]:
    """Build the body. A field that only one kind of server knows goes to that kind alone: a strict one refuses it."""
    # One request for all frames lets the store decode both clips at once.
    shown = frames.pixels([frame for message in conversation for frame in message.frames])
    body: dict[str, Any] = {
        "model": server.model,
        "messages": _build_messages(conversation, frames, server=server, profile=profile),
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "seed": sampling.seed,
        "max_tokens": sampling.max_new_tokens,
        "stop": ["<|im_end|>"],
        "stream": True,
        "stream_options": {"include_usage": True},
        **_OWN_FIELDS[server.kind],
    }
    if server.kind == "vllm":
        # A range of pixels that holds every frame's, so that none is resized. A file's frames are all kept: the
        # loader for this model would sample them by a rule of its own.
        sizes = [profile.min_pixels, profile.max_pixels, *(pixels.shape[0] * pixels.shape[1] for pixels in shown)]
        body["mm_processor_kwargs"] = {"min_pixels": min(sizes), "max_pixels": max(sizes)}
        if server.form != "single images":
            body["mm_processor_kwargs"]["do_sample_frames"] = False
            body["media_io_kwargs"] = {"video": {"num_frames": -1, "video_backend": "opencv"}}
    return body


def _build_messages(
    conversation: Conversation, frames: FrameStore, *, server: ServerInfo, profile: Profile
) -> list[dict[str, Any]]:
    """The messages. Text of a user or the model cannot become a control token of the server's template."""
    messages: list[dict[str, Any]] = []
    for message in conversation:
        content: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text() | Generated():
                    _append_text(content, part)
                case Video() if server.form == "lossless video file":
                    length = frame_seconds(profile.clock, part.seconds_per_patch)
                    file = write_lossless(frames.pixels(part.frames), frame_seconds=length)
                    content.append(_as_part("video/mp4", file))
                case Video():
                    content += _encode_images(part.frames, frames)
                case Image():
                    content += _encode_images((part.frame,), frames)
        text = "".join(part.get("text", "") for part in content)
        messages.append({"role": message.role, "content": content if message.frames else text})
    return messages


def _append_text(content: list[dict[str, Any]], part: Text | Generated) -> None:
    """Append text. Adjacent texts become one: some templates put something between two."""
    text = part.text
    if isinstance(part, Generated) or not part.trusted:
        # A server reads text with control tokens, and llama.cpp puts a picture at "<__media__>".
        text = text.replace("<|", "< |").replace("<__", "< __")
    if content and content[-1]["type"] == "text":
        content[-1]["text"] += text
    elif text:
        content.append({"type": "text", "text": text})


def _encode_images(shown: Sequence[FrameRef], frames: FrameStore) -> Iterator[dict[str, Any]]:
    """Each frame as a PNG, without loss."""
    for pixels in frames.pixels(shown):
        file = io.BytesIO()
        PillowImage.fromarray(pixels).save(file, format="PNG", compress_level=1)
        yield _as_part("image/png", file.getvalue())


def _as_part(kind: str, file: bytes) -> dict[str, Any]:
    """A part of a message: an image or a video as a data URL."""
    name = f"{kind.partition('/')[0]}_url"
    return {"type": name, name: {"url": f"data:{kind};base64,{base64.b64encode(file).decode()}"}}


def frame_seconds(clock: Clock, seconds_per_patch: float) -> Fraction:
    """How long a file shows each frame, so that the steps of a server that reads its frame rate are the profile's.

    The fewest whole microseconds that are enough (milliseconds, if a frame lasts a quarter of an hour), so that frames
    of 2.5 s are exactly 0.4 frames a second.
    """
    least = clock.count_seconds(seconds_per_patch)
    per_second = 1_000_000 if least / 2 < _LONG_FRAME_SECONDS else 1_000
    ticks = max(math.ceil(Fraction(least) * per_second / 2), per_second // _MOST_FRAMES_PER_SECOND)
    # The server divides once more, in one of two precisions.
    while min(seconds := 2 / (per_second / ticks), ctypes.c_float(seconds).value) < least:
        ticks += 1
    return Fraction(ticks, per_second)
