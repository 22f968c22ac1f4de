"""The nodes. A video is a VIDEO or a batch of IMAGEs; the server judges, in its own process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .clips import draw_rows, read_clip
from .server import DEFAULT_ADDRESS, DEFAULT_JUDGE, Server, list_judges

CATEGORY: Final = "vrt-lite"
CLIP: Final = "VIDEO,IMAGE"
_SUFFIXES: Final = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".gif", ".webp")


def list_shared_inputs() -> dict[str, Any]:
    """List the inputs of every node that judges."""
    return {
        "prompt": ("STRING", {"multiline": True, "default": "", "tooltip": "What the videos were made from."}),
        "judge": (list_judges(), {"default": DEFAULT_JUDGE, "tooltip": "A judge that the server has."}),
        "both_orders": ("BOOLEAN", {"default": True, "tooltip": "Judge each pair twice, its videos exchanged."}),
        "fps": ("FLOAT", {"default": 24.0, "min": 1.0, "max": 240.0, "tooltip": "For batches of images."}),
        "server": ("STRING", {"default": DEFAULT_ADDRESS, "tooltip": "What vrt-lite serve has printed."}),
    }


class AskingNode:
    """A node that asks a server. What judges it has is the server's to say, not the menu's of another day."""

    CATEGORY = CATEGORY
    FUNCTION = "run"

    @classmethod
    def VALIDATE_INPUTS(cls, judge: Any) -> bool:  # noqa: N802 - ComfyUI's name
        """Accept a judge that is not in the menu."""
        return True


class CompareVideos(AskingNode):
    """The better of two videos, the verdict in words, warnings and flags, what the judge saw, and probabilities."""

    RETURN_TYPES = (CLIP, "STRING", "STRING", "IMAGE", "FLOAT", "FLOAT", "FLOAT", "INT")
    RETURN_NAMES = ("better", "verdict", "warnings", "frames", "first", "tie", "second", "winner")
    DESCRIPTION = "Which of two videos is better? A tie, and orders that disagree, give the first, and winner 0."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        return {"required": {"video_1": (CLIP,), "video_2": (CLIP,), **list_shared_inputs()}}

    def run(
        self, video_1: Any, video_2: Any, prompt: str, judge: str, both_orders: bool, fps: float, server: str
    ) -> tuple[Any, ...]:
        """Judge; return the values of `RETURN_TYPES`."""
        there = Server(server)
        a, b = (there.upload(*read_clip(video, fps)) for video in (video_1, video_2))
        body = {"a": a, "b": b, "prompt": prompt, "model": name_judge(judge), "both_orders": both_orders}
        job = there.work("/v1/compare", body)
        lines: list[str] = job["result"]["lines"]
        judgement = job["result"]["judgement"]
        overall = judgement["verdict"]["overall"]
        shares = overall["probabilities"] or {n: float(n == str(overall["winner"] or "tie")) for n in ("1", "tie", "2")}
        warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
        verdict = "\n".join(line for line in lines if not line.startswith("warning: "))
        better = video_2 if overall["winner"] == 2 else video_1
        sheet = draw_rows(fetch_rows(there, job["id"], judgement))
        return (better, verdict, "\n".join(warnings), sheet, shares["1"], shares["tie"], shares["2"], overall["winner"])


class RewardsNode(AskingNode):
    """A node that asks how strong each video of a list is among these."""

    INPUT_IS_LIST = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        return {"required": {"videos": (CLIP,), **list_shared_inputs()}}

    def run(
        self,
        videos: list[Any],
        prompt: list[str],
        judge: list[str],
        both_orders: list[bool],
        fps: list[float],
        server: list[str],
    ) -> tuple[Any, ...]:
        """Judge; return the values of `RETURN_TYPES`."""
        return self.arrange(videos, ask_rewards(videos, prompt[0], judge[0], both_orders[0], fps[0], server[0]))

    def arrange(self, videos: list[Any], told: Rewards) -> tuple[Any, ...]:
        """Make the values of `RETURN_TYPES` from what the server says."""
        raise NotImplementedError


class RankVideos(RewardsNode):
    """A list of videos, best first, with the strength of each in log odds, and the leaderboard as text."""

    RETURN_TYPES = (CLIP, CLIP, "FLOAT", "STRING", "STRING")
    RETURN_NAMES = ("ranked", "best", "strengths", "leaderboard", "warnings")
    OUTPUT_IS_LIST = (True, False, True, False, False)
    DESCRIPTION = "Ranks a list of videos. Those without a verdict come last. A judge of single clips judges each once."

    def arrange(self, videos: list[Any], told: Rewards) -> tuple[Any, ...]:
        """Put the videos in order."""
        order = sorted(range(len(videos)), key=lambda n: (-told.strengths[n], n))
        board = [f"{place}. {told.lines[n]}" for place, n in enumerate(order, 1)]
        ranked = [videos[n] for n in order]
        strengths = [told.strengths[n] for n in order]
        return (ranked, ranked[0], strengths, "\n".join((*board, told.judge)), told.warnings)


class ScoreVideos(RewardsNode):
    """The strength of each video among these, in log odds, in the order of the list; also as text."""

    RETURN_TYPES = ("FLOAT", "STRING", "STRING")
    RETURN_NAMES = ("strengths", "scores", "warnings")
    OUTPUT_IS_LIST = (True, False, False)
    DESCRIPTION = "Scores each video of a list among the others. A judge of single clips judges each once."

    def arrange(self, videos: list[Any], told: Rewards) -> tuple[Any, ...]:
        """Keep the list's order."""
        return (told.strengths, "\n".join((*told.lines, told.judge)), told.warnings)


@dataclass(frozen=True)
class Rewards:
    """What a server says of some videos: strengths, -inf without a verdict; lines; the judge; warnings."""

    strengths: list[float]
    lines: list[str]
    judge: str
    warnings: str


def ask_rewards(videos: list[Any], prompt: str, judge: str, both_orders: bool, fps: float, server: str) -> Rewards:
    """Ask a server how strong each video is among these."""
    there = Server(server)
    clips = [there.upload(*read_clip(video, fps)) for video in videos]
    body = {"prompt": prompt, "clips": clips, "model": name_judge(judge), "both_orders": both_orders}
    told = there.work("/v1/rewards", body)["result"]
    rewards = list(enumerate(told["rewards"], 1))
    return Rewards(
        [-float("inf") if clip["reward"] is None else clip["reward"] for _, clip in rewards],
        [f"video {n}  {describe_reward(clip)}" for n, clip in rewards],
        f"judge: {', '.join(filter(None, (told['judge'], told['scope'])))}",
        "\n".join((*told["warnings"], *(f"video {n} is flagged: {c['flags']}" for n, c in rewards if c["flags"]))),
    )


class KeepBestVideos:
    """The first of a ranked list: at most so many, and none below a strength."""

    CATEGORY = CATEGORY
    FUNCTION = "run"
    INPUT_IS_LIST = True
    RETURN_TYPES = (CLIP, "FLOAT")
    RETURN_NAMES = ("kept", "strengths")
    OUTPUT_IS_LIST = (True, True)
    DESCRIPTION = "Keeps the best of what Rank has put in order."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        most = ("INT", {"default": 2, "min": 1, "max": 10_000, "tooltip": "At most so many."})
        least = ("FLOAT", {"default": -1000.0, "min": -1000.0, "max": 1000.0, "tooltip": "None below this strength."})
        return {
            "required": {"ranked": (CLIP,), "strengths": ("FLOAT", {"forceInput": True}), "best": most, "least": least}
        }

    def run(
        self, ranked: list[Any], strengths: list[float], best: list[int], least: list[float]
    ) -> tuple[list[Any], list[float]]:
        """Return the kept videos and their strengths."""
        kept = [pair for pair in zip(ranked, strengths, strict=True) if pair[1] >= least[0]][: best[0]]
        return [video for video, _ in kept], [strength for _, strength in kept]


class VideosOfFolder:
    """The videos of a folder, as they are when the workflow runs; their names beside them."""

    CATEGORY = CATEGORY
    FUNCTION = "run"
    RETURN_TYPES = ("VIDEO", "STRING")
    RETURN_NAMES = ("videos", "names")
    OUTPUT_IS_LIST = (True, True)
    DESCRIPTION = "Lists the videos of a folder by name. It runs again when the folder has changed."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        """Return what goes in, as ComfyUI asks for it."""
        return {"required": {"folder": ("STRING", {"default": "", "tooltip": "A folder of the machine of ComfyUI."})}}

    @classmethod
    def IS_CHANGED(cls, folder: str) -> str:  # noqa: N802 - ComfyUI's name
        """Return what differs when the folder's videos do."""
        return json.dumps(
            [(path.name, (found := path.stat()).st_size, found.st_mtime_ns) for path in list_videos(folder)]
        )

    def run(self, folder: str) -> tuple[list[Any], list[str]]:
        """Return the videos and their names."""
        from comfy_api.latest import InputImpl  # noqa: PLC0415

        if not (paths := list_videos(folder)):
            raise RuntimeError(f"vrt-lite: {folder} has no video. It takes {', '.join(_SUFFIXES)}.")
        return [InputImpl.VideoFromFile(str(path)) for path in paths], [path.name for path in paths]


def list_videos(folder: str) -> list[Path]:
    """List the videos in a folder by name; none where there is no such folder."""
    place = Path(folder)
    return sorted(p for p in place.iterdir() if p.suffix.lower() in _SUFFIXES) if folder and place.is_dir() else []


def name_judge(judge: str) -> str | None:
    """Return the judge as a request names it: None for the server's own."""
    return None if judge == DEFAULT_JUDGE else judge


def describe_reward(clip: dict[str, Any]) -> str:
    """Return a clip's strength in log odds, or why it has none."""
    return f"no verdict: {clip['reason']}" if clip["reward"] is None else f"{clip['reward']:+.2f}"


def fetch_rows(server: Server, job: str, judgement: dict[str, Any]) -> list[list[bytes]]:
    """Fetch the frames that the judge saw: a row for each round and video."""
    rounds = [found["frames"] for order in judgement["orders"] for found in order["rounds"]]
    places = [
        [frame["source_frame"] for frame in seen if frame["video"] == video] for seen in rounds for video in (1, 2)
    ]
    videos = [video for _ in rounds for video in (1, 2)]
    media: dict[str, Any] = json.loads(server.ask("GET", f"/view/jobs/{job}"))["media"]
    first, second = (media[clip["sha256"]]["frames"] for clip in judgement["inputs"])
    return [
        [server.ask("GET", f"{(first, second)[video - 1]}{source}") for source in row]
        for video, row in zip(videos, places, strict=True)
        if row
    ]


NODE_CLASS_MAPPINGS = {
    "VrtLiteCompare": CompareVideos,
    "VrtLiteRank": RankVideos,
    "VrtLiteScore": ScoreVideos,
    "VrtLiteKeepBest": KeepBestVideos,
    "VrtLiteFolder": VideosOfFolder,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "VrtLiteCompare": "Compare Videos (vrt-lite)",
    "VrtLiteRank": "Rank Videos (vrt-lite)",
    "VrtLiteScore": "Score Videos (vrt-lite)",
    "VrtLiteKeepBest": "Keep Best Videos (vrt-lite)",
    "VrtLiteFolder": "Videos of a Folder (vrt-lite)",
}
