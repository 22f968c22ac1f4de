"""Makes a text GGUF that spells a conversation of two rounds: a call for frames, then a final answer. By construction.

It has the bundled judge's tokenizer and width, so that the bundled projector's frames fit in front of it, and one
layer whose weights are written by hand. Each piece of the two replies is a token of its own, and a token's successor is
read off the output matrix. The one attention head looks for the first reply's end anywhere before: where it stands,
the second follows "assistant". Digits stay tokens of their own, with probabilities that follow from `CHANCES`.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter, TokenType

BUNDLED = Path(__file__).parent.parent / "vrt_lite" / "bundled" / "vrt-tiny-0"
SOURCE = BUNDLED / "vrt-tiny-0-Q8_0.gguf"
PROJECTOR = BUNDLED / "mmproj-vrt-tiny-0-F16.gguf"

CALL = (
    "<snapshot>Video 1: red. Video 2: red.</snapshot>\n<think>Closer.</think>\n"
    "<recommend answer>TA=0, VQ=1, MQ=0, OA=1, CF=2</recommend answer>\n"
    '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [5, 60]}}</tool_call>'
)
ANSWER = (
    "<snapshot>Sharper.</snapshot>\n<think>Done.</think>\n<final answer>TA=0, VQ=",
    ", MQ=",
    ", OA=",
    "</final answer>",
)
DIGITS = ("1", "0", "2")
"""What is written for VQ, MQ and OA. TA's digit is inside a token, so that it has no odds."""
FINAL = "".join(a + b for a, b in zip(ANSWER, (*DIGITS, ""), strict=True))
CHANCES = (0.8, 0.15, 0.05)
"""Of the digit that is written, and of the two that follow it in the round 0, 1, 2."""

_WIDTH, _HEAD, _HEADS, _GROUPS, _INNER = 256, 64, 4, 2, 768
_GAIN = 3.0
_PIECE = 24
_SEEN, _TURN = 200, 201  # Dimensions: the first reply was found; and the place of "\n".
_CARRIED = {
    "qwen2vl.context_length": "add_context_length",
    "tokenizer.ggml.eos_token_id": "add_eos_token_id",
    "tokenizer.ggml.padding_token_id": "add_pad_token_id",
}


def write(path: Path) -> Path:
    """Write the model; 20 kilobytes of sense in 5 MB."""
    reader = GGUFReader(SOURCE)
    tokens: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = reader.fields["tokenizer.ggml.token_type"].contents()
    pieces = [piece for text in (CALL, *ANSWER) for piece in cut(text)]
    assert len(set(pieces)) == len(pieces), "a piece has one successor"
    spare = [i for i, kind in enumerate(kinds) if kind == TokenType.UNUSED][: len(pieces)]
    for at, piece in zip(spare, pieces, strict=True):
        tokens[at], kinds[at] = piece, int(TokenType.USER_DEFINED)
    writer = GGUFWriter(path, "qwen2vl")
    writer.add_name("spelling judge")
    writer.add_block_count(1)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_GROUPS)
    writer.add_rope_dimension_sections([8, 12, 12, 0])
    writer.add_rope_freq_base(1e9)  # The slowest pair of dimensions does not turn: places do not matter to the head.
    writer.add_layer_norm_rms_eps(1e-6)
    for key, add in _CARRIED.items():
        getattr(writer, add)(reader.fields[key].contents())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(reader.fields["tokenizer.ggml.merges"].contents())
    writer.add_chat_template(reader.fields["tokenizer.chat_template"].contents())
    end = reader.fields["tokenizer.ggml.eos_token_id"].contents()
    for name, values in _weights(tokens, end).items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def cut(text: str) -> list[str]:
    """Pieces that a token can be: llama-cpp-python drops what is longer than 32 bytes."""
    return [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]


def _weights(tokens: list[str], end: int) -> dict[str, np.ndarray]:
    digits = [tokens.index(digit) for digit in "012"]
    call, *answer = ([tokens.index(piece) for piece in cut(text)] for text in (CALL, *ANSWER))
    embedding = np.zeros((len(tokens), _WIDTH))
    embedding[:, 100] = 1.0  # All that has no part in it is one.
    places = {token: place for place, token in enumerate((*call, *itertools.chain(*answer), *digits))}
    # The server's own template for Qwen2.5-VL loses the newline at its end.
    places |= {tokens.index("Ċ"): _TURN, tokens.index("assistant"): _TURN}
    for token, place in places.items():
        embedding[token] = np.eye(_WIDTH)[place]
    output = np.zeros((len(tokens), _WIDTH))
    for text in (call, *answer):
        for piece, follower in itertools.pairwise(text):
            output[follower, places[piece]] = 4.0
    output[call[0], _TURN] = 2.0
    output[answer[0][0], [_TURN, _SEEN]] = 1.0, 1.0
    output[end, [places[call[-1]], places[answer[-1][-1]]]] = 4.0
    # Beside its own 1, a token's vector has 1.6 at _SEEN by then; the last norm makes their length sqrt(width).
    scale = math.sqrt(_WIDTH) / math.hypot(1.0, 1.6) * _GAIN
    for piece, digit, follower in zip(answer, DIGITS, answer[1:], strict=False):
        for turn, chance in enumerate(CHANCES):
            output[digits[(int(digit) + turn) % 3], places[piece[-1]]] = 4.0 + math.log(chance / CHANCES[0]) / scale
        output[follower[0], places[digits[int(digit)]]] = 4.0
    key = np.zeros((_GROUPS * _HEAD, _WIDTH))
    key[31, places[call[-1]]] = 16.0
    query = np.zeros(_WIDTH)
    query[31] = 1.0
    value = np.zeros((_GROUPS * _HEAD, _WIDTH))
    value[0, places[call[-1]]] = 1.0
    found = np.zeros((_WIDTH, _WIDTH))
    found[_SEEN, 0] = 0.1
    return {
        "token_embd.weight": embedding,
        "output.weight": output * _GAIN,
        "output_norm.weight": np.ones(_WIDTH),
        "blk.0.attn_norm.weight": np.ones(_WIDTH),
        "blk.0.ffn_norm.weight": np.ones(_WIDTH),
        "blk.0.attn_q.weight": np.zeros((_WIDTH, _WIDTH)),
        "blk.0.attn_q.bias": query,
        "blk.0.attn_k.weight": key,
        "blk.0.attn_k.bias": np.zeros(_GROUPS * _HEAD),
        "blk.0.attn_v.weight": value,
        "blk.0.attn_v.bias": np.zeros(_GROUPS * _HEAD),
        "blk.0.attn_output.weight": found,
        "blk.0.ffn_gate.weight": np.zeros((_INNER, _WIDTH)),
        "blk.0.ffn_up.weight": np.zeros((_INNER, _WIDTH)),
        "blk.0.ffn_down.weight": np.zeros((_WIDTH, _INNER)),
    }
