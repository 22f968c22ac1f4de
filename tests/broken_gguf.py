"""Takes GGUF files apart, changes them in a way drawn from a seed, and writes them again.

Written for files that are wrong on purpose, which `gguf.GGUFWriter` refuses to write.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGUFValueType

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = GGUFValueType.STRING.value, GGUFValueType.ARRAY.value
_SIZES = {kind.value: size for kind, size in GGML_QUANT_SIZES.items()}
_KINDS = sorted(_SIZES)
_ALIGNMENT = 32
_NUMBERS = (0, 1, 2, 3, 5, 7, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_REALS = (0.0, -1e-6, -1.0, 1.0, 1e-45, 1e30, math.inf, -math.inf, math.nan)
_ODD_KEYS = (
    *("expert_count", "expert_used_count", "nextn_predict_layers", "pooling_type", "embedding_length_out"),
    *("attention.key_length", "attention.value_length", "rope.dimension_count", "attention.sliding_window"),
    *("leading_dense_block_count", "expert_group_count", "rope.scaling.original_context_length", "vocab_size"),
)
_ODD_PROJECTOR_KEYS = (
    *("vision.attention.head_count_kv", "vision.attention.head_dim", "vision.spatial_merge_size", "minicpmv_version"),
    *("vision.window_size", "vision.expert_used_count", "vision.image_min_pixels"),
)


@dataclass
class Entry:
    """A metadata value: its type, its item type for an array, and the value or values."""

    key: str
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

    entries: list[Entry] = field(default_factory=list[Entry])
    tensors: list[Stored] = field(default_factory=list[Stored])

    def entry(self, key: str) -> Entry:
        return next(entry for entry in self.entries if entry.key == key)

    def tensor(self, name: str) -> Stored:
        return next(tensor for tensor in self.tensors if tensor.name == name)


def take_apart(path: Path) -> File:
    data = path.read_bytes()
    at = 8

    def scalar(code: str) -> Any:
        nonlocal at
        [value] = struct.unpack_from(f"<{code}", data, at)
        at += struct.calcsize(f"<{code}")
        return value

    def text() -> bytes:
        nonlocal at
        length = scalar("Q")
        at += length
        return data[at - length : at]

    def one(kind: int) -> Any:
        return text() if kind == _STRING else scalar(_CODES[kind])

    count, entries = scalar("Q"), scalar("Q")
    file = File()
    for _ in range(entries):
        key, kind = text().decode(), scalar("I")
        if kind == _ARRAY:
            item, length = scalar("I"), scalar("Q")
            file.entries.append(Entry(key, kind, [one(item) for _ in range(length)], item))
        else:
            file.entries.append(Entry(key, kind, one(kind)))
    listed: list[tuple[Stored, int]] = []
    for _ in range(count):
        name = text().decode()
        dimensions = [scalar("Q") for _ in range(scalar("I"))]
        listed.append((Stored(name, dimensions, scalar("I"), b""), scalar("Q")))
    start = -(-at // _ALIGNMENT) * _ALIGNMENT
    for tensor, offset in listed:
        tensor.data = data[start + offset : start + offset + size_of(tensor)]
        file.tensors.append(tensor)
    return file


def size_of(tensor: Stored) -> int:
    """The bytes that a tensor of this type and these dimensions has."""
    values, size = _SIZES.get(tensor.kind, (1, 4))
    return math.prod(tensor.dimensions) // values * size


def put_together(file: File) -> bytes:
    head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(file.tensors), len(file.entries)))

    def put_text(text: bytes) -> None:
        head.extend(struct.pack("<Q", len(text)) + text)

    def put(kind: int, value: Any) -> None:
        if kind == _STRING:
            put_text(value)
        else:
            head.extend(struct.pack(f"<{_CODES[kind]}", value))

    for entry in file.entries:
        put_text(entry.key.encode())
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
        put_text(tensor.name.encode())
        head.extend(struct.pack("<I", len(tensor.dimensions)))
        head.extend(struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions))
        head.extend(struct.pack("<IQ", tensor.kind, offset))
        body.extend(tensor.data + bytes(-len(tensor.data) % _ALIGNMENT))
    return bytes(head) + bytes(-len(head) % _ALIGNMENT) + bytes(body)


def mutate(file: File, draw: random.Random) -> tuple[str, bytes]:
    """Change a file in one way; returns what was done, and the bytes of the changed file."""
    change = draw.choice(_CHANGES)
    done = change(file, draw)
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


def _fit(tensor: Stored, draw: random.Random) -> None:
    """Give a tensor as many bytes as its type and dimensions say, so that only these are wrong. Sometimes."""
    if draw.random() < 0.9 and (size := size_of(tensor)) < 2**24:
        tensor.data = (tensor.data * (size // max(len(tensor.data), 1) + 1))[:size]


def _rename_tensor(file: File, draw: random.Random) -> str:
    tensor = draw.choice(file.tensors)
    other = draw.choice(file.tensors).name
    name = draw.choice((tensor.name + "x", tensor.name.replace("weight", "bias"), other, tensor.name.replace("0", "1")))
    done, tensor.name = f"rename {tensor.name} to {name}", name
    return done


def _swap_names(file: File, draw: random.Random) -> str:
    a, b = draw.sample(file.tensors, 2)
    a.name, b.name = b.name, a.name
    return f"swap {a.name} and {b.name}"


def _drop_tensor(file: File, draw: random.Random) -> str:
    return f"drop {file.tensors.pop(draw.randrange(len(file.tensors))).name}"


def _add_tensor(file: File, draw: random.Random) -> str:
    near = draw.choice(file.tensors)
    ends = ("v.class_embd", "v.patch_embd.bias", "v.pre_ln.weight", "v.position_embd.weight", "output.weight")
    layers = ("v.blk.0.ln1.bias", "v.blk.1.attn_q_norm.weight", "blk.0.attn_qkv.weight", "v.blk.0.attn_qkv.weight")
    name = draw.choice((*ends, *layers, near.name, near.name + ".scale"))
    file.tensors.append(Stored(name, list(near.dimensions), near.kind, near.data))
    return f"add {name}"


def _change_kind(file: File, draw: random.Random) -> str:
    tensor = draw.choice(file.tensors)
    tensor.kind = draw.choice((*_KINDS, *_KINDS, 4, 5, 31, 99, 2**31))
    _fit(tensor, draw)
    return f"type {tensor.kind} of {tensor.name}"


def _change_dimensions(file: File, draw: random.Random) -> str:
    tensor = draw.choice(file.tensors)
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
    _fit(tensor, draw)
    return f"dimensions {tensor.dimensions} of {tensor.name}"


def _change_offset(file: File, draw: random.Random) -> str:
    tensor = draw.choice(file.tensors)
    tensor.offset = draw.choice((0, 1, 32, 2**20, 2**40, 2**63, 2**64 - 32))
    return f"offset {tensor.offset} of {tensor.name}"


def _change_data(file: File, draw: random.Random) -> str:
    tensor = draw.choice(file.tensors)
    fill = draw.choice((b"\xff", b"\x00", b"\x7f", draw.randbytes(251)))
    tensor.data = (fill * (len(tensor.data) // len(fill) + 1))[: len(tensor.data)]
    return f"data {fill[:1]!r} of {tensor.name}"


def _change_value(file: File, draw: random.Random) -> str:
    entry = draw.choice([entry for entry in file.entries if entry.kind != _ARRAY])
    code = _CODES.get(entry.kind, "")
    if entry.kind == _STRING:
        entry.value = draw.choice(
            (b"", b"llama", b"none", b"\xff\xfe", b"x" * 5000, b"qwen2", b"bert", entry.value * 2)
        )
    elif code in "fd":
        entry.value = draw.choice((*_REALS, entry.value * 2, -entry.value))
    elif code == "?":
        entry.value = not entry.value
    else:
        near = (entry.value + 1, max(entry.value - 1, 0), entry.value * 2, entry.value // 2, entry.value * 3)
        entry.value = draw.choice((*_NUMBERS, *near, *near)) % 2 ** (8 * struct.calcsize(code) - code.islower())
    return f"{entry.key} = {entry.value!r:.40}"


def _change_type(file: File, draw: random.Random) -> str:
    entry = draw.choice(file.entries)
    kind = draw.choice([*_CODES, _STRING, _ARRAY])
    value = entry.value[0] if entry.kind == _ARRAY else entry.value
    entry.kind, entry.item = (kind, draw.choice([*_CODES, _STRING])) if kind == _ARRAY else (kind, -1)
    entry.value = [_cast(value, entry.item)] * draw.choice((0, 1, 4, 6)) if kind == _ARRAY else _cast(value, kind)
    return f"{entry.key} of type {kind} {entry.item}"


def _cast(value: Any, kind: int) -> Any:
    if kind == _STRING:
        return str(value).encode()
    number = value if isinstance(value, int | float) else len(value)
    code = _CODES[kind]
    if code in "fd":
        return float(number)
    whole = int(number) if math.isfinite(number) else 0
    return bool(whole) if code == "?" else whole % 2 ** (8 * struct.calcsize(code) - code.islower())


def _change_array(file: File, draw: random.Random) -> str:
    entry = draw.choice([entry for entry in file.entries if entry.kind == _ARRAY])
    match draw.randrange(4):
        case 0:
            del entry.value[draw.randrange(len(entry.value)) :]
        case 1:
            entry.value.append(entry.value[-1])
        case 2:
            entry.value[draw.randrange(len(entry.value))] = (
                draw.choice((b"", b"\xff\xff", b"x" * 10_000, b"<|im_end|>", b"a b c", b"\0"))
                if entry.item == _STRING
                else _cast(draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 1e30, 65)), entry.item)
            )
        case _:
            item = draw.choice([*_CODES, _STRING])
            entry.value, entry.item = [_cast(value, item) for value in entry.value], item
    return f"array {entry.key}, now {len(entry.value)} of type {entry.item}"


def _drop_entry(file: File, draw: random.Random) -> str:
    return f"drop {file.entries.pop(draw.randrange(len(file.entries))).key}"


def _rename_entry(file: File, draw: random.Random) -> str:
    entry = draw.choice(file.entries)
    done, entry.key = f"rename {entry.key}", draw.choice((entry.key + "x", draw.choice(file.entries).key, ""))
    return f"{done} to {entry.key!r}"


def _add_entry(file: File, draw: random.Random) -> str:
    text = any(entry.value == b"qwen2vl" for entry in file.entries)
    name = f"qwen2vl.{draw.choice(_ODD_KEYS)}" if text else f"clip.{draw.choice(_ODD_PROJECTOR_KEYS)}"
    added = draw.choice(
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
    file.entries.append(added)
    return f"add {added.key} = {added.value!r:.40}"


_CHANGES: tuple[Callable[[File, random.Random], str], ...] = (
    *(_rename_tensor, _swap_names, _drop_tensor, _add_tensor, _change_kind, _change_dimensions, _change_offset),
    *(_change_data, _change_value, _change_value, _change_value, _change_type, _change_array, _change_array),
    *(_drop_entry, _rename_entry, _add_entry),
)
