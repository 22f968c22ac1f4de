"""Writes a state dict as `torch.save` does, without torch: a zip archive of a pickle and of storages."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import synthetic_checkpoint as synthetic
from numpy.typing import NDArray

STORAGES = {"BF16": "BFloat16Storage", "F16": "HalfStorage", "F32": "FloatStorage"}
ORDERED = b"ccollections\nOrderedDict\n)R"


def write_state(path: Path, tensors: Mapping[str, NDArray[np.float32]], *, dtype: str = "F32") -> None:
    """Write the tensors, each a storage of its own."""
    pieces = (piece(str(i), values.shape, dtype) for i, values in enumerate(tensors.values()))
    pickled = pickle_of(zip(tensors, pieces, strict=True))
    write_archive(path, pickled, {str(i): synthetic.stored(v, dtype).tobytes() for i, v in enumerate(tensors.values())})


def write_archive(path: Path, pickled: bytes, storages: Mapping[str, bytes]) -> None:
    """Write a pickle and storages, aligned by an extra field as torch does."""
    with ZipFile(path, "w", ZIP_STORED) as archive:
        for name, data in (("data.pkl", pickled), ("byteorder", b"little")):
            archive.writestr(f"model/{name}", data)
        for key, data in storages.items():
            archive.writestr(f"model/data/{key}", data)
        archive.writestr("model/version", b"3\n")


def pickle_of(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """The pickle of a state dict whose values are pickled already."""
    items = b"".join(text(name) + value for name, value in entries)
    metadata = b"}(" + text("_metadata") + ORDERED + b"u"
    return b"\x80\x02" + ORDERED + b"(" + items + b"u" + metadata + b"b."


def piece(key: str, shape: tuple[int, ...], dtype: str, *, offset: int = 0) -> bytes:
    """The pickle of one tensor."""
    strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
    count = int(np.prod(shape, dtype=np.int64))
    kind = f"ctorch\n{STORAGES[dtype]}\n".encode()
    storage = b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + b"tQ"
    parts = storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + ORDERED
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + parts + b"tR"


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(values: Iterable[int]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"
