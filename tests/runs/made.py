"""Questions and judgements made by hand, for stores that need many of them. No clip, no model."""

from __future__ import annotations

import hashlib
from typing import Any

from judgements import judgement, sure

from vrt_lite.runs.judged import Question

JUDGED: dict[str, Any] = judgement([sure()]).to_json()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def question(number: int = 0, *, prompt: str = "A fox runs.", judge: str = "j") -> Question:
    return Question(sha(f"first {number}"), sha(f"second {number}"), prompt, judge)
