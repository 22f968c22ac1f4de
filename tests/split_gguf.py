"""Splits a GGUF into parts as publishers do, with the gguf package's own writer."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter


def split(source: Path, target: Path, *, tensors: int, small_first: bool = False) -> list[Path]:
    """Write `source` as TARGET-00001-of-0000N.gguf and so on, with at most so many tensors each; returns the parts.

    With `small_first` the first part holds no tensor.
    """
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "qwen2vl", split_max_tensors=tensors, small_first_shard=small_first)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        item = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], item)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(target.parent.glob(f"{target.stem}-*-of-*.gguf"))
