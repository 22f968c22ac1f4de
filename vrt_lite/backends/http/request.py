"""Builds the body of a chat completion's request: the messages, with frames in a form that a server takes, and options.

vLLM takes a video as its frames, `data:video/jpeg;base64,F1,F2,…`, one picture each, which it neither decodes as a file
nor samples (vllm/multimodal/media/video.py, `VideoMediaIO.load_base64`; it opens each with Pillow, so PNG is as good as
JPEG); or as a file, of which it keeps every frame if the request says so. llama.cpp's servers get
single images only: their videos are files, which they sample again.
"""

from __future__ import annotations

import base64
import ctypes
import io
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from PIL import Image as PillowImage

from vrt_lite.interfaces import FrameStore, Sampling
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Text, Video
from vrt_lite.settings import ServerKind
from vrt_lite.video.lossless import write_lossless

VideoForm = Literal["file", "frames", "frames on one clock", "images"]
"""How a server gets a video: a lossless file with the clip's own frame rate; its frames as pictures, and the rates of
all videos as a list, or one rate for all; images that are no video."""

_LIKELIEST = 20
"""Alternatives requested for each token: the most that vLLM and OpenAI allow. The three digits are among them."""
_KEPT = (2, 4)
"""Numbers of frames that vLLM's loader for Qwen2-VL always keeps. Of others it keeps an even number, two a second
(vllm/multimodal/video.py, `Qwen2VLVideoBackend`)."""
_LEAST_SECONDS = 1e-6
# A little more than a whole number of steps is rounded down to that number.
_MARGIN = 1 + 1e-6
_SHORTEST_FRAME_SECONDS = Fraction(1, 1000)
_LONG_FRAME_SECONDS = 1000


@dataclass(frozen=True, slots=True)
class SentVideo:
    """A video of a request: its frames, the pixels of each, and the seconds of a patch of two."""

    frames: int
    pixels: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SentMessages:
    """A conversation as the messages of a request in one form, and the videos in them.

    `pixels` is a range that holds every frame's, so that none is resized; `digest` (32 bits) is of the videos.
    """

    form: VideoForm
    messages: list[dict[str, Any]]
    pixels: tuple[int, int]
    videos: tuple[SentVideo, ...]
    digest: int

    @property
    def clocks_differ(self) -> bool:
        """Whether the videos are on different clocks."""
        return len({video.seconds for video in self.videos}) > 1

    @property
    def proves_form(self) -> bool:
        """Whether the request shows that the server takes the form. A list of clocks needs clocks that differ."""
        return bool(self.videos) and (self.form != "frames" or self.clocks_differ)


def build_messages(
    conversation: Conversation, frames: FrameStore, *, form: VideoForm, profile: Profile
) -> SentMessages:
    """Build the messages. Text of a user or the model cannot become a control token of the server's template."""
    shown = [frame for message in conversation for frame in message.frames]
    # One request for all frames lets the store decode both clips at once.
    sizes = [pixels.shape[0] * pixels.shape[1] for pixels in (frames.pixels(shown) if shown else ())]
    messages: list[dict[str, Any]] = []
    videos: list[SentVideo] = []
    digest = 0
    for message in conversation:
        content: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text() | Generated():
                    _append_text(content, part)
                case Image(frame):
                    content += _encode_images((frame,), frames)
                case Video():
                    height, width, _ = frames.pixels(part.frames[:1])[0].shape
                    seconds = patch_seconds(profile.clock, part.seconds_per_patch)
                    videos.append(SentVideo(len(part.frames), height * width, seconds))
                    if form == "images":
                        content += _encode_images(part.frames, frames)
                    else:
                        url = _encode_video(part, frames, form, profile)
                        digest = zlib.crc32(url.encode(), digest)
                        content.append({"type": "video_url", "video_url": {"url": url}})
        text = "".join(part.get("text", "") for part in content)
        messages.append({"role": message.role, "content": content if message.frames else text})
    pixels = (min(profile.min_pixels, *sizes, profile.max_pixels), max(profile.max_pixels, *sizes, 0))
    return SentMessages(form, messages, pixels, tuple(videos), digest)


def build_body(
    sent: SentMessages, sampling: Sampling, *, kind: ServerKind, model: str, with_odds: bool
) -> dict[str, Any]:
    """Build the body. A field that only one kind of server knows goes to that kind alone: a strict one refuses it."""
    body: dict[str, Any] = {
        "model": model,
        "messages": sent.messages,
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "seed": sampling.seed,
        "max_tokens": sampling.max_new_tokens,
        "stop": ["<|im_end|>"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if with_odds:
        body |= {"logprobs": True, "top_logprobs": _LIKELIEST}
    # A checkpoint's own defaults (Qwen2.5-VL: a repetition penalty) must not change what it judges.
    top_k = 1 if sampling.temperature <= 0 else 0 if kind == "llama" else -1
    match kind:
        case "vllm":
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            body |= {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": top_k, **_build_video_fields(sent)}
        case "sglang":
            body |= {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": top_k, "separate_reasoning": False}
        case "llama":
            body |= {"repeat_penalty": 1.0, "min_p": 0.0, "top_k": top_k, "reasoning_format": "none"}
        case "openai":
            pass
    return body


def _build_video_fields(sent: SentMessages) -> dict[str, Any]:
    """The fields that are vLLM's own: no sampling, no resizing, and the videos' clocks.

    A file's clock is its frame rate, which vLLM reads from 0.31 on. `mm_processor_kwargs.fps` is read by versions with
    transformers before 5; `media_io_kwargs.video.fps`, one number a request, sets the clock of pictures in later ones.
    """
    kwargs: dict[str, Any] = dict(zip(("min_pixels", "max_pixels"), sent.pixels, strict=True))
    if not sent.videos:
        return {"mm_processor_kwargs": kwargs}
    kwargs["do_sample_frames"] = False
    video_io: dict[str, Any]
    if sent.form == "file":
        video_io = {"num_frames": -1}
        if any(video.frames not in _KEPT for video in sent.videos):
            # The loader for this model samples by its own rule; this one keeps every frame.
            video_io["video_backend"] = "opencv"
    else:
        mean = 2 * len(sent.videos) / sum(video.seconds for video in sent.videos)
        # A list has to fit the videos that vLLM has not cached. Its numbers are part of the cache's key. A tiny
        # difference for each request prevents that one clip of it is found there without the other.
        factor = 1 - sent.digest * 1e-19
        rates = [2 / video.seconds * factor for video in sent.videos]
        kwargs["fps"] = rates if sent.form == "frames" and sent.clocks_differ else mean
        video_io = {"fps": mean}
    return {"mm_processor_kwargs": kwargs, "media_io_kwargs": {"video": video_io}}


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
    urls = (f"data:image/png;base64,{picture}" for picture in _encode_pictures(shown, frames))
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def _encode_video(video: Video, frames: FrameStore, form: VideoForm, profile: Profile) -> str:
    if form != "file":
        return f"data:video/jpeg;base64,{','.join(_encode_pictures(video.frames, frames))}"
    length = frame_seconds(profile.clock, video.seconds_per_patch)
    file = write_lossless(frames.pixels(video.frames), frame_seconds=length)
    return f"data:video/mp4;base64,{base64.b64encode(file).decode('ascii')}"


def _encode_pictures(shown: Sequence[FrameRef], frames: FrameStore) -> list[str]:
    """Each frame as a PNG in base64, without loss."""
    pictures: list[str] = []
    for pixels in frames.pixels(shown):
        file = io.BytesIO()
        PillowImage.fromarray(pixels).save(file, format="PNG", compress_level=1)
        pictures.append(base64.b64encode(file.getvalue()).decode("ascii"))
    return pictures


def patch_seconds(clock: Clock, seconds_per_patch: float) -> float:
    """The seconds between patches for a server that takes a number, so that its steps are the profile's."""
    return max(_apply_rule(clock, seconds_per_patch) * _MARGIN, _LEAST_SECONDS)


def frame_seconds(clock: Clock, seconds_per_patch: float) -> Fraction:
    """How long a file shows each frame, so that the steps of a server that reads its frame rate are the profile's.

    The fewest whole microseconds that are enough (milliseconds, if a frame lasts a quarter of an hour), so that frames
    of 2.5 s are exactly 0.4 frames a second.
    """
    least = _apply_rule(clock, seconds_per_patch)
    per_second = 1_000_000 if least / 2 < _LONG_FRAME_SECONDS else 1_000
    ticks = max(math.ceil(Fraction(least) * per_second / 2), math.ceil(_SHORTEST_FRAME_SECONDS * per_second))
    while _seconds_read(per_second / ticks) < least:
        ticks += 1
    return Fraction(ticks, per_second)


def _apply_rule(clock: Clock, seconds_per_patch: float) -> float:
    if clock.rule == "fixed":
        return clock.seconds_per_patch
    return int(seconds_per_patch) if clock.rule == "truncate" else seconds_per_patch


def _seconds_read(frames_per_second: float) -> float:
    """The seconds of a patch that a server computes from a frame rate, in the precision that gives less."""
    seconds = 2 / frames_per_second
    return min(seconds, ctypes.c_float(seconds).value)
