"""Makes the golden positions and sizes from the reference (extra `parity`: torch, transformers).

    python tests/golden/make_positions.py [FOLDER]

Positions are those of `Qwen2_5_VLModel.get_rope_index`, sizes those of `smart_resize` of Qwen2-VL's image processor.
With transformers 4.57, whose clock ("truncate") is the one the checkpoints were trained around: positions.json and
sizes.json. With 5.x, whose clock is "exact": positions_exact.json, where a case that must differ from ours says why.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel

HERE = Path(__file__).parent
TRUNCATES = transformers.__version__.startswith("4.")
START, VIDEO, IMAGE, TEXT = 1, 2, 3, 9
TOKENS_PER_SECOND = 2
CONFIG = SimpleNamespace(
    vision_config=SimpleNamespace(spatial_merge_size=2, tokens_per_second=TOKENS_PER_SECOND),
    image_token_id=IMAGE,
    video_token_id=VIDEO,
    vision_start_token_id=START,
)

# A part is ["text", tokens], ["image", rows, columns] or ["video", patches, rows, columns, seconds per patch].
CASES: dict[str, list[list[Any]]] = {
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
    "fractions of a second within a large grid": [
        ["text", 3],
        ["video", 4, 9, 21, 2.7],
        ["text", 2],
        ["video", 6, 18, 4, 1.35],
        ["text", 5],
        ["image", 9, 16],
        ["text", 2],
    ],
    "two frames of each clip": [
        ["text", 2],
        ["video", 1, 5, 9, 30.3],
        ["text", 2],
        ["video", 1, 9, 5, 0.4],
        ["text", 2],
    ],
    "VR-Thinker's own sizes: 1008x560, 840x476, and a tool's frames of both": [
        ["text", 9],
        ["video", 2, 20, 36, 2.5],
        ["text", 2],
        ["video", 2, 17, 30, 7.25],
        ["text", 6],
        ["image", 20, 36],
        ["text", 2],
        ["image", 17, 30],
        ["text", 4],
    ],
    "t reaches the last column": [["text", 2], ["video", 3, 4, 9, 2.0], ["text", 2]],
    "t passes the last column by one": [["text", 2], ["video", 2, 4, 9, 4.5], ["text", 2]],
    "a step that 32 bits round up": [["text", 2], ["video", 6, 2, 19, 1.7 - 1e-8], ["text", 2]],
}


def positions(parts: list[list[Any]]) -> list[list[int]]:
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
    model = SimpleNamespace(config=CONFIG)
    kinds: dict[str, Any] = {}
    if not TRUNCATES:
        model.get_vision_position_ids = partial(Qwen2_5_VLModel.get_vision_position_ids, model)
        kinds["mm_token_type_ids"] = torch.tensor([[{IMAGE: 1, VIDEO: 2}.get(token, 0) for token in ids]])
    found, _ = Qwen2_5_VLModel.get_rope_index(
        model,
        torch.tensor([ids]),
        image_grid_thw=torch.tensor(images) if images else None,
        video_grid_thw=torch.tensor(videos) if videos else None,
        second_per_grid_ts=torch.tensor(seconds) if seconds else None,
        **kinds,
    )
    return found[:, 0].tolist()


def differs(parts: list[list[Any]]) -> str:
    """Why 5.x has other positions than the clock "exact" must have; "" where it has none."""
    for kind, *grid in parts:
        if kind == "video":
            patches, rows, columns, seconds = grid
            steps = [int(i * TOKENS_PER_SECOND * seconds) for i in range(patches)]
            if steps != (torch.arange(patches) * (TOKENS_PER_SECOND * torch.tensor(seconds))).long().tolist():
                return "5.x multiplies in 32 bits, and the product is rounded across a whole number"
            if steps[-1] >= max(rows, columns):
                return "5.x goes on after the larger of rows and columns, which t exceeds: later positions repeat"
    return ""


def sizes() -> list[list[int]]:
    """Rows of width, height, min_pixels, max_pixels, and the width and height to resize to. Of 4.57 alone."""
    # The module of this name in 5.x needs torchvision.
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

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


def main(out: Path) -> None:
    """Write what this transformers is the source of into `out`."""
    source = f"transformers {transformers.__version__}"
    golden = [{"name": name, "parts": parts, "positions": positions(parts)} for name, parts in CASES.items()]
    if TRUNCATES:
        (out / "positions.json").write_text(json.dumps({"source": source, "cases": golden}) + "\n", "utf-8")
        (out / "sizes.json").write_text(json.dumps({"source": source, "rows": sizes()}) + "\n", "utf-8")
        return
    told = [{**case, "differs": differs(case["parts"])} for case in golden]
    (out / "positions_exact.json").write_text(json.dumps({"source": source, "cases": told}) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
