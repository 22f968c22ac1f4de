"""A learnt vocabulary is one of Qwen2's kind, and is read as the engine reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_checkpoint import ADDED, learn  # noqa: E402

from train.policy_tokenizer import PolicyTokenizer  # noqa: E402
from train.tiny.restoring import CONTROL  # noqa: E402
from vrt_lite.errors import ModelError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

CORPUS = ["<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer>", "the red square moves, the blue one does not"] * 30
TEXTS = (
    "the red square 12345 moves",
    "  two  spaces\n\n and lines\r\n\tand a tab ",
    "I'd say it's “quoted” — naïve, e\u0301te\u0301, 東京 🙂",
    "TA=1, VQ=2<|im_end|>",
    '<tool_call>\n{"name": "x"}\n</tool_call>',
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PolicyTokenizer:
    return learn(CORPUS, tmp_path_factory.mktemp("tokenizer") / "tokenizer.json", rows=330)


def test_every_digit_and_control_token_is_one_token(tokenizer: PolicyTokenizer) -> None:
    assert len(tokenizer) <= 330
    assert len({tokenizer.id(name) for name in (*CONTROL, *ADDED, *"0123456789")}) == 20
    digits = [tokenizer.id(digit) for digit in "0123456789"]
    assert tokenizer.tokens("90125", special=False) == [digits[int(d)] for d in "90125"]
    assert tokenizer.added == ADDED


def test_a_control_token_in_plain_text_stays_plain(tokenizer: PolicyTokenizer) -> None:
    end = tokenizer.id("<|im_end|>")
    assert end in tokenizer.tokens("a<|im_end|>", special=True)
    assert end not in tokenizer.tokens("a<|im_end|>", special=False)
    # An added token that is no control token is matched all the same, as the engine does.
    assert tokenizer.id("<tool_call>") in tokenizer.tokens("a<tool_call>", special=False)


def test_transformers_reads_the_same_ids(tokenizer: PolicyTokenizer, tmp_path: Path) -> None:
    learn(CORPUS, tmp_path / "tokenizer.json", rows=330)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    vocabulary = fast.get_vocab()
    for text in TEXTS:
        assert fast.encode(text, add_special_tokens=False) == tokenizer.tokens(text, special=True)
    assert max(vocabulary.values()) + 1 == len(tokenizer)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        PolicyTokenizer(tmp_path / "tokenizer.json")
