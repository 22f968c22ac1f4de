"""Reads the table of a PyTorch checkpoint (`torch.save` of a state dict). Nothing that it names is run.

The file is a zip archive. A pickle in it says what the tensors are; each storage is an entry that is not compressed, so
that weights are read from the file itself, as from a safetensors shard. A pickle may call any function by name: here
it gets the few that build a table, and those are ours.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast
from zipfile import ZIP_STORED, ZipFile

import msgspec

from vrt_lite.conversion.shards import MAX_HEADER_BYTES, WORDS, StoredTensor, reading
from vrt_lite.disk import open_to_read

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip entry: its mark, and the lengths of two parts that follow


def _keep_place(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Any:
    return storage, offset, shape, strides


def _keep_tensor(tensor: Any, *_: Any) -> Any:
    return tensor


_KNOWN: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _keep_place,
    "torch._utils._rebuild_parameter": _keep_tensor,
    "torch.FloatStorage": "F32",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
}


class _Piece(msgspec.Struct, array_like=True):
    """A tensor in a storage. Offset and strides count values."""

    storage: tuple[Literal["F32", "F16", "BF16"], str]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    shape: tuple[Annotated[int, msgspec.Meta(gt=0, lt=2**40)], ...]
    strides: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (full := f"{module}.{name}") not in _KNOWN:
            raise ValueError(f"it names {full!r:.60}, which no table of weights needs, and nothing was run")
        return _KNOWN[full]

    def persistent_load(self, pid: Any) -> Any:
        """Return a storage: its type, and the name of its entry."""
        return pid[1:3]


def read_state(path: Path) -> dict[str, StoredTensor]:
    """Read the table, sorted by name. Raises ModelError for anything but whole tensors of F32, F16 or BF16."""
    with reading(path), open_to_read(path) as file, ZipFile(file) as archive:
        return dict(sorted(_read_table(path, file, archive)))


def _read_table(path: Path, file: BinaryIO, archive: ZipFile) -> list[tuple[str, StoredTensor]]:
    (name,) = [entry for entry in archive.namelist() if entry.endswith("/data.pkl")]
    about = archive.getinfo(name)
    if about.compress_type != ZIP_STORED or about.file_size > MAX_HEADER_BYTES:
        raise ValueError(f"its description is compressed, or has {about.file_size} bytes")
    with archive.open(about) as described:
        table: object = _Unpickler(cast("BinaryIO", described)).load()
    if not isinstance(table, dict):
        raise ValueError(f"it holds a {type(table).__name__}, not a state dict")
    folder, tensors = name.removesuffix("data.pkl"), cast("dict[object, object]", table)
    return [(str(key), _place(path, file, archive, folder, tensor)) for key, tensor in tensors.items()]


def _place(path: Path, file: BinaryIO, archive: ZipFile, folder: str, tensor: object) -> StoredTensor:
    """Return where a tensor's values are in the file."""
    piece = msgspec.convert(tensor, _Piece)
    (dtype, key), shape = piece.storage, piece.shape
    if piece.strides != tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))):
        raise ValueError(f"a tensor has the shape {shape!r:.80} and the strides {piece.strides!r:.80}")
    entry = archive.getinfo(f"{folder}data/{key}")
    file.seek(entry.header_offset)
    mark, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    start = entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    size = WORDS[dtype].itemsize
    if (
        mark != b"PK\3\4"
        or entry.compress_type != ZIP_STORED
        or (piece.offset + math.prod(shape)) * size > entry.file_size
    ):
        raise ValueError(f"the entry {entry.filename!r:.80} does not hold the {shape} values of a tensor")
    return StoredTensor(path, dtype, shape, start + piece.offset * size)
