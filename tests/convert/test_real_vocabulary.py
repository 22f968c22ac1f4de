"""An exported model with Qwen's published vocabulary tokenises as Hugging Face's tokenizers does.

Skipped where VRT_LITE_VOCABULARY does not name qwen.tiktoken: `make vocabulary` fetches it and runs this.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import published_vocabulary as published
import pytest
import script_texts
import synthetic_checkpoint

from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.machine import EngineSettings

VOCABULARY = os.environ.get("VRT_LITE_VOCABULARY", "")
pytestmark = pytest.mark.skipif(not VOCABULARY, reason="VRT_LITE_VOCABULARY names no file: make vocabulary")

# The letters and digits that came with Unicode 16.0. tokenizers 0.23 knows them, the engine knows Unicode 15.1.
UNICODE_16 = re.compile(
    "[\u1c89\u1c8a\ua7cb-\ua7cd\ua7da-\ua7dc\U000105c0-\U000105f3\U00010d40-\U00010d65\U00010d6f-\U00010d85"
    "\U00010ec2-\U00010ec4\U00011380-\U00011389\U0001138b\U0001138e\U00011390-\U000113b5\U000113b7\U000113d1\U000113d3"
    "\U000116d0-\U000116e3\U00011bc0-\U00011be0\U00011bf0-\U00011bf9\U00013460-\U000143fa\U00016100-\U0001611d"
    "\U00016130-\U00016139\U00016d40-\U00016d6c\U00016d70-\U00016d79\U00018cff\U0001ccf0-\U0001ccf9"
    "\U0001e5d0-\U0001e5ed\U0001e5f0-\U0001e5fa]"
)


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    return published.read_ranks(Path(VOCABULARY))


@pytest.fixture(scope="module")
def checkpoint(ranks: dict[bytes, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary") / "published"
    synthetic_checkpoint.make(folder, layout="old", rows=published.ROWS)
    tokenizer = published.with_published_vocabulary(synthetic_checkpoint.tokenizer("old"), ranks)
    synthetic_checkpoint.write_json(folder / "tokenizer.json", tokenizer)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config |= {
        f"{kind}_token_id": published.ADDED[word] for kind, word in (("bos", "<|endoftext|>"), ("eos", "<|im_end|>"))
    }
    synthetic_checkpoint.write_json(folder / "config.json", config)
    return folder


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(checkpoint / "tokenizer.json"))


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[Model]:
    text, _ = export_pair(checkpoint, checkpoint.parent / "gguf")
    with Model(text, settings=EngineSettings(gpu_layers=0)) as model:
        yield model


def ids(reference: Any, text: str) -> list[int]:
    """The reference's ids of a text that was composed (NFC) as vrt_lite composes it."""
    return reference.encode(unicodedata.normalize("NFC", text), add_special_tokens=False).ids


def test_every_token_has_its_published_bytes_and_id(engine: Model, ranks: dict[bytes, int]) -> None:
    assert len(ranks) == published.TOKENS
    assert {engine.piece(i): i for i in range(published.TOKENS)} == ranks
    assert {engine.control(word) for word in published.ADDED} == set(range(151_643, 151_665))
    assert set(engine.added) == set(published.TOOL_CALL)


def test_texts_of_all_scripts_have_the_ids_of_the_reference(engine: Model, reference: Any) -> None:
    texts = list(script_texts.texts(3000, seed=17))
    others = [text for text in texts if engine.tokens(text, special=False) != ids(reference, text)]
    assert [ascii(text) for text in others if not UNICODE_16.search(text)] == []
    plain = [text for text in texts if ids(reference, text) == reference.encode(text, add_special_tokens=False).ids]
    assert len(plain) > 2900, "of nearly all texts the reference composes the same"


def test_added_tokens_in_trusted_text_have_the_ids_of_the_reference(engine: Model, reference: Any) -> None:
    words = list(published.ADDED)
    for number, text in enumerate(script_texts.texts(300, seed=18)):
        middle = len(text) // 2
        given = text[:middle] + words[number % len(words)] + text[middle:] + words[(7 * number) % len(words)]
        if not UNICODE_16.search(given):
            assert engine.tokens(given, special=True) == ids(reference, given), ascii(given)


def test_control_tokens_in_other_text_stay_plain(engine: Model) -> None:
    for word in published.ADDED:
        found = engine.tokens(f"a {word} b", special=False)
        assert (max(found) >= published.TOKENS) == (word in published.TOOL_CALL), word


def test_only_letters_and_digits_of_unicode_16_are_split_otherwise(engine: Model, reference: Any) -> None:
    """Beside an apostrophe one sees whether a character is a letter or digit for the tokenizer."""
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    others = [c for c in characters if engine.tokens(f"{c}'s", special=False) != ids(reference, f"{c}'s")]
    assert others == UNICODE_16.findall("".join(characters))


def test_marks_newer_than_unicode_9_are_put_in_order_here_alone(engine: Model, reference: Any) -> None:
    """The reference composes with the tables of Unicode 9: Lao Pali virama, of Unicode 12, is no mark there."""
    text = "\u0301\u0eba"
    assert unicodedata.normalize("NFC", text) == text[::-1]
    assert reference.normalizer.normalize_str(text) == text
    here = engine.tokens(text, special=False)
    assert here == engine.tokens(text[::-1], special=False) == reference.encode(text[::-1]).ids
    assert here != reference.encode(text).ids
