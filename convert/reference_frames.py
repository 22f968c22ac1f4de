"""Prepares frames with the reference's own image processor: transformers' Qwen2-VL processor, the PIL version."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Image, Video

MERGE = 2
Pixels = NDArray[np.uint8]
Grid = tuple[int, int, int]
"""Of a video or an image: temporal patches, rows, columns."""


class ShownFrames:
    """What a conversation shows, images and videos apart, as the reference's model takes it."""

    def __init__(self) -> None:
        self._patches: dict[type, list[NDArray[np.float32]]] = {Image: [], Video: []}
        self._grids: dict[type, list[Grid]] = {Image: [], Video: []}

    def add(self, part: Image | Video, patches: NDArray[np.float32], grid: Grid) -> int:
        """Add what `ReferenceFrames.patches` made of a part; returns how many tokens it has."""
        self._patches[type(part)].append(patches)
        self._grids[type(part)].append(grid)
        return int(np.prod(grid)) // MERGE**2

    def inputs(self, torch: Any) -> dict[str, Any]:
        """Return the arguments of the model."""
        found: dict[str, Any] = {}
        for kind, pixels, grid in (
            (Image, "pixel_values", "image_grid_thw"),
            (Video, "pixel_values_videos", "video_grid_thw"),
        ):
            if self._patches[kind]:
                found[pixels] = torch.from_numpy(np.concatenate(self._patches[kind]))
                found[grid] = torch.tensor(self._grids[kind])
        return found


class ReferenceFrames:
    """Resizes frames and cuts them into patches.

    `config` is the checkpoint's preprocessor_config.json; the pixel ranges are the profile's.
    """

    def __init__(self, config: Mapping[str, Any], profile: Profile) -> None:
        colours = {key: config[key] for key in ("image_mean", "image_std")}
        ranges = ((profile.min_pixels, profile.max_pixels), (profile.tool_min_pixels, profile.tool_max_pixels))
        processor = _processor_class()
        self._patch = patch = int(config.get("patch_size", 14))
        self._processors = [
            processor(**colours, patch_size=patch, min_pixels=least, max_pixels=most) for least, most in ranges
        ]

    def resized(self, frame: Pixels, *, called: bool = False) -> Pixels:
        """Resize a frame, shown first or `called` by the tool: (height, width, 3), before it is normalised."""
        patches, grid = self.patches([frame, frame], called=called, do_rescale=False, do_normalize=False)
        _, rows, columns = grid
        side = self._patch
        cells = patches.reshape(rows // MERGE, columns // MERGE, MERGE, MERGE, 3, 2, side, side)[..., 0, :, :]
        pixels = cells.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * side, columns * side, 3)
        return pixels.astype(np.uint8)

    def patches(self, frames: Sequence[Pixels], *, called: bool, **steps: bool) -> tuple[NDArray[np.float32], Grid]:
        """Return flat patches of one video, or of one image, and the grid (time, rows, columns).

        The processor gets every frame as an image, which it shows twice; of every two frames the halves are joined.
        """
        shown: list[NDArray[np.float32]] = []
        rows = columns = 0
        for frame in frames:
            done = self._processors[called].preprocess([frame], return_tensors="np", **steps)
            _, rows, columns = map(int, done["image_grid_thw"][0])
            shown.append(done["pixel_values"].reshape(rows * columns, 3, 2, self._patch**2)[:, :, 0])
        shown += shown[-1:] * (len(shown) % 2)
        pairs = [np.stack(shown[i : i + 2], axis=2) for i in range(0, len(shown), 2)]
        flat = np.concatenate(pairs).reshape(-1, 3 * 2 * self._patch**2)
        return flat.astype(np.float32), (len(pairs), rows, columns)


def _processor_class() -> Any:
    """Return the class that resizes with PIL. In transformers 5.x the plain name resizes with torchvision."""
    package = "transformers.models.qwen2_vl"
    if importlib.import_module("transformers").__version__.startswith("4."):
        return importlib.import_module(f"{package}.image_processing_qwen2_vl").Qwen2VLImageProcessor
    return importlib.import_module(f"{package}.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil
