"""Reads frames of a video with one reader, in its own process: `python -m bench.readers NAME FILE OUT INDEX…`.

Each way returns frames by number, resized to the size that a judge is shown; OUT is a NumPy file of them. The time runs
from opening the file to the last resized frame.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bench.measurements import peak_resident_bytes
from bench.side import frame_size
from vrt_lite.profile import default_profile

Frames = list[NDArray[np.uint8]]


def vrt_lite_reader(file: Path, indices: Sequence[int]) -> Frames:
    """Read frames with vrt-lite's reader, including all its checks of a file."""
    from vrt_lite.video import open_clip  # noqa: PLC0415

    with open_clip(file) as clip:
        found = clip.frames(indices, size=frame_size(default_profile().max_pixels))
        return [found[index] for index in indices]


def pyav_all(file: Path, indices: Sequence[int]) -> Frames:
    """Read frames with PyAV: the usual loop, which decodes every frame."""
    import av  # noqa: PLC0415

    numbers, found = set(indices), {}
    with av.open(file) as container:
        container.streams.video[0].thread_type = "AUTO"
        for i, frame in enumerate(container.decode(video=0)):
            if i in numbers:
                found[i] = resized(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8))
    return [found[index] for index in indices]


def opencv(file: Path, indices: Sequence[int]) -> Frames:
    """Read frames with OpenCV: a seek to each frame."""
    import cv2  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    capture, found = cv2.VideoCapture(str(file)), []
    for index in indices:
        capture.set(cv2.CAP_PROP_POS_FRAMES, index)
        good, frame = capture.read()
        if not good:
            raise RuntimeError(f"frame {index} cannot be read")
        found.append(resized(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)))
    capture.release()
    return found


def decord(file: Path, indices: Sequence[int]) -> Frames:
    """Read frames with decord: all frames in one request, as in the Qwen-VL utilities."""
    from decord import VideoReader  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    return [resized(frame) for frame in VideoReader(str(file)).get_batch(list(indices)).asnumpy()]


def torchcodec(file: Path, indices: Sequence[int]) -> Frames:
    """Read frames with torchcodec: all frames in one request, in its exact seek mode."""
    from torchcodec.decoders import VideoDecoder  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    batch = VideoDecoder(str(file), dimension_order="NHWC").get_frames_at(list(indices)).data
    return [resized(frame) for frame in batch.numpy()]


READERS: dict[str, tuple[str, Callable[[Path, Sequence[int]], Frames]]] = {
    "ours": ("av", vrt_lite_reader),
    "pyav, all": ("av", pyav_all),
    "opencv": ("cv2", opencv),
    "decord": ("decord", decord),
    "torchcodec": ("torchcodec", torchcodec),
}
"""The readers by name: the module that a reader needs, and its function."""


def resized(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize a frame to the size that a judge sees (bicubic)."""
    size = frame_size(default_profile().max_pixels)
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))


def main(arguments: Sequence[str]) -> None:
    """Read the frames, write them, and print the cost."""
    name, file, out, *indices = arguments
    module, read = READERS[name]
    __import__(module)  # loading the library is not timed
    began = time.perf_counter()
    frames = read(Path(file), [int(index) for index in indices])
    seconds = time.perf_counter() - began
    np.save(Path(out), np.stack(frames))
    print(json.dumps({"seconds": seconds, "peak_resident_bytes": peak_resident_bytes()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
