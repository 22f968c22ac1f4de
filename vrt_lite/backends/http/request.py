"""Builds the body of a chat completion's request: the messages, frames in the form that the server takes, options.

A server gets a video as a lossless file on the clip's own clock, if it reads that; else its frames as single images.
"""

from __future__ import annotations

import base64
import ctypes
import io
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from PIL import Image as PillowImage

from vrt_lite.backends.http.service import ServerInfo
from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Text, Video
from vrt_lite.settings import ServerKind
from vrt_lite.video.encoding import write_lossless

LIKELIEST = {"logprobs": True, "top_logprobs": 20}
"""Alternatives requested for each token: the most that vLLM and OpenAI allow. The three digits are among them."""
# A checkpoint's own defaults (Qwen2.5-VL: a repetition penalty) must not change what it judges.
_OWN_FIELDS: dict[ServerKind, dict[str, Any]] = {
    "vllm": {"repetition_penalty": 1.0},
    "sglang": {"repetition_penalty": 1.0, "separate_reasoning": False},
    "llama": {"repeat_penalty": 1.0, "reasoning_format": "none"},
}
_ALL_TOKENS: dict[ServerKind, int] = {"vllm": -1, "sglang": -1, "llama": 0}
_MOST_FRAMES_PER_SECOND = 1_000
_LONG_FRAME_SECONDS = 1000


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
    }
    if server.kind != "openai":
        top_k = 1 if sampling.temperature <= 0 else _ALL_TOKENS[server.kind]
        body |= {"min_p": 0.0, "top_k": top_k, **_OWN_FIELDS[server.kind]}
    if server.kind == "vllm":
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
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
                case Image(frame):
                    content += _encode_images((frame,), frames)
                case Video() if server.form == "single images":
                    content += _encode_images(part.frames, frames)
                case Video():
                    length = frame_seconds(profile.clock, part.seconds_per_patch)
                    file = write_lossless(frames.pixels(part.frames), frame_seconds=length)
                    content.append(_as_part("video", "mp4", file))
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


def _encode_images(shown: Sequence[FrameRef], frames: FrameStore) -> list[dict[str, Any]]:
    """Each frame as a PNG, without loss."""
    parts: list[dict[str, Any]] = []
    for pixels in frames.pixels(shown):
        file = io.BytesIO()
        PillowImage.fromarray(pixels).save(file, format="PNG", compress_level=1)
        parts.append(_as_part("image", "png", file.getvalue()))
    return parts


def _as_part(medium: str, subtype: str, file: bytes) -> dict[str, Any]:
    """A part of a message: an image or a video as a data URL."""
    data = base64.b64encode(file).decode("ascii")
    return {"type": f"{medium}_url", f"{medium}_url": {"url": f"data:{medium}/{subtype};base64,{data}"}}


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
