"""Converts a byte-level BPE tokenizer.json to GGUF `tokenizer.*` fields.

Only tokenizers of the Qwen2 family are converted: their split pattern, added tokens, padding rows, bos, eos and pad.
Another pre-tokenizer is an error, because llama.cpp would split text differently without saying so. Merges, special
tokens and the chat template, which is for other programs, are read with the package gguf, like llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from gguf import GGUFWriter, SpecialVocab, TokenType

from vrt_lite.conversion.checkpoint import Section, read_json
from vrt_lite.conversion.shards import reading
from vrt_lite.errors import ModelError

# What llama.cpp's pre-tokenizer "qwen2" implements; compared with what the checkpoint asks for.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def add_tokenizer(writer: GGUFWriter, folder: Path, rows: int, *, plain: Sequence[str] = ()) -> None:
    """Add the fields of a tokenizer, for an embedding of so many rows. Raises ModelError for another kind, or none.

    The tokens `plain` are user-defined whatever tokenizer.json says of them; those that it lacks are added behind all.
    """
    tokenizer = read_json(folder / "tokenizer.json")
    model = tokenizer.section("model")
    model.require(type="BPE")
    # Alone or in a sequence.
    if {"Regex": QWEN2_SPLIT} not in _find(tokenizer.values.get("pre_tokenizer"), "pattern"):
        raise ModelError(f"{tokenizer.where}: the pre-tokenizer is not Qwen2's, no other can be exported")
    tokens, types = _table(tokenizer, model, rows, plain)
    with reading(folder / "tokenizer.json or tokenizer_config.json"):
        special = SpecialVocab(folder, load_merges=True, special_token_types=("bos", "eos", "pad"), n_vocab=rows)
    if not isinstance(special.chat_template, str):  # a list of several
        special.chat_template = None
    # Which a byte-level post-processor never adds.
    if "ByteLevel" in _find(tokenizer.values.get("post_processor"), "type"):
        special.add_special_token |= {"bos": False, "eos": False}
    if "eos" not in special.special_token_ids:
        raise ModelError(f"{folder}: the eos_token is none of the {rows} tokens: generation would never end")
    if not special.merges:
        raise model.value_error("merges", "a list of pairs")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special.add_to_gguf(writer, quiet=True)


def _find(part: Any, key: str) -> list[Any]:
    """Return every value of this key in a part of tokenizer.json that may be a sequence of others."""
    match part:
        case {"pretokenizers": [*parts]} | {"processors": [*parts]} | [*parts]:
            return [found for inner in parts for found in _find(inner, key)]
        case dict():
            return [cast("dict[str, Any]", part).get(key)]
        case _:
            return []


def _table(tokenizer: Section, model: Section, rows: int, plain: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return text and type of each embedding row; rows without a token are padding."""
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [int(TokenType.UNUSED)] * rows
    found: list[tuple[Any, str, TokenType]] = [
        *((i, word, TokenType.NORMAL) for word, i in model.section("vocab").values.items()),
        *_added(tokenizer),
    ]
    end = 1 + max((i for i, *_ in found if type(i) is int), default=-1)
    more = [word for word in plain if word not in {word for _, word, _ in found}]
    for i, word, kind in (*found, *((end + n, word, TokenType.USER_DEFINED) for n, word in enumerate(more))):
        if type(i) is not int or not 0 <= i < rows:
            raise ModelError(f"{model.where}: token {word!r:.40} has id {i!r:.20}, the embedding {rows} rows")
        tokens[i], types[i] = word, int(TokenType.USER_DEFINED if word in plain else kind)
    return tokens, types


def _added(tokenizer: Section) -> Iterator[tuple[int, str, TokenType]]:
    """Yield id, text and type of the tokens outside the vocabulary's table."""
    for entry in tokenizer.values.get("added_tokens") or ():
        match entry:
            case {"id": int(i), "content": str(word), "special": bool(special)}:
                # As in llama.cpp's converter: tokens like <|fim_prefix|> count as special, though published otherwise.
                control = special or (word.startswith("<|") and word.endswith("|>"))
                yield i, word, TokenType.CONTROL if control else TokenType.USER_DEFINED
            case _:
                raise ModelError(f"{tokenizer.where}: an added token is {entry!r:.80}, needs id and content")
