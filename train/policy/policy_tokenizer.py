"""A checkpoint's tokenizer, equal to that of vrt-lite's engine, and a way to learn a new one for a small judge.

`PolicyTokenizer` gives the ids that llama.cpp gives for the exported model. So training reads a conversation with the
same code that lowers it at inference. The vocabulary is byte-level BPE of Qwen2's kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from vrt_lite.backends.llamacpp import NEVER_WRITTEN
from vrt_lite.conversion.tokenizer_fields import QWEN2_SPLIT
from vrt_lite.errors import ModelError

TOKENIZER_FILE = "tokenizer.json"
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
CONTROL = (PAD, START, END, "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", IMAGE, VIDEO)
ADDED = ("<tool_call>", "</tool_call>")
"""Added tokens that are not control tokens: a judge writes them."""


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


def learn(corpus: Iterable[str], path: Path, *, rows: int) -> PolicyTokenizer:
    """Learn a vocabulary of at most `rows` tokens and write it to `path`. It has every byte and every control token.

    The split pattern separates digits, so that each digit is one token: the answer's probabilities need this.
    """
    learnt = _empty(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=rows - len(CONTROL) - len(ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learnt.train_from_iterator(corpus, trainer)
    learnt.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    learnt.add_tokens([AddedToken(name, special=False, normalized=False) for name in ADDED])
    path.write_text(learnt.to_str(), encoding="utf-8")
    return PolicyTokenizer(path)


def write_tokenizer(
    vocabulary: Mapping[str, int], merges: Iterable[str], added: Mapping[str, bool], path: Path
) -> None:
    """Write a tokenizer.json of the same kind from its parts.

    `merges` are pairs of tokens with a space between them. `added` are the tokens outside the vocabulary, in the order
    of their ids, and whether each is a control token.
    """
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    written = _empty(models.BPE(dict(vocabulary), pairs))
    for name, special in added.items():
        token = AddedToken(name, special=special, normalized=False)
        (written.add_special_tokens if special else written.add_tokens)([token])
    path.write_text(written.to_str(), encoding="utf-8")


def _empty(model: models.Model) -> tokenizers.Tokenizer:
    """Create a tokenizer of Qwen2's kind around its vocabulary."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _is_control(entry: dict[str, object]) -> bool:
    """Whether a token is a control token, also if it is published as not special, as <|fim_prefix|> is."""
    word = str(entry["content"])
    return bool(entry["special"]) or (word.startswith("<|") and word.endswith("|>"))
