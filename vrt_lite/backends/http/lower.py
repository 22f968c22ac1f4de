"""Lowers a conversation to the messages of an OpenAI-compatible chat, in the form that a kind of server takes frames.

vLLM takes a video as its frames: `data:video/jpeg;base64,F1,F2,…`, one picture each, which it neither decodes as a
file nor samples (vllm/multimodal/media/video.py, `VideoMediaIO.load_base64`; it opens each with Pillow, so that PNG is
as good as JPEG). llama.cpp's servers take single images alone: their videos are files, which they sample anew.
Knows messages and pictures; refuses to know HTTP.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from PIL import Image as Picture

from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Part, Text, Video

Kind = Literal["vllm", "llama", "openai"]
"""vLLM; llama.cpp's own server or llama-cpp-python's; any other."""

_HARDLY_ANY_SECONDS = 1e-6
# Servers multiply in single precision and cut: a hair more than a whole number of steps stays that number.
_HAIR = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class Lowered:
    """A conversation as a request's fields.

    `frames` were sent; `clocks` are the videos' seconds a patch of two frames; `digest` (32 bits) is of the videos.
    """

    messages: list[dict[str, Any]]
    frames: int
    clocks: tuple[float, ...]
    digest: int


def lower(conversation: Conversation, frames: FrameStore, *, kind: Kind, profile: Profile) -> Lowered:
    """The whole conversation. What a user or the model wrote cannot become a control token of the template."""
    shown = [frame for message in conversation for frame in message.frames]
    if shown:
        frames.pixels(shown)  # One request for all frames lets the store decode both clips at once.
    messages = [_message(message, frames, kind) for message in conversation]
    videos = [part for message in conversation for part in message.parts if isinstance(part, Video)]
    clocks = tuple(seconds_of(profile.clock, video.seconds_per_patch) for video in videos)
    digest = zlib.crc32("".join(_addresses(messages)).encode())
    return Lowered(messages, len(shown), clocks if kind == "vllm" else (), digest)


def seconds_of(clock: Clock, seconds_per_patch: float) -> float:
    """The seconds between patches for a server that multiplies exactly, so that its steps are the profile's."""
    if clock.rule == "fixed":
        seconds_per_patch = clock.seconds_per_patch
    elif clock.rule == "truncate":
        seconds_per_patch = int(seconds_per_patch)
    return max(seconds_per_patch * _HAIR, _HARDLY_ANY_SECONDS)


def video_fields(lowered: Lowered, profile: Profile, *, clock_each: bool = True) -> dict[str, Any]:
    """The fields that are vLLM's own: no sampling, no resizing beyond the profile's range, and the videos' clocks.

    `mm_processor_kwargs.fps` is read by versions before the clock moved to the video's metadata (July 2026), which
    `media_io_kwargs.video.fps` sets; that one is a single number a request. `clock_each` off: so is the other.
    """
    kwargs: dict[str, Any] = {"min_pixels": profile.min_pixels, "max_pixels": profile.max_pixels}
    fields: dict[str, Any] = {"mm_processor_kwargs": kwargs}
    if lowered.clocks:
        mean = 2 * len(lowered.clocks) / sum(lowered.clocks)
        # A list has to fit the videos that vLLM has not cached. Its numbers are part of the cache's key, so a hair
        # that is the request's own keeps one clip of it from being found without the other.
        hair = 1 - lowered.digest * 1e-19
        each = [2 / seconds * hair for seconds in lowered.clocks]
        kwargs["do_sample_frames"] = False
        kwargs["fps"] = each if clock_each and differ(lowered.clocks) else mean
        fields["media_io_kwargs"] = {"video": {"fps": mean}}
    return fields


def differ(clocks: Sequence[float]) -> bool:
    """Whether the videos of a request are on different clocks."""
    return len(set(clocks)) > 1


def _addresses(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The videos of a request."""
    for message in messages:
        content: Any = message["content"]
        parts = cast(list[dict[str, Any]], content) if isinstance(content, list) else []
        yield from (part["video_url"]["url"] for part in parts if "video_url" in part)


def _message(message: Message, frames: FrameStore, kind: Kind) -> dict[str, Any]:
    if not message.frames:
        return {"role": message.role, "content": "".join(_text(part) for part in message.parts)}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text | Generated):
            _append_text(content, _text(part))
        elif isinstance(part, Video) and kind == "vllm":
            pictures = ",".join(_pictures(part.frames, frames))
            content.append({"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{pictures}"}})
        else:
            shown = part.frames if isinstance(part, Video) else (part.frame,)
            for picture in _pictures(shown, frames):
                content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}})
    return {"role": message.role, "content": content}


def _append_text(content: list[dict[str, Any]], text: str) -> None:
    """Adjacent texts are one: some templates put something between two."""
    if content and content[-1]["type"] == "text":
        content[-1]["text"] += text
    elif text:
        content.append({"type": "text", "text": text})


def _text(part: Part) -> str:
    """A part's text. A server reads it with control tokens, so what is not the profile's has their signs broken up."""
    match part:
        case Text(text, trusted):
            return text if trusted else _plain(text)
        case Generated(text):
            return _plain(text)
        case Video() | Image():
            return ""


def _plain(text: str) -> str:
    # "<__media__>" is where llama.cpp puts a picture.
    return text.replace("<|", "< |").replace("<__", "< __")


def _pictures(shown: Sequence[FrameRef], frames: FrameStore) -> list[str]:
    """Each frame as a PNG in base64: nothing is lost on the way."""
    found: list[str] = []
    for pixels in frames.pixels(shown):
        file = io.BytesIO()
        Picture.fromarray(pixels).save(file, format="PNG", compress_level=1)
        found.append(base64.b64encode(file.getvalue()).decode("ascii"))
    return found
