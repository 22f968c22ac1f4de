"""A checkpoint's tokenizer, equal to that of vrt-lite's engine.

`PolicyTokenizer` gives the ids that llama.cpp gives for the exported model. So training reads a conversation with the
same code that lowers it at inference.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from vrt_lite.backends.llamacpp import NEVER_WRITTEN
from vrt_lite.errors import ModelError

TOKENIZER_FILE = "tokenizer.json"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"


class PolicyTokenizer:
    """A tokenizer.json, with the interface that `vrt_lite.backends.llamacpp.lower` needs.

    `added` are texts that are single tokens at any place. `ends` are the ids that end a turn, `never` the ids that a
    judge never writes. Raises ModelError for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text("utf-8"))
            added = [entry["content"] for entry in document["added_tokens"] if _is_control(entry)]
            for entry in document["added_tokens"]:
                entry["special"] = _is_control(entry)
            self._trusting, self._plain = (tokenizers.Tokenizer.from_str(json.dumps(document)) for _ in range(2))
        except Exception as error:  # the library raises plain Exception for what it cannot parse
            raise ModelError(f"Tokenizer {path} cannot be read: {error}") from error
        self._plain.encode_special_tokens = True
        self.added = tuple(e["content"] for e in document["added_tokens"] if e["content"] not in added)
        self.ends = frozenset(map(self.id, (END, PAD)))
        self.never = tuple(self.id(name) for name in NEVER_WRITTEN)

    def __len__(self) -> int:
        """Return the number of tokens that have a text; a model's embedding may have more rows."""
        return self._trusting.get_vocab_size()

    def tokens(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text. Without `special`, the name of a control token is plain text."""
        return (self._trusting if special else self._plain).encode(text, add_special_tokens=False).ids

    def control(self, name: str) -> int:
        """Return the id of a token by its text. Raises ModelError if the vocabulary does not have it."""
        found = self.tokens(name, special=True)
        if len(found) != 1:
            raise ModelError(f"The tokenizer has no token {name}: it is not from a Qwen2.5-VL model.")
        return found[0]

    id = control

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, with the names of control tokens."""
        return self._trusting.decode(list(ids), skip_special_tokens=False)


def _is_control(entry: dict[str, object]) -> bool:
    """Whether a token is a control token, also if it is published as not special, as <|fim_prefix|> is."""
    word = str(entry["content"])
    return bool(entry["special"]) or (word.startswith("<|") and word.endswith("|>"))
