"""Converts a byte-level BPE tokenizer.json to GGUF `tokenizer.*` fields.

Only tokenizers of the Qwen2 family are converted: their split pattern, added tokens, padding rows, bos, eos and pad.
Another pre-tokenizer is an error, because llama.cpp would split text differently without saying so. Merges, special
tokens and the chat template, which is for other programs, are read with the package gguf, like llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gguf import GGUFWriter, SpecialVocab, TokenType

from vrt_lite.conversion.weights import read_json, reading
from vrt_lite.errors import ModelError

# What llama.cpp's pre-tokenizer "qwen2" implements; compared with what the checkpoint asks for.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def add_tokenizer(writer: GGUFWriter, folder: Path, rows: int, *, plain: Sequence[str]) -> None:
    """Add the fields of a tokenizer, for an embedding of so many rows. Raises ModelError for another kind, or none.

    The tokens `plain` are user-defined whatever tokenizer.json says of them; those that it lacks are added behind all.
    """
    tokenizer = read_json(folder / "tokenizer.json")
    if json.dumps(QWEN2_SPLIT) not in json.dumps(tokenizer.values.get("pre_tokenizer")):
        raise ModelError(f"{tokenizer.where}: the pre-tokenizer is not Qwen2's, no other can be exported")
    # Rows without a token are padding.
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [TokenType.UNUSED] * rows
    with reading(tokenizer.where):
        ids = dict(tokenizer.values["model"]["vocab"])
        kinds = dict.fromkeys(ids, TokenType.NORMAL)
        for entry in tokenizer.values.get("added_tokens") or ():
            word = entry["content"]
            # As in llama.cpp's converter: tokens like <|fim_prefix|> count as special, though published otherwise.
            control = entry["special"] or (word.startswith("<|") and word.endswith("|>"))
            ids[word], kinds[word] = entry["id"], TokenType.CONTROL if control else TokenType.USER_DEFINED
        for word in plain:
            ids.setdefault(word, 1 + max(ids.values(), default=-1))
            kinds[word] = TokenType.USER_DEFINED
        for word, i in ids.items():
            tokens[i], types[i] = word, kinds[word]
    with reading(folder / "tokenizer.json or tokenizer_config.json"):
        special = SpecialVocab(folder, load_merges=True, special_token_types=("bos", "eos", "pad"), n_vocab=rows)
    # Which a byte-level post-processor never adds.
    if '"ByteLevel"' in json.dumps(tokenizer.values.get("post_processor")):
        special.add_special_token |= {"bos": False, "eos": False}
    if "eos" not in special.special_token_ids:
        raise ModelError(f"{folder}: the eos_token is none of the {rows} tokens: generation would never end")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special.add_to_gguf(writer, quiet=True)
