"""Writes `sets/`: a few rows, made up by us, in each published set's layout. No clip and no label of theirs.

    python tests/evaluation/make_sets.py

Sources of the layouts: GenAI-Bench's inference.py and utils.py (TIGER-AI-Lab/GenAI-Bench), UnifiedReward's data.json
for it (CodeGoat24/UnifiedReward, GenAI-Bench-Video), VideoGen-RewardBench's eval_videogen_rewardbench.py
(KwaiVGI/VideoAlign), MJ-Bench-Video's datas/test.json (aiming-lab/MJ-Video).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent / "sets"
GENAI_CLIPS = "https://huggingface.co/datasets/tianleliphoebe/genai-arena-video-mp4/blob/main/dir"
GENAI = ("leftvote", "rightvote", "tievote", "bothbad_vote", "leftvote", "rightvote")
GENAI_TEST = ("tievote", "rightvote", "bothbad_vote", "tievote", "rightvote")
# Overall, TA, VQ, MQ
VIDEOGEN = (
    ("A", "A", "same", "A"),
    ("B", "B", "B", ""),
    ("same", "A", "", "same"),
    ("A", "same", "A", "B"),
    ("", "B", "B", "A"),
)
# overall, Alignment, Fineness, Coherence & Consistency, discard
MJ = (
    ("Video 1 Better", "Video 1 better", "Same", "Video 2 better", False),
    ("Same", "Same", "Same", "Same", False),
    ("Video 2 better", "Hard to judge", "Video 2 better", "Same", False),
    ("Video 1 better", "Same", "Same", "Same", True),
    ("Hard to judge", "Same", "Video 1 better", "Same", False),
    ("Same", "Video 1 better", "Same", "Same", False),
)


def genai(votes: Sequence[str] = GENAI) -> str:
    """video_generation/test_v1-00000-of-00001, or test-…, one JSON line a row."""
    rows = [
        {
            "prompt": f"A made-up prompt, number {n}.",
            "left_video": f"{GENAI_CLIPS}/g{n}a.mp4",
            "right_video": f"{GENAI_CLIPS}/g{n}b.mp4",
            "left_model": "one",
            "right_model": "other",
            "vote_type": vote,
        }
        for n, vote in enumerate(votes, start=1)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def unified_reward() -> str:
    """GenAI-Bench-Video/data.json, a list; clips by their file names, which lie in videos/."""
    rows = [
        {
            "id": n,
            "prompt": f"A made-up prompt, number {n}.",
            "video_left": f"{n:032x}.mp4",
            "video_right": f"{n + 256:032x}.mp4",
            "vote_type": vote,
        }
        for n, vote in enumerate(GENAI)
    ]
    return json.dumps(rows, indent=4) + "\n"


def videogen() -> str:
    """videogen-rewardbench.csv; rows 1 and 2 have one prompt, which has a comma and a line break."""
    text = io.StringIO()
    heading = ["path_A", "path_B", "A_model", "B_model", "prompt", "VQ", "MQ", "TA", "Overall"]
    heading += ["fps_A", "num_frames_A", "fps_B", "num_frames_B"]
    writer = csv.DictWriter(text, heading, lineterminator="\n")
    writer.writeheader()
    for n, (overall, ta, vq, mq) in enumerate(VIDEOGEN, start=1):
        writer.writerow(
            {
                "path_A": f"videos/one/v{n}a.mp4",
                "path_B": f"videos/other/v{n}b.mp4",
                "A_model": "one",
                "B_model": "other",
                "prompt": "Shared,\nby two." if n <= 2 else f"Made-up prompt {'long ' * n}",
                "VQ": vq,
                "MQ": mq,
                "TA": ta,
                "Overall": overall,
                "fps_A": "24.0",
                "num_frames_A": "48",
                "fps_B": "24.0",
                "num_frames_B": "48",
            }
        )
    return text.getvalue()


def mj() -> str:
    """test.json, a list; without the fine labels a video, which are not read."""
    rows = [
        {
            "caption": f"A made-up caption, number {n}.",
            "video_0_path": f"test/{n}_0.mp4",
            "video_1_path": f"test/{n}_1.mp4",
            "category_preference": {
                "Alignment": alignment,
                "Safety": "Same",
                "Fineness": fineness,
                "Coherence & Consistency": coherence,
                "Bias": "Same",
            },
            "overall_preference": overall,
            "discard": discard,
        }
        for n, (overall, alignment, fineness, coherence, discard) in enumerate(MJ)
    ]
    return json.dumps(rows, indent=1) + "\n"


FILES = {
    "genai-bench/video_generation/test_v1-00000-of-00001.jsonl": genai,
    "genai-bench/video_generation/test-00000-of-00001.jsonl": partial(genai, GENAI_TEST),
    "genai-bench-unifiedreward/data.json": unified_reward,
    "videogen-rewardbench/videogen-rewardbench.csv": videogen,
    "mj-bench-video/test.json": mj,
}

if __name__ == "__main__":
    for name, make in FILES.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make().encode())
