"""Writes a small checkpoint that ends every conversation with one final answer, in whatever type it is converted to.

It is the fidelity golden's random checkpoint with four parts set by hand: what attention and feed-forward add is
nothing, the embedding gives the newline that a reply begins after, and each piece of the answer, a dimension of its
own, and the output matrix names each one's successor.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))

import fidelity_cases as golden
import synthetic_checkpoint as synthetic

ANSWER = "<think>Seen enough.</think>\n<final answer>TA=1, VQ=0, MQ=1, OA=1</final answer>"
WINNER = 1
_PIECE = 24  # llama-cpp-python drops a token of more than 32 bytes
_NEWLINE = "Ċ"  # as byte-level BPE spells it
_CONTEXT = 32_768


def make(folder: Path, *answer: str) -> Path:
    """Write the folder; it. `answer` are the texts whose borders are borders of tokens; no piece comes twice."""
    golden.make_checkpoint(folder)
    pieces = [text[i : i + _PIECE] for text in answer or (ANSWER,) for i in range(0, len(text), _PIECE)]
    first = golden.FIRST_ADDED + len(golden.ADDED)
    tokenizer = synthetic.read_json(folder / "tokenizer.json")
    known = tokenizer["model"]["vocab"]
    added = [piece for piece in pieces if piece not in known]
    tokenizer["added_tokens"] += [
        {**tokenizer["added_tokens"][0], "id": first + i, "content": piece, "special": False}
        for i, piece in enumerate(added)
    ]
    synthetic.write_json(folder / "tokenizer.json", tokenizer)
    config = synthetic.read_json(folder / "config.json")
    synthetic.write_json(folder / "config.json", config | {"max_position_embeddings": _CONTEXT})
    end = golden.FIRST_ADDED + golden.ADDED.index("<|im_end|>")
    written = [known[piece] if piece in known else first + added.index(piece) for piece in pieces]
    tensors = synthetic.read_safetensors(folder / "model.safetensors")
    _follow(tensors, [known[_NEWLINE], *written, end])
    synthetic.write_safetensors(folder / "model.safetensors", tensors, "F32")
    return folder


def _follow(tensors: dict[str, np.ndarray], chain: list[int]) -> None:
    """Each token of the chain is followed by the next one, whatever came before."""
    for name, values in tensors.items():
        if name.endswith("embed_tokens.weight"):
            values[:, : len(chain)] = 0
            values[chain] = np.eye(golden.WIDTH)[: len(chain)]
        elif name.endswith((".o_proj.weight", "mlp.down_proj.weight")):
            values[:] = 0
        elif name.endswith("lm_head.weight"):
            values[:] = 0
            values[chain[1:], range(len(chain) - 1)] = 4.0
