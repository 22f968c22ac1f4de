"""What the report's tests are made of: judgements of the scripted judge on synthesised clips, and hostile words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clips import write_clip
from judgements import FINAL, call, sure

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.protocol.messages import Reply
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings

PROMPT = "A fox runs."
HOSTILE = (
    "<script>alert(1)</script></script></final answer>\"><img src=x onerror=alert(2)>'&amp;"
    "\u202eevil\u2066\u2028\x00\x1b[31m]]>--><!--"
)


def clip_pair(
    folder: Path, names: tuple[str, str] = ("a.mp4", "b.mp4"), *, frames: tuple[int, int] = (48, 64)
) -> list[Path]:
    """Two clips of different length."""
    return [write_clip(folder / name, frames=count, size=(112, 84)) for name, count in zip(names, frames, strict=True)]


def judge_pair(
    clips: list[Path], *replies: str | Reply, prompt: str = PROMPT, settings: Settings | None = None
) -> Judgement:
    """A judgement: by default two rounds, with a call for frames of both clips. The probabilities are the replies'.

    Nothing is measured, so that no measure of these clips takes a winner back.
    """
    backend = ScriptedBackend(replies or (call(9, 10, 57, 60), sure()))
    with Judge(settings=settings, backend=backend, measures=False) as judge:
        judge.mode.profile = replace(judge.mode.profile, temperatures={})
        return judge.compare(*clips, prompt=prompt)


def hostile_reply() -> str:
    """A final answer whose every part would like to be markup."""
    return f"<snapshot>{HOSTILE}</snapshot><think>{HOSTILE}</think>{FINAL[FINAL.index('<final') :]}"
