"""The check of a judge without labels: judges that follow plain changes, one that does not, one that says one thing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from web.conftest import EXAMPLES, ROOT, STAR

sys.path.insert(0, str(ROOT / "tests" / "ranking"))

from scored_worker import make_scorer

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.diagnosis import judge_checks
from vrt_lite.diagnosis.judge_checks import CaptionedClip
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, Reply, Text

KEYS = ("TA", "VQ", "MQ")
HEADS = """
name = "heads"
user_prompt = "{prompt} <|VQ|> <|MQ|> <|TA|>"
answer.form = "clip"
answer.frames = 24
answer.head = { VQ.token = "<|VQ|>", MQ.token = "<|MQ|>", TA.token = "<|TA|>" }
answer.overall.sum = ["VQ", "MQ", "TA"]
"""
ROWS = slice(0, None, 8)


class Scoring:
    """Scores sharpness, the evenness of motion, and whether there is more red where the caption says so."""

    def __init__(self, sign: float) -> None:
        self._sign = sign

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        shown = [frame for message in conversation for frame in message.frames]
        pixels = np.stack(frames.pixels(shown))[:, ROWS].astype(np.float32)
        steps = np.abs(np.diff(pixels, axis=0)).mean(axis=(1, 2, 3))
        red = float((pixels[..., 0] - pixels[..., 2]).mean())
        caption = "".join(part.text for part in conversation[-1].parts if isinstance(part, Text))
        sharpness, unevenness = np.abs(np.diff(pixels, axis=2)).mean(), steps.std()
        scores = (red if "red" in caption else -red, float(sharpness), -float(unevenness))
        return Reply("", scores={key: self._sign * score for key, score in zip(KEYS, scores, strict=True)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judges")


def check(folder: Path, sign: float, *clips: CaptionedClip) -> dict[str, str]:
    scorer = make_scorer(folder / "heads", HEADS)
    with Judge(scorer, backend=Scoring(sign), measures=False) as judge:
        return {finding.kind: finding.level for finding in judge_checks.check_judge(judge, *clips, folder)}


def test_judges_that_follow_each_change_the_wrong_way_round_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_checks, "_SIDE", 112)
    monkeypatch.setattr(judge_checks, "_COUNT", 12)
    drawn = judge_checks.draw_clips(folder)
    assert check(folder, 1.0, *drawn) == {"judge_ta": "ok", "judge_vq": "ok", "judge_mq": "ok"}
    assert check(folder, -1.0, *drawn) == {"judge_ta": "problem", "judge_vq": "problem", "judge_mq": "problem"}
    same = check(folder, 0.0, *drawn)
    assert (same["judge_same_scores"], same["judge_vq"]) == ("note", "problem")


def test_footage_is_copied_blurred_and_stuttering(folder: Path) -> None:
    levels = check(folder, 1.0, CaptionedClip(EXAMPLES / "a.mp4", "A fox."), CaptionedClip(Path(STAR), "A star."))
    assert (levels["judge_vq"], levels["judge_mq"]) == ("ok", "ok")


def test_the_default_judge_passes(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--judge", "vrt-tiny-2", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["findings"]
    assert [(finding["kind"], finding["level"]) for finding in found] == [
        (f"judge_{key.lower()}", "ok") for key in KEYS
    ]
