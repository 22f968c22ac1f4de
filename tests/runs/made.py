"""Questions and judgements made by hand, for stores that need many of them. No clip, no model."""

from __future__ import annotations

import hashlib

from judgements import judgement, sure

from vrt_lite.records.pairs import Question

JUDGED = judgement([sure()])


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def question(number: int = 0, *, prompt: str = "A fox runs.", judge: str = "j") -> Question:
    return Question(sha(f"first {number}"), sha(f"second {number}"), prompt, judge)
