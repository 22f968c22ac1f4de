"""The paper's strict format (arXiv 2510.10518v4, section 3.2), asked of a trace by the reward and by the filter.

Every reply is a snapshot if new frames came, reasoning, and an ending; nothing is outside of the tags. The ending is a
recommended answer with a confidence and one call for frames, or the final answer. Inference reads much more than that
(`vrt_lite.protocol.tags`): what is only readable is not worth learning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from vrt_lite.judge import Round
from vrt_lite.protocol.messages import KEYS

_TAG: Final = re.compile(r"<(/?)(snapshot|think|recommend answer|final answer|tool_call)>")
_FIELD: Final = re.compile(r"\s*(TA|VQ|MQ|OA|CF)\s*=\s*(\d)\s*")
_DIGITS: Final = {**dict.fromkeys(KEYS, "012"), "CF": "12345"}
_CALLING: Final = ("recommend answer", "tool_call")
_CONCLUDING: Final = ("final answer",)


def conforms(rounds: Sequence[Round]) -> bool:
    """Whether a trace keeps the strict format from its first reply to its final answer."""
    return not find_flaw(rounds)


def find_flaw(rounds: Sequence[Round]) -> str:
    """Find what is against the strict format: "reply N …", or "" if the trace conforms."""
    if not rounds:
        return "there is no reply"
    for number, r in enumerate(rounds, start=1):
        flaw = find_reply_flaw(r.reply.text, new_frames=bool(r.shown), concludes=number == len(rounds))
        if flaw := flaw or r.correction:
            return f"reply {number}: {flaw}"
    return ""


def find_reply_flaw(text: str, *, new_frames: bool, concludes: bool) -> str:
    """Find what is against the strict format in one reply; "" if it conforms."""
    tags = list(_TAG.finditer(text))
    edges = [0, *(place for tag in tags for place in tag.span()), len(text)]
    between = [text[begin:end] for begin, end in pairwise(edges)][::2]  # before, between and after the tags
    blocks: dict[str, str] = {}
    for opening, closing, body in zip(tags[::2], [*tags[1::2], None], between[1::2], strict=False):
        name = opening[2]
        if opening[1] or closing is None or not closing[1] or closing[2] != name:
            return f"<{opening[1]}{name}> is not a tag with its own end"
        if name in blocks:
            return f"<{name}> is there twice"
        if not body.strip():
            return f"<{name}> is empty"
        blocks[name] = body
    if outside := "".join(between[::2]).strip():
        return f"{outside[:40]!r} is outside of the tags"
    return _find_order_flaw(tuple(blocks), new_frames=new_frames, concludes=concludes) or _find_ending_flaw(blocks)


def _find_order_flaw(names: tuple[str, ...], *, new_frames: bool, concludes: bool) -> str:
    ending = _CONCLUDING if concludes else _CALLING
    wanted = ("snapshot", "think", *ending)
    if names == wanted or (not new_frames and names == wanted[1:]):
        return ""
    return f"it has {_list(names)}, not {_list(wanted)}"


def _find_ending_flaw(blocks: dict[str, str]) -> str:
    """Find what is wrong inside of the answer and the call."""
    keys = KEYS if "final answer" in blocks else (*KEYS, "CF")
    answer = blocks.get("final answer") or blocks["recommend answer"]
    fields = [_FIELD.fullmatch(field) for field in answer.split(",")]
    if not all(field and field[2] in _DIGITS[field[1]] for field in fields):
        return f"{answer.strip()[:60]!r} is not an answer"
    if sorted(field[1] for field in fields if field) != sorted(keys):
        return f"{answer.strip()[:60]!r} has not {', '.join(keys)}, each once"
    try:
        json.loads(blocks.get("tool_call", "{}"))
    except (ValueError, RecursionError):
        return "the tool call is not JSON"
    return ""


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"<{name}>" for name in names) or "no tag"
