"""Writes the checkpoint of a small Qwen2.5-VL with random weights, whose vocabulary is learnt from some texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, models, pre_tokenizers, trainers

from train.data import TrainingCase
from train.model import save
from train.policy_tokenizer import TOKENIZER_FILE, PolicyTokenizer
from train.tiny.restoring import CONTROL, NewModelShape, empty_tokenizer, new_model, write_documents
from vrt_lite.judge import opening
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Text
from vrt_lite.protocol.tags import FORMAT

ADDED = ("<tool_call>", "</tool_call>")
"""Added tokens that are not control tokens: a judge writes them."""


def write_checkpoint(
    folder: Path, shape: NewModelShape, profile: Profile, cases: Sequence[TrainingCase], *, seed: int = 0
) -> Path:
    """Write a whole checkpoint. Returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = learn(corpus(profile, cases), folder / TOKENIZER_FILE, rows=shape.vocabulary)
    write_documents(folder, profile)
    torch.manual_seed(seed)
    model = new_model(shape, tokenizer)
    _initialise(model, shape)
    save(model, folder, folder)
    return folder


def learn(texts: Iterable[str], path: Path, *, rows: int) -> PolicyTokenizer:
    """Learn a vocabulary of at most `rows` tokens. It has every byte and every control token, and each digit is one."""
    learnt = empty_tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=rows - len(CONTROL) - len(ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learnt.train_from_iterator(texts, trainer)
    learnt.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    learnt.add_tokens([AddedToken(name, special=False, normalized=False) for name in ADDED])
    path.write_text(learnt.to_str(), encoding="utf-8")
    return PolicyTokenizer(path)


def corpus(profile: Profile, cases: Sequence[TrainingCase]) -> Iterator[str]:
    """The texts that a judge of these cases reads and writes."""
    yield from FORMAT
    for case in cases:
        for message in opening(case.pair, profile):
            yield "".join(part.text for part in message.parts if isinstance(part, Text))
        yield from case.script


def _initialise(model: Any, shape: NewModelShape) -> None:
    """Draw weights that keep the size of activations: with 0.02 a picture would vanish in a small tower."""
    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None and module.weight.ndim > 1:
            depth = shape.tower_depth if ".visual." in name else shape.layers
            branches = 2 * depth if name.endswith(("o_proj", "attn.proj", "down_proj")) else 1
            torch.nn.init.normal_(module.weight, std=(module.weight[0].numel() * branches) ** -0.5)
