"""A checkpoint's tokenizer as vrt-lite's engine has it, and a new one learnt from what a small judge reads and writes.

`Tokenizer` gives the ids that llama.cpp gives for the exported model, so that training reads a conversation by the
code that inference lowers it with. Knows byte-level BPE of Qwen2's kind; refuses to know conversations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from convert.tokenizer import QWEN2_SPLIT
from vrt_lite.backends.llamacpp import NEVER_WRITTEN
from vrt_lite.errors import ModelError

TOKENIZER_FILE = "tokenizer.json"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
CONTROL = (PAD, START, END, "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", IMAGE, VIDEO)
ADDED = ("<tool_call>", "</tool_call>")
"""Added tokens that are no control tokens: a judge writes them."""


class Tokenizer:
    """A tokenizer.json, by the protocol that `vrt_lite.backends.llamacpp.lower` asks for.

    `added` are texts matched wherever they stand, `ends` the ids that end a turn, `never` those that a judge never
    writes. Raises ModelError for a file that cannot be read.
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
        """Tokens that have a text; a model's embedding may have more rows."""
        return self._trusting.get_vocab_size()

    def tokens(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text; with `special` off the text of a control token stays plain."""
        return (self._trusting if special else self._plain).encode(text, add_special_tokens=False).ids

    def control(self, name: str) -> int:
        """The id of a token by its text; ModelError if the vocabulary lacks it."""
        found = self.tokens(name, special=True)
        if len(found) != 1:
            raise ModelError(f"The tokenizer has no token {name}: it is no Qwen2.5-VL model's.")
        return found[0]

    id = control

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, control tokens as they are spelt."""
        return self._trusting.decode(list(ids), skip_special_tokens=False)


def learn(corpus: Iterable[str], path: Path, *, rows: int) -> Tokenizer:
    """Learn a vocabulary of at most `rows` tokens, every byte and digit and control token among them; write `path`.

    The split pattern keeps digits apart, so that each is one token, as the answer's probabilities need it.
    """
    learnt = tokenizers.Tokenizer(models.BPE())
    learnt.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    learnt.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    learnt.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=rows - len(CONTROL) - len(ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learnt.train_from_iterator(corpus, trainer)
    learnt.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    learnt.add_tokens([AddedToken(name, special=False, normalized=False) for name in ADDED])
    path.write_text(learnt.to_str(), encoding="utf-8")
    return Tokenizer(path)


def _is_control(entry: dict[str, object]) -> bool:
    """As the export has it: <|fim_prefix|> and its like are published as not special, and are."""
    word = str(entry["content"])
    return bool(entry["special"]) or (word.startswith("<|") and word.endswith("|>"))
