"""Makes positions.json and sizes.json from the reference (extra `parity`: torch, transformers 4.57).

    python tests/golden/make_positions.py

Positions are those of `Qwen2_5_VLModel.get_rope_index`, whose clock is the one the checkpoints were trained
around; sizes those of `smart_resize` of Qwen2-VL's image processor.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from types import SimpleNamespace

import torch
import transformers
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

HERE = Path(__file__).parent
START, VIDEO, IMAGE, TEXT = 1, 2, 3, 9
CONFIG = SimpleNamespace(
    vision_config=SimpleNamespace(spatial_merge_size=2, tokens_per_second=2),
    image_token_id=IMAGE,
    video_token_id=VIDEO,
    vision_start_token_id=START,
)

# A part is ["text", tokens], ["image", rows, columns] or ["video", patches, rows, columns, seconds per patch].
CASES: dict[str, list[list[object]]] = {
    "text only": [["text", 7]],
    "one image": [["text", 3], ["image", 2, 3], ["text", 2]],
    "one video, whole seconds": [["text", 5], ["video", 2, 5, 9, 2.0], ["text", 4]],
    "one video, 1.7 s becomes 1": [["text", 5], ["video", 2, 5, 9, 1.7], ["text", 4]],
    "one video, under 1 s becomes 0": [["text", 5], ["video", 3, 2, 2, 0.6], ["text", 4]],
    "two videos on their own clocks": [
        ["text", 9],
        ["video", 2, 5, 9, 2.5],
        ["text", 2],
        ["video", 2, 9, 5, 7.25],
        ["text", 6],
    ],
    "image after video": [["text", 2], ["video", 2, 3, 4, 1.0], ["text", 8], ["image", 4, 3], ["text", 1]],
    "eight tool images": [["text", 2], *([["image", 5, 9], ["text", 2]] * 8)],
    "long clip: t exceeds rows and columns": [["text", 4], ["video", 4, 3, 5, 75.0], ["text", 3]],
    "very long clip after a tall one": [
        ["text", 4],
        ["video", 2, 11, 2, 1.0],
        ["text", 2],
        ["video", 3, 2, 13, 900.5],
        ["text", 3],
    ],
    "odd sizes": [["text", 1], ["video", 1, 1, 1, 3.0], ["text", 1], ["video", 5, 1, 7, 1.0], ["text", 1]],
}


def positions(parts: list[list[object]]) -> list[list[int]]:
    """Planes t, y, x over the whole sequence; vision_start and vision_end count as the text they are."""
    ids: list[int] = []
    videos: list[list[int]] = []
    images: list[list[int]] = []
    seconds: list[float] = []
    for kind, *sizes in parts:
        if kind == "text":
            ids += [TEXT] * sizes[0]
        elif kind == "image":
            rows, columns = sizes
            images.append([1, 2 * rows, 2 * columns])
            ids[-1] = START
            ids += [IMAGE] * (rows * columns)
        else:
            patches, rows, columns, interval = sizes
            videos.append([patches, 2 * rows, 2 * columns])
            seconds.append(interval)
            ids[-1] = START
            ids += [VIDEO] * (patches * rows * columns)
    found, _ = Qwen2_5_VLModel.get_rope_index(
        SimpleNamespace(config=CONFIG),
        torch.tensor([ids]),
        torch.tensor(images) if images else None,
        torch.tensor(videos) if videos else None,
        second_per_grid_ts=torch.tensor(seconds) if seconds else None,
    )
    return found[:, 0].tolist()


def sizes() -> list[list[int]]:
    """Rows of width, height, min_pixels, max_pixels, and the width and height to resize to."""
    draw = random.Random(0)
    sides = [28, 30, 100, 140, 252, 333, 480, 512, 640, 719, 720, 832, 1080, 1280, 1920, 3840, 4320]
    ranges = [(3136, 12845056), (12544, 200704), (100352, 602112), (35280, 35280), (35280, 35840)]
    cases = [(w, h, *r) for w, h in draw.sample(list(itertools.product(sides, sides)), 60) for r in ranges]
    cases += [(draw.randint(1, 4000), draw.randint(30, 4000), *draw.choice(ranges)) for _ in range(100)]
    rows: list[list[int]] = []
    for width, height, least, most in cases:
        if max(width, height) <= 200 * min(width, height):
            tall, wide = smart_resize(height, width, factor=28, min_pixels=least, max_pixels=most)
            rows.append([width, height, least, most, wide, tall])
    return rows


if __name__ == "__main__":
    source = f"transformers {transformers.__version__}"
    golden = [{"name": name, "parts": parts, "positions": positions(parts)} for name, parts in CASES.items()]
    (HERE / "positions.json").write_text(json.dumps({"source": source, "cases": golden}) + "\n")
    (HERE / "sizes.json").write_text(json.dumps({"source": source, "rows": sizes()}) + "\n")
