"""The forms in which a server may take a video, the best first, and what a reader must know about each.

How vLLM and SGLang treat a form is known from their source; for vLLM `make vllm` also tests it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from vrt_lite.backends.http.request import SentMessages, SentVideo, VideoForm
from vrt_lite.backends.http.service import ServerInfo
from vrt_lite.errors import Warned
from vrt_lite.profile import PIXELS_PER_TOKEN
from vrt_lite.settings import FormName, ServerKind
from vrt_lite.video.lossless import can_write_lossless

FORM_NAMES: dict[VideoForm, FormName] = {
    "file": "lossless video file",
    "frames": "frames of a video",
    "frames on one clock": "frames of a video",
    "images": "single images",
}
"""The name of each form in a judgement."""

# The range of a video's frames in SGLang, unless it was started with another.
_LEAST, _MOST = 128 * PIXELS_PER_TOKEN, 768 * PIXELS_PER_TOKEN
# The first vLLM with a transformers that takes no list of rates, and the first that reads a file's own rate.
_LIST_REFUSED = (0, 24)
_READS_FILES = (0, 31)
_OTHERS: dict[ServerKind, tuple[VideoForm, ...]] = {
    "sglang": ("file", "images"),
    "llama": ("images",),
    "openai": ("images",),
}


def list_forms(server: ServerInfo) -> tuple[VideoForm, ...]:
    """The forms to try, in this order, until the server takes one.

    An older vLLM takes a file and silently gives it a wrong clock, a newer one refuses a list of rates: where the
    version is not known, the form that would be refused comes first.
    """
    forms: tuple[VideoForm, ...]
    if server.kind != "vllm":
        forms = _OTHERS[server.kind]
    elif server.version >= _LIST_REFUSED:
        forms = ("file", "frames", "frames on one clock")
    elif server.version > (0, 0):
        forms = ("frames", "frames on one clock")
    else:
        forms = ("frames", "file", "frames on one clock")
    return forms if can_write_lossless() else tuple(form for form in forms if form != "file")


def list_warnings(server: ServerInfo, sent: SentMessages) -> Iterator[Warned]:
    """What a reader of a verdict must know about the form in which the server got these frames."""
    if sent.form == "images":
        yield Warned(
            "single_images",
            "The server takes frames as single images, not as a video (vLLM does): the judge was trained on videos, "
            "and verdicts may differ.",
        )
    elif server.kind == "sglang":
        yield Warned(
            "no_clock",
            "SGLang reads no clock from a Qwen2.5-VL video (0.5.23 does not): the judge is not told how far apart the "
            "frames are, and verdicts may differ. vLLM tells it.",
        )
        if any(_count_kept_by_sglang(video) < video.frames for video in sent.videos):
            text = "SGLang drops some of the frames: it keeps an even number, and at most two a second beyond four."
            yield Warned("frames_dropped", text)
        if any(not _LEAST <= video.pixels <= _MOST for video in sent.videos):
            text = f"SGLang resizes frames: it shows a video's at {_LEAST} to {_MOST} pixels each."
            yield Warned("frames_resized", text)
    elif _LIST_REFUSED <= server.version < _READS_FILES:
        yield Warned(
            "no_clock",
            f"This vLLM ({server.version[0]}.{server.version[1]}) reads no clock from a Qwen2.5-VL video: the judge is "
            "not told how far apart the frames are, and verdicts may differ. vLLM 0.31 and newer tell it.",
        )
    elif sent.form == "frames on one clock" and sent.clocks_differ:
        yield Warned(
            "one_clock",
            "The clips differ in length, and this server keeps one clock for a request: both videos got the mean of "
            "theirs.",
        )


def _count_kept_by_sglang(video: SentVideo) -> int:
    """The frames that it samples of a file (sglang/srt/multimodal/processors/qwen_vl.py, `smart_nframes`)."""
    seconds = video.frames / 2 * video.seconds
    most = math.floor(min(768, video.frames) / 2) * 2
    return math.floor(min(max(2 * seconds, 4), most) / 2) * 2
