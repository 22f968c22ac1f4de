"""Takes GGUF files apart, changes them in a way drawn from a seed, and writes them again.

Written for files that are wrong on purpose, which `gguf.GGUFWriter` refuses to write.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGUFReader, GGUFValueType

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = GGUFValueType.STRING.value, GGUFValueType.ARRAY.value
_SIZES = {kind.value: size for kind, size in GGML_QUANT_SIZES.items()}
_ALIGNMENT = 32
_NUMBERS = (0, 1, 2, 3, 5, 7, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_REALS = (0.0, -1e-6, -1.0, 1.0, 1e-45, 1e30, math.inf, -math.inf, math.nan)
_TEXTS = (b"", b"llama", b"none", b"\xff\xfe", b"x" * 5000, b"qwen2", b"bert")
_TOKENS = (b"", b"\xff\xff", b"x" * 10_000, b"<|im_end|>", b"a b c", b"\0")
_ODD_TENSORS = (
    *("v.class_embd", "v.patch_embd.bias", "v.pre_ln.weight", "v.position_embd.weight", "output.weight"),
    *("v.blk.0.ln1.bias", "v.blk.1.attn_q_norm.weight", "blk.0.attn_qkv.weight", "v.blk.0.attn_qkv.weight"),
)
_ODD_KEYS = (
    *("expert_count", "expert_used_count", "nextn_predict_layers", "pooling_type", "embedding_length_out"),
    *("attention.key_length", "attention.value_length", "rope.dimension_count", "attention.sliding_window"),
    *("leading_dense_block_count", "expert_group_count", "rope.scaling.original_context_length", "vocab_size"),
)
_ODD_PROJECTOR_KEYS = (
    *("vision.attention.head_count_kv", "vision.attention.head_dim", "vision.spatial_merge_size", "minicpmv_version"),
    *("vision.window_size", "vision.expert_used_count", "vision.image_min_pixels"),
)
_TENSOR_CHANGES = ("rename", "swap", "drop", "add", "type", "dimensions", "offset", "data")
_ENTRY_CHANGES = ("value", "value", "value", "type", "array", "array", "drop", "rename", "add")


@dataclass
class Entry:
    """A metadata value: its key, its type, the value or values, and the type of each item of an array."""

    name: str
    kind: int
    value: Any
    item: int = -1


@dataclass
class Stored:
    """A tensor: its dimensions, the number of its type, its bytes; `offset` None is written as the place it has."""

    name: str
    dimensions: list[int]
    kind: int
    data: bytes
    offset: int | None = None


@dataclass
class File:
    """A whole GGUF."""

    entries: list[Entry]
    tensors: list[Stored]

    def find(self, name: str) -> Any:
        """The entry or the tensor of a name."""
        return next(part for part in (*self.entries, *self.tensors) if part.name == name)


def take_apart(path: Path) -> File:
    reader = GGUFReader(path)
    return File(
        [
            Entry(field.name, field.types[0].value, _as_bytes(field.contents()), field.types[-1].value)
            for field in reader.fields.values()
            if not field.name.startswith("GGUF.")
        ],
        [Stored(t.name, t.shape.tolist(), t.tensor_type.value, t.data.tobytes()) for t in reader.tensors],
    )


def _as_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_bytes(item) for item in value]
    return value.encode() if isinstance(value, str) else value


def put_together(file: File) -> bytes:
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(file.tensors), len(file.entries)))

    def put(kind: int, value: Any) -> None:
        if kind == _STRING:
            head.extend(struct.pack("<Q", len(value)) + value)
        else:
            head.extend(struct.pack(f"<{_CODES[kind]}", value))

    for entry in file.entries:
        put(_STRING, entry.name.encode())
        head.extend(struct.pack("<I", entry.kind))
        if entry.kind == _ARRAY:
            head.extend(struct.pack("<IQ", entry.item, len(entry.value)))
            for value in entry.value:
                put(entry.item, value)
        else:
            put(entry.kind, entry.value)
    body = bytearray()
    for tensor in file.tensors:
        offset = len(body) if tensor.offset is None else tensor.offset
        put(_STRING, tensor.name.encode())
        head.extend(struct.pack("<I", len(tensor.dimensions)))
        head.extend(struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions))
        head.extend(struct.pack("<IQ", tensor.kind, offset))
        body.extend(tensor.data + bytes(-len(tensor.data) % _ALIGNMENT))
    return bytes(head) + bytes(-len(head) % _ALIGNMENT) + bytes(body)


def mutate(file: File, draw: random.Random) -> tuple[str, bytes]:
    """Change a file in one way; returns what was done, and the bytes of the changed file."""
    number = draw.randrange(len(_TENSOR_CHANGES) + len(_ENTRY_CHANGES))
    if number < len(_TENSOR_CHANGES):
        done = _change_tensor(file, draw, _TENSOR_CHANGES[number])
    else:
        done = _change_entry(file, draw, _ENTRY_CHANGES[number - len(_TENSOR_CHANGES)])
    data = bytearray(put_together(file))
    if draw.random() < 0.1:
        header = len(data) - sum(len(tensor.data) for tensor in file.tensors)
        done += ", and flip bytes"
        for _ in range(draw.choice((1, 4, 50))):
            data[draw.randrange(draw.choice((header, len(data))))] ^= 1 << draw.randrange(8)
    if draw.random() < 0.03:
        done += ", and cut"
        del data[draw.randrange(len(data)) :]
    return done, bytes(data)


def _change_tensor(file: File, draw: random.Random, what: str) -> str:
    tensor, other = draw.sample(file.tensors, 2)
    done = f"{what} tensor {tensor.name}"
    match what:
        case "rename":
            near = (tensor.name + "x", tensor.name.replace("weight", "bias"), tensor.name.replace("0", "1"))
            tensor.name = draw.choice((*near, other.name))
        case "swap":
            tensor.name, other.name = other.name, tensor.name
        case "drop":
            file.tensors.remove(tensor)
        case "add":
            name = draw.choice((*_ODD_TENSORS, tensor.name, tensor.name + ".scale"))
            tensor = replace(tensor, name=name, dimensions=list(tensor.dimensions))
            file.tensors.append(tensor)
        case "type":
            tensor.kind = draw.choice((*_SIZES, *_SIZES, 4, 5, 31, 99, 2**31))
        case "dimensions":
            _change_dimensions(tensor, draw)
        case "offset":
            tensor.offset = draw.choice((0, 1, 32, 2**20, 2**40, 2**63, 2**64 - 32))
        case "data":
            fill = draw.choice((b"\xff", b"\x00", b"\x7f", draw.randbytes(251)))
            tensor.data = (fill * (len(tensor.data) // len(fill) + 1))[: len(tensor.data)]
    if what in ("type", "dimensions") and draw.random() < 0.9:
        # As many bytes as it says, so that only type or dimensions are wrong.
        values, size = _SIZES.get(tensor.kind, (1, 4))
        size = math.prod(tensor.dimensions) // values * size
        if size < 2**24:
            tensor.data = (tensor.data * (size // max(len(tensor.data), 1) + 1))[:size]
    return f"{done}, now {tensor.name} {tensor.dimensions} of type {tensor.kind} at {tensor.offset}"


def _change_dimensions(tensor: Stored, draw: random.Random) -> None:
    at = draw.randrange(len(tensor.dimensions))
    old = tensor.dimensions[at]
    match draw.randrange(4):
        case 0:
            tensor.dimensions.reverse()
        case 1:
            tensor.dimensions.append(draw.choice((1, 2)))
        case 2:
            tensor.dimensions[at] = draw.choice((0, 1, old // 2, old - 32, old + 1, old + 32, old * 2)) % 2**32
        case _:
            tensor.dimensions[at] = draw.choice((2**31, 2**40, 2**62, 2**63, old + 256))


def _change_entry(file: File, draw: random.Random, what: str) -> str:
    fitting = {"value": lambda entry: entry.kind != _ARRAY, "array": lambda entry: entry.kind == _ARRAY}
    entry = draw.choice([*filter(fitting.get(what), file.entries)])
    done = f"{what} of {entry.name}"
    match what:
        case "value":
            entry.value = _other_value(entry, draw)
        case "type":
            kind, item = draw.choice([*_CODES, _STRING, _ARRAY]), draw.choice([*_CODES, _STRING])
            value = entry.value[0] if entry.kind == _ARRAY else entry.value
            one = _cast(value, item if kind == _ARRAY else kind)
            entry.value = [one] * draw.choice((0, 1, 4, 6)) if kind == _ARRAY else one
            entry.kind, entry.item = kind, item
        case "array":
            _change_array(entry, draw)
        case "drop":
            file.entries.remove(entry)
        case "rename":
            entry.name = draw.choice((entry.name + "x", draw.choice(file.entries).name, ""))
        case "add":
            entry = _odd_entry(draw, is_text=any(entry.value == b"qwen2vl" for entry in file.entries))
            file.entries.append(entry)
    return f"{done}, now {entry!r:.200}"


def _other_value(entry: Entry, draw: random.Random) -> Any:
    code = _CODES.get(entry.kind, "")
    if entry.kind == _STRING:
        return draw.choice((*_TEXTS, entry.value * 2))
    if code in "fd":
        return draw.choice((*_REALS, entry.value * 2, -entry.value))
    if code == "?":
        return not entry.value
    near = (entry.value + 1, max(entry.value - 1, 0), entry.value * 2, entry.value // 2, entry.value * 3)
    return _cast(draw.choice((*_NUMBERS, *near, *near)), entry.kind)


def _cast(value: Any, kind: int) -> Any:
    if kind == _STRING:
        return str(value).encode()
    number = value if isinstance(value, int | float) else len(value)
    code = _CODES[kind]
    if code in "fd":
        return float(number)
    whole = int(number) if math.isfinite(number) else 0
    return bool(whole) if code == "?" else whole % 2 ** (8 * struct.calcsize(code) - code.islower())


def _change_array(entry: Entry, draw: random.Random) -> None:
    at = draw.randrange(len(entry.value))
    match draw.randrange(4):
        case 0:
            del entry.value[at:]
        case 1:
            entry.value.append(entry.value[-1])
        case 2:
            number = _cast(draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 1e30, 65)), entry.item)
            entry.value[at] = draw.choice(_TOKENS) if entry.item == _STRING else number
        case _:
            entry.item = draw.choice([*_CODES, _STRING])
            entry.value = [_cast(value, entry.item) for value in entry.value]


def _odd_entry(draw: random.Random, *, is_text: bool) -> Entry:
    name = f"qwen2vl.{draw.choice(_ODD_KEYS)}" if is_text else f"clip.{draw.choice(_ODD_PROJECTOR_KEYS)}"
    return draw.choice(
        (
            Entry(name, 4, draw.choice(_NUMBERS)),
            Entry("clip.has_audio_encoder", 7, value=True),
            Entry("clip.vision.feature_layer", _ARRAY, [draw.choice((0, 1, 99, -1))], 5),
            Entry("qwen2vl.rope.scaling.type", _STRING, draw.choice((b"yarn", b"linear", b"none", b"x"))),
            Entry("qwen2vl.rope.scaling.factor", 6, draw.choice(_REALS)),
            Entry("qwen2vl.attention.causal", 7, value=False),
            Entry("general.alignment", 4, draw.choice((0, 1, 3, 64, 2**31))),
            Entry("tokenizer.ggml.scores", _ARRAY, [0.0] * draw.choice((1, 1024)), 6),
        )
    )
