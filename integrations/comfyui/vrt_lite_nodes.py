"""Two ComfyUI nodes: the better of two videos, and a batch of videos ranked. Copy this file to ComfyUI's custom_nodes.

A video is a VIDEO or a batch of IMAGEs. With `server` empty, vrt-lite judges in ComfyUI's own process, where it must be
installed (pip install vrt-lite). Else the clips are sent to that address, which `vrt-lite serve` has printed; where it
needs a token, that is taken from VRT_LITE_TOKEN.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from email.message import Message
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

CATEGORY = "vrt-lite"
CLIP = "VIDEO,IMAGE"
_SHARED = {
    "prompt": ("STRING", {"multiline": True, "default": "", "tooltip": "What the videos were made from."}),
    "model": ("STRING", {"default": "", "tooltip": "A bundled or pulled judge; empty for the default one."}),
    "both_orders": ("BOOLEAN", {"default": True, "tooltip": "Judge each pair twice, with its videos exchanged."}),
    "fps": ("FLOAT", {"default": 24.0, "min": 1.0, "max": 240.0, "tooltip": "For batches of images."}),
    "server": ("STRING", {"default": "", "tooltip": "http://127.0.0.1:8765 of vrt-lite serve; empty: judge here."}),
}


class BetterVideo:
    """The better of two videos, the verdict in words, and the probabilities of the first, a tie, and the second.

    The words are the headline, a line for each dimension, what was measured, what the judge sees, and the warnings.
    """

    CATEGORY = CATEGORY
    FUNCTION = "judge"
    RETURN_TYPES = (CLIP, "STRING", "FLOAT", "FLOAT", "FLOAT", "INT")
    RETURN_NAMES = ("better", "verdict", "first", "tie", "second", "winner")
    DESCRIPTION = (
        "Which of two videos is better? A tie, and a pair whose orders disagree, give the first, and winner 0."
    )

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        return {"required": {"video_1": (CLIP,), "video_2": (CLIP,), **_SHARED}}

    def judge(
        self, video_1: Any, video_2: Any, prompt: str, model: str, both_orders: bool, fps: float, server: str
    ) -> tuple[Any, ...]:
        """Judge; return the values of `RETURN_TYPES`."""
        with tempfile.TemporaryDirectory() as folder:
            a, b = (write_clip(video, Path(folder) / str(n), fps) for n, video in enumerate((video_1, video_2), 1))
            if server:
                body = {"prompt": prompt, "model": model or None, "both_orders": both_orders}
                overall, lines = compare_there(server, {"a": upload(server, a), "b": upload(server, b), **body})
            else:
                overall, lines = compare_here(a, b, prompt, model, both_orders)
        shares = overall["probabilities"] or {name: float(name == str(overall["winner"] or "tie")) for name in _NAMES}
        better = video_2 if overall["winner"] == 2 else video_1
        return (better, "\n".join(lines), shares["1"], shares["tie"], shares["2"], overall["winner"])


class RankedVideos:
    """A list of videos, best first, with the strength of each in log odds, and the leaderboard as text."""

    CATEGORY = CATEGORY
    FUNCTION = "rank"
    INPUT_IS_LIST = True
    RETURN_TYPES = (CLIP, CLIP, "FLOAT", "STRING")
    RETURN_NAMES = ("ranked", "best", "strengths", "leaderboard")
    OUTPUT_IS_LIST = (True, False, True, False)
    DESCRIPTION = "Ranks a list of videos by comparing pairs of them. Videos without a verdict come last."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        return {"required": {"videos": (CLIP,), **_SHARED}}

    def rank(
        self,
        videos: list[Any],
        prompt: list[str],
        model: list[str],
        both_orders: list[bool],
        fps: list[float],
        server: list[str],
    ) -> tuple[Any, ...]:
        """Rank; return the values of `RETURN_TYPES`."""
        with tempfile.TemporaryDirectory() as folder:
            clips = [write_clip(video, Path(folder) / str(n), fps[0]) for n, video in enumerate(videos, 1)]
            if server[0]:
                body = {"prompt": prompt[0], "model": model[0] or None, "both_orders": both_orders[0]}
                told, _ = ask(server[0], "/v1/rewards", {"clips": [upload(server[0], clip) for clip in clips], **body})
                strengths = [clip["reward"] for clip in told["rewards"]]
                flags = [clip["flags"] for clip in told["rewards"]]
                notes = list_notes(flags, told["judge"], told["scope"], told["warnings"])
            else:
                strengths, notes = rank_here(clips, prompt[0], model[0], both_orders[0])
        known = {n: -float("inf") if strength is None else strength for n, strength in enumerate(strengths)}
        order = sorted(known, key=lambda n: (-known[n], n))
        lines = [f"{place}. video {n + 1}  {rate(strengths[n])}" for place, n in enumerate(order, 1)]
        return ([videos[n] for n in order], videos[order[0]], [known[n] for n in order], "\n".join(lines + notes))


_NAMES = ("tie", "1", "2")


def list_notes(flags: list[str], judge: str, scope: str, warnings: list[str]) -> list[str]:
    """List what is to be known of a ranking: the videos' measured faults, the judge, what it sees, and the warnings."""
    flagged = [f"video {n} is flagged: {words}" for n, words in enumerate(flags, 1) if words]
    named = f"judge: {judge}, {scope}" if scope else f"judge: {judge}"
    return [*flagged, named, *(f"warning: {warning}" for warning in warnings)]


def rate(strength: float | None) -> str:
    """Format a clip's strength in log odds."""
    return "no verdict" if strength is None else f"{strength:+.2f}"


def write_clip(video: Any, stem: Path, fps: float) -> Path:
    """Write a VIDEO, or a batch of IMAGEs (frames, height, width, channels; 0 to 1) without loss; return the file."""
    if hasattr(video, "save_to"):
        path = stem.with_suffix(".mp4")
        video.save_to(str(path))
        return path
    import av  # noqa: PLC0415 - ComfyUI has it, as vrt-lite does
    import numpy as np  # noqa: PLC0415

    images = np.asarray(video.cpu() if hasattr(video, "cpu") else video)
    pixels = np.clip(images[..., :3] * 255 + 0.5, 0, 255).astype(np.uint8)
    path = stem.with_suffix(".mkv")
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("ffv1", rate=Fraction(fps).limit_denominator(1000))
        stream.height, stream.width, stream.pix_fmt = pixels.shape[1], pixels.shape[2], "bgr0"
        for picture in pixels:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


@functools.lru_cache(maxsize=1)
def open_judge(model: str, both_orders: bool) -> Any:
    """Open a judge in this process; it stays loaded until another one is asked for."""
    from vrt_lite import Judge, Settings  # noqa: PLC0415

    return Judge(model or None, settings=Settings(both_orders=both_orders))


def compare_here(a: Path, b: Path, prompt: str, model: str, both_orders: bool) -> tuple[dict[str, Any], list[str]]:
    """Compare two clips in this process; return the overall preference, and all that is to be told in words."""
    from vrt_lite.show import list_verdict  # noqa: PLC0415

    judgement = open_judge(model, both_orders).compare(a, b, prompt=prompt)
    return judgement.to_json()["verdict"]["overall"], list_verdict(judgement)


def rank_here(clips: list[Path], prompt: str, model: str, both_orders: bool) -> tuple[list[float | None], list[str]]:
    """Rank clips in this process; return the strength of each, None without a verdict, and what is to be known."""
    from vrt_lite.measures.flags import describe_flags  # noqa: PLC0415
    from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip  # noqa: PLC0415
    from vrt_lite.ranking.ladder import rate_group  # noqa: PLC0415
    from vrt_lite.runs.question import Question, result_of  # noqa: PLC0415
    from vrt_lite.show.words import describe_warnings  # noqa: PLC0415

    judge, flags = open_judge(model, False), [""] * len(clips)
    group = ClipGroup("", prompt, tuple(RankedClip(clip.name, clip, str(n)) for n, clip in enumerate(clips)))
    for i, a in enumerate(clips):
        for j, b in enumerate(clips):
            if i < j or (i != j and both_orders):
                judgement = judge.compare(a, b, prompt=prompt)
                flags[i], flags[j] = (describe_flags(clip.flags) for clip in judgement.inputs)
                group.results[i, j] = result_of(Question(str(i), str(j), prompt, ""), judgement)
    ladder = rate_group(group)
    found = {standing.clip: standing.ratings["OA"].strength for standing in ladder.standings}
    notes = list_notes(flags, judge.describe()["--model"], judge.scope, describe_warnings(ladder.conditions))
    return [found.get(n) for n in range(len(clips))], notes


def compare_there(server: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Compare two clips on a server; return the overall preference, and all that is to be told in words."""
    told, headers = ask(server, "/v1/compare", body)
    job, _ = send(server, f"/v1/jobs/{headers['x-job']}")
    return told["verdict"]["overall"], job["result"]["lines"]


def upload(server: str, clip: Path) -> str:
    """Send a clip to a server; return its id."""
    with clip.open("rb") as file:
        headers = {"content-type": "application/octet-stream", "content-length": str(clip.stat().st_size)}
        told, _ = send(server, f"/v1/clips?name={quote(clip.name)}", file, headers)
    return told["clip"]


def ask(server: str, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], Message]:
    """Post JSON to a server; return its answer and that one's headers."""
    return send(server, path, json.dumps(body).encode(), {"content-type": "application/json"})


def send(
    server: str, path: str, data: Any = None, headers: dict[str, str] | None = None
) -> tuple[dict[str, Any], Message]:
    """Post data to a server, or get without any; return its answer and that one's headers.

    A busy server is asked again when it says; RuntimeError if it refuses.
    """
    headers = headers or {}
    if token := os.environ.get("VRT_LITE_TOKEN"):
        headers = {**headers, "authorization": f"Bearer {token}"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(urllib.request.Request(server.rstrip("/") + path, data=data, headers=headers)) as answer:
                return json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise RuntimeError(f"vrt-lite: {json.load(error)['error']['message']}") from None
            time.sleep(int(error.headers["retry-after"]))
            if hasattr(data, "seek"):
                data.seek(0)


NODE_CLASS_MAPPINGS = {"VrtLiteBetterVideo": BetterVideo, "VrtLiteRankedVideos": RankedVideos}
NODE_DISPLAY_NAME_MAPPINGS = {
    "VrtLiteBetterVideo": "Better Video (vrt-lite)",
    "VrtLiteRankedVideos": "Rank Videos (vrt-lite)",
}
