"""The forms in which a server may take a video, the best first, and what a reader must know of each.

What vLLM and SGLang do with a form was read in their source; vLLM's part was also run, by `make vllm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vrt_lite.backends.http.clock import differ
from vrt_lite.backends.http.discovery import Served
from vrt_lite.backends.http.lower import Form, Kind, Lowered, SentVideo
from vrt_lite.resize import PIXELS_PER_TOKEN
from vrt_lite.video.lossless import can_write_lossless

NAMES: dict[Form, str] = {
    "file": "lossless video file",
    "frames": "frames of a video",
    "frames on one clock": "frames of a video",
    "images": "single images",
}
"""A form as a judgement tells it."""

# The range of a video's frames in SGLang, unless it was started with another.
_LEAST, _MOST = 128 * PIXELS_PER_TOKEN, 768 * PIXELS_PER_TOKEN
# From where vLLM needs a transformers that takes no list of rates, and from where it reads a file's own.
_LIST_REFUSED = (0, 24)
_READS_FILES = (0, 31)
_OTHERS: dict[Kind, tuple[Form, ...]] = {"sglang": ("file", "images"), "llama": ("images",), "openai": ("images",)}


def forms_for(served: Served) -> tuple[Form, ...]:
    """What to try, in this order, until the server takes one.

    An older vLLM takes a file and gives it a wrong clock without a word, a newer one refuses a list of rates: where the
    version is not known, what would be refused comes first.
    """
    found: tuple[Form, ...]
    if served.kind != "vllm":
        found = _OTHERS[served.kind]
    elif served.version >= _LIST_REFUSED:
        found = ("file", "frames", "frames on one clock")
    elif served.version > (0, 0):
        found = ("frames", "frames on one clock")
    else:
        found = ("frames", "file", "frames on one clock")
    kept: list[Form] = [form for form in found if form != "file" or can_write_lossless()]
    return tuple(kept)


def notes(served: Served, form: Form, lowered: Lowered) -> Iterator[str]:
    """What a reader of a verdict must know of the form in which the server got these videos."""
    if form == "images":
        yield (
            "The server takes frames as single images, not as a video (vLLM does): the judge was trained on videos, "
            "and verdicts may differ."
        )
    elif served.kind == "sglang":
        yield (
            "SGLang reads no clock from a Qwen2.5-VL video (0.5.23 does not): the judge is not told how far apart the "
            "frames are, and verdicts may differ. vLLM tells it."
        )
        if any(_kept_by_sglang(video) < video.frames for video in lowered.videos):
            yield "SGLang drops some of the frames: it keeps an even number, and at most two a second beyond four."
        if any(not _LEAST <= video.pixels <= _MOST for video in lowered.videos):
            yield f"SGLang resizes frames: it shows a video's at {_LEAST} to {_MOST} pixels each."
    elif _LIST_REFUSED <= served.version < _READS_FILES:
        yield (
            f"This vLLM ({served.version[0]}.{served.version[1]}) reads no clock from a Qwen2.5-VL video: the judge is "
            "not told how far apart the frames are, and verdicts may differ. vLLM 0.31 and newer tell it."
        )
    elif form == "frames on one clock" and differ(lowered.clocks):
        yield (
            "The clips differ in length, and this server keeps one clock a request: both videos got the mean of theirs."
        )


def _kept_by_sglang(video: SentVideo) -> int:
    """The frames that it samples of a file (sglang/srt/multimodal/processors/qwen_vl.py, `smart_nframes`)."""
    seconds = video.frames / 2 * video.seconds
    most = math.floor(min(768, video.frames) / 2) * 2
    return math.floor(min(max(2 * seconds, 4), most) / 2) * 2
