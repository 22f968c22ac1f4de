"""Lowers a conversation to the messages of an OpenAI-compatible chat, in a form in which a server takes frames.

vLLM takes a video as its frames, `data:video/jpeg;base64,F1,F2,…`, one picture each, which it neither decodes as a file
nor samples (vllm/multimodal/media/video.py, `VideoMediaIO.load_base64`; it opens each with Pillow, so that PNG is as
good as JPEG); or as a file, of which it can be told to keep every frame. llama.cpp's servers take single images alone:
their videos are files, which they sample anew. Knows messages, pictures and forms; leaves HTTP to `service`.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from PIL import Image as Picture

from vrt_lite.backends.http.clock import differ, frame_seconds_of, seconds_of
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Part, Text, Video
from vrt_lite.video.lossless import write_lossless

Kind = Literal["vllm", "sglang", "llama", "openai"]
"""vLLM; SGLang; llama.cpp's own server or llama-cpp-python's; any other."""

Form = Literal["file", "frames", "frames on one clock", "images"]
"""How a server gets a video: a lossless file with the clip's own frame rate; its frames as pictures, and the rates of
all videos as a list, or one rate for all; images that are no video."""

_KEPT = (2, 4)
"""So many frames of a file are kept by vLLM's loader for Qwen2-VL, whatever the rate: else an even number, two a second
(vllm/multimodal/video.py, `Qwen2VLVideoBackend`)."""


@dataclass(frozen=True, slots=True)
class SentVideo:
    """A video of a request: its frames, the pixels of each, and the seconds of a patch of two."""

    frames: int
    pixels: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Lowered:
    """A conversation as a request's fields, and the frames and videos in them.

    `pixels` is a range that holds every frame's, so that none is resized; `digest` (32 bits) is of the videos.
    """

    messages: list[dict[str, Any]]
    frames: int
    pixels: tuple[int, int]
    videos: tuple[SentVideo, ...]
    digest: int

    @property
    def clocks(self) -> tuple[float, ...]:
        """The seconds of a patch, by video."""
        return tuple(video.seconds for video in self.videos)

    def tells(self, form: Form) -> bool:
        """Whether a server that takes the request has shown that it takes the form: one clock alone is no list."""
        return bool(self.videos) and (form != "frames" or differ(self.clocks))


def lower(conversation: Conversation, frames: FrameStore, *, form: Form, profile: Profile) -> Lowered:
    """The whole conversation. What a user or the model wrote cannot become a control token of the template."""
    shown = [frame for message in conversation for frame in message.frames]
    # One request for all frames lets the store decode both clips at once.
    sizes = [pixels.shape[0] * pixels.shape[1] for pixels in (frames.pixels(shown) if shown else ())]
    show = _shows(form, profile.clock, frames)
    messages = [_message(message, show) for message in conversation]
    videos = [part for message in conversation for part in message.parts if isinstance(part, Video)]
    sent = tuple(_sent(video, frames, profile.clock) for video in videos)
    digest = zlib.crc32("".join(_addresses(messages)).encode())
    pixels = (min(profile.min_pixels, *sizes, profile.max_pixels), max(profile.max_pixels, *sizes, 0))
    return Lowered(messages, len(shown), pixels, sent, digest)


def video_fields(lowered: Lowered, form: Form) -> dict[str, Any]:
    """The fields that are vLLM's own: no sampling, no resizing, and the videos' clocks.

    A file's clock is its frame rate, which vLLM reads from 0.31 on. `mm_processor_kwargs.fps` is read by versions with
    transformers before 5; `media_io_kwargs.video.fps`, one number a request, sets the clock of pictures in later ones.
    """
    kwargs: dict[str, Any] = dict(zip(("min_pixels", "max_pixels"), lowered.pixels, strict=True))
    fields: dict[str, Any] = {"mm_processor_kwargs": kwargs}
    if not lowered.videos or form == "images":
        return fields
    kwargs["do_sample_frames"] = False
    if form == "file":
        every: dict[str, Any] = {"num_frames": -1}
        if any(video.frames not in _KEPT for video in lowered.videos):
            # The loader of this model follows a rule of its own: this one keeps what it is told to.
            every["video_backend"] = "opencv"
        fields["media_io_kwargs"] = {"video": every}
        return fields
    mean = 2 * len(lowered.clocks) / sum(lowered.clocks)
    # A list has to fit the videos that vLLM has not cached. Its numbers are part of the cache's key, so a hair that is
    # the request's own keeps one clip of it from being found without the other.
    hair = 1 - lowered.digest * 1e-19
    each = [2 / seconds * hair for seconds in lowered.clocks]
    kwargs["fps"] = each if form == "frames" and differ(lowered.clocks) else mean
    fields["media_io_kwargs"] = {"video": {"fps": mean}}
    return fields


def _sent(video: Video, frames: FrameStore, clock: Clock) -> SentVideo:
    height, width, _ = frames.pixels(video.frames[:1])[0].shape
    return SentVideo(len(video.frames), height * width, seconds_of(clock, video.seconds_per_patch))


def _addresses(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The videos of a request."""
    for message in messages:
        content: Any = message["content"]
        parts = cast(list[dict[str, Any]], content) if isinstance(content, list) else []
        yield from (part["video_url"]["url"] for part in parts if "video_url" in part)


def _shows(form: Form, clock: Clock, frames: FrameStore) -> Callable[[Video | Image], list[dict[str, Any]]]:
    """What makes the parts of a request for a video, or for an image that stands alone."""

    def images(part: Video | Image) -> list[dict[str, Any]]:
        shown = part.frames if isinstance(part, Video) else (part.frame,)
        return [_part("image", f"png;base64,{picture}") for picture in _pictures(shown, frames)]

    def show(part: Video | Image) -> list[dict[str, Any]]:
        if isinstance(part, Image) or form == "images":
            return images(part)
        if form == "file":
            length = frame_seconds_of(clock, part.seconds_per_patch)
            file = write_lossless(frames.pixels(part.frames), frame_seconds=length)
            return [_part("video", f"mp4;base64,{base64.b64encode(file).decode('ascii')}")]
        return [_part("video", f"jpeg;base64,{','.join(_pictures(part.frames, frames))}")]

    return show


def _part(kind: Literal["image", "video"], data: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{kind}/{data}"}}


def _message(message: Message, show: Callable[[Video | Image], list[dict[str, Any]]]) -> dict[str, Any]:
    if not message.frames:
        return {"role": message.role, "content": "".join(_text(part) for part in message.parts)}
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text | Generated):
            _append_text(content, _text(part))
        else:
            content += show(part)
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
