"""One way to take frames out of a video, in a process of its own: `python -m bench.readers NAME FILE OUT INDEX…`.

Each way gives frames by number, resized alike to what a judge is shown; OUT is a NumPy file of them. Seconds are from
opening the file to the last resized frame. Refuses to know which way is better.
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

from bench.report import peak_resident_bytes
from bench.side import frame_size
from vrt_lite.profile import default_profile

Frames = list[NDArray[np.uint8]]


def ours(file: Path, indices: Sequence[int]) -> Frames:
    """This project's reader, with every check that it makes of a file."""
    from vrt_lite.video import open_clip  # noqa: PLC0415

    with open_clip(file) as clip:
        found = clip.frames(indices, size=frame_size(default_profile().max_pixels))
        return [found[index] for index in indices]


def pyav_all(file: Path, indices: Sequence[int]) -> Frames:
    """PyAV, every frame decoded: the usual loop."""
    import av  # noqa: PLC0415

    wanted, found = set(indices), {}
    with av.open(file) as container:
        container.streams.video[0].thread_type = "AUTO"
        for i, frame in enumerate(container.decode(video=0)):
            if i in wanted:
                found[i] = resized(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8))
    return [found[index] for index in indices]


def opencv(file: Path, indices: Sequence[int]) -> Frames:
    """OpenCV, a seek to each frame."""
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
    """decord, all frames in one request, as the Qwen-VL utilities ask it."""
    from decord import VideoReader  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    return [resized(frame) for frame in VideoReader(str(file)).get_batch(list(indices)).asnumpy()]


def torchcodec(file: Path, indices: Sequence[int]) -> Frames:
    """torchcodec, all frames in one request, its exact seek mode."""
    from torchcodec.decoders import VideoDecoder  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    batch = VideoDecoder(str(file), dimension_order="NHWC").get_frames_at(list(indices)).data
    return [resized(frame) for frame in batch.numpy()]


READERS: dict[str, tuple[str, Callable[[Path, Sequence[int]], Frames]]] = {
    "ours": ("av", ours),
    "pyav, all": ("av", pyav_all),
    "opencv": ("cv2", opencv),
    "decord": ("decord", decord),
    "torchcodec": ("torchcodec", torchcodec),
}
"""By name: the module it needs, and the way."""


def resized(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """One bicubic resize to the size that a judge is shown."""
    size = frame_size(default_profile().max_pixels)
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))


def main(arguments: Sequence[str]) -> None:
    """Read, write the frames, print what it cost."""
    name, file, out, *indices = arguments
    module, read = READERS[name]
    __import__(module)  # loading a library is no part of reading a file
    began = time.perf_counter()
    frames = read(Path(file), [int(index) for index in indices])
    seconds = time.perf_counter() - began
    np.save(Path(out), np.stack(frames))
    print(json.dumps({"seconds": seconds, "peak_resident_bytes": peak_resident_bytes()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
