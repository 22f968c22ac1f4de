"""Reads Qwen's published vocabulary (qwen.tiktoken) and writes it as the tokenizer.json of Qwen2.5-VL.

The file lists each token with its rank, which is its id. The merges of byte-level BPE follow from the ranks: a token
is made of the two parts that are left when all merges of a lower rank are done. The added tokens, which the file
does not have, are those of the published tokenizer_config.json.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from bench.reply_texts import SPELLING

TOKENS = 151_643
ROWS = 151_936
_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
TOOL_CALL = ("<tool_call>", "</tool_call>")
_NOT_SPECIAL = (
    *TOOL_CALL,
    *("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
ADDED = {word: TOKENS + i for i, word in enumerate((*_SPECIAL, *_NOT_SPECIAL))}


def read_ranks(path: Path) -> dict[bytes, int]:
    """Return each token's bytes with its id."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def with_published_vocabulary(tokenizer: dict[str, Any], ranks: dict[bytes, int]) -> dict[str, Any]:
    """Return the tokenizer.json with this vocabulary, its merges and the published added tokens."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": i, "content": word, "special": word in _SPECIAL, **flags} for word, i in ADDED.items()]
    model = {
        "type": "BPE",
        "vocab": {_spell(token): rank for token, rank in ranks.items()},
        "merges": [[_spell(part) for part in _last_merge(token, ranks)] for token in ranks if len(token) > 1],
    }
    return tokenizer | {"model": model, "added_tokens": added}


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], TOKENS), i) for i in range(len(parts) - 1))
        assert rank < ranks[token], f"the parts of {token!r} cannot be merged"
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _spell(token: bytes) -> str:
    return "".join(SPELLING[byte] for byte in token)
