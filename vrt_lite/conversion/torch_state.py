"""Reads the table of a PyTorch checkpoint (`torch.save` of a state dict). Nothing that it names is run.

The file is a zip archive. A pickle in it says what the tensors are; each storage is an entry that is not compressed, so
that weights are read from the file itself, as from a safetensors shard. A pickle may call any function by name: here
it gets the few that build a table, and those are ours.
"""

from __future__ import annotations

import math
import pickle
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from vrt_lite.conversion.shards import MAX_HEADER_BYTES, WORDS, StoredTensor
from vrt_lite.disk import open_to_read
from vrt_lite.errors import ModelError

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip entry: its mark, and the lengths of two parts that follow


class _Storage(NamedTuple):
    dtype: str
    key: str


class _Piece(NamedTuple):
    """A tensor in a storage. Offset and strides count values."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Table(dict[str, Any]):
    """A state dict; what torch sets on it besides is not read."""


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Piece:
    return _Piece(storage, offset, shape, strides)


def _rebuild_parameter(piece: Any, *_: Any) -> Any:
    return piece


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "FloatStorage"): "F32",
    ("torch", "HalfStorage"): "F16",
    ("torch", "BFloat16Storage"): "BF16",
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ModelError(
                f"it names {f'{module}.{name}'!r:.60}, which no table of weights needs, and nothing was run"
            )
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", str(dtype), str(key), _, int()) if dtype in WORDS:
                return _Storage(dtype, key)
            case _:
                raise ModelError(f"a storage is {pid!r:.80}")


def read_state(path: Path) -> dict[str, StoredTensor]:
    """Read the table, sorted by name. Raises ModelError for anything but whole tensors of F32, F16 or BF16."""
    try:
        with open_to_read(path) as file, ZipFile(file) as archive:
            return dict(sorted(_read_table(path, file, archive)))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: download it") from None
    except BadZipFile as error:
        raise ModelError(f"{path} is no checkpoint of torch.save: {error}. Download it again") from error
    except Exception as error:  # a hostile pickle can raise whatever it likes
        raise ModelError(f"{path} cannot be read as a table of weights: {error}") from error


def _read_table(path: Path, file: BinaryIO, archive: ZipFile) -> list[tuple[str, StoredTensor]]:
    (name,) = [entry for entry in archive.namelist() if entry.endswith("/data.pkl")]
    about = archive.getinfo(name)
    if about.compress_type != ZIP_STORED or about.file_size > MAX_HEADER_BYTES:
        raise ModelError(f"its description is compressed, or has {about.file_size} bytes")
    with archive.open(about) as described:
        table: object = _Unpickler(cast("BinaryIO", described)).load()
    if not isinstance(table, dict):
        raise ModelError(f"it holds a {type(table).__name__}, not a state dict")
    folder, pieces = name.removesuffix("data.pkl"), cast("dict[object, object]", table)
    return [(str(key), _place(path, file, archive, folder, piece)) for key, piece in pieces.items()]


def _place(path: Path, file: BinaryIO, archive: ZipFile, folder: str, piece: Any) -> StoredTensor:
    """Return where a tensor's values are in the file."""
    if not isinstance(piece, _Piece):
        raise ModelError(f"it holds a {type(piece).__name__} where a tensor should be")
    storage, offset, shape, strides = piece
    dense = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if strides != dense or offset < 0 or not all(0 < n < 2**40 for n in shape):
        raise ModelError(f"a tensor has the shape {shape!r:.80} and the strides {strides!r:.80}")
    entry = archive.getinfo(f"{folder}data/{storage.key}")
    file.seek(entry.header_offset)
    mark, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    start = entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    size = WORDS[storage.dtype].itemsize
    if mark != b"PK\3\4" or entry.compress_type != ZIP_STORED or (offset + math.prod(shape)) * size > entry.file_size:
        raise ModelError(f"the entry {entry.filename!r:.80} does not hold the {shape} values of a tensor")
    return StoredTensor(path, storage.dtype, shape, start + offset * size)
