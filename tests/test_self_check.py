"""The check of a judge without labels: judges that follow plain changes, one that does not, one that says one thing."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from web.conftest import EXAMPLES, ROOT

sys.path.insert(0, str(ROOT / "tests" / "ranking"))

from scored_worker import make_scorer

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.diagnosis.judge_checks import CaptionedClip, check_judge, draw_specimens
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import Conversation, Reply, Text

HEADS = """
name = "heads"
user_prompt = "{prompt} <|VQ|> <|MQ|> <|TA|>"
[answer]
form = "clip"
frames = 24
[answer.head.VQ]
token = "<|VQ|>"
[answer.head.MQ]
token = "<|MQ|>"
[answer.head.TA]
token = "<|TA|>"
[answer.overall]
sum = ["VQ", "MQ", "TA"]
"""


class Seeing:
    """Scores sharpness, the evenness of motion, and whether there is more red where the caption says so."""

    def __init__(self, *, sign: float = 1.0) -> None:
        self.asked = 0
        self._sign = sign

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        self.asked += 1
        shown = [frame for message in conversation for frame in message.frames]
        pixels = np.stack(frames.pixels(shown)).astype(float)
        steps = np.abs(np.diff(pixels, axis=0)).mean(axis=(1, 2, 3))
        red = float((pixels[..., 0] - pixels[..., 2]).mean())
        caption = "".join(part.text for part in conversation[-1].parts if isinstance(part, Text))
        scores = {
            "VQ": float(np.abs(np.diff(pixels, axis=2)).mean()),
            "MQ": -float(steps.std()),
            "TA": red if "red" in caption else -red,
        }
        return Reply("", scores={name: self._sign * value for name, value in scores.items()})


class Rote(Seeing):
    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        return Reply("", scores={"VQ": 1.0, "MQ": 1.0, "TA": 1.0})


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scorer(tmp_path_factory.mktemp("judges") / "heads", HEADS)


def check(scorer: Path, backend: Seeing, folder: Path) -> dict[str, str]:
    one, other = draw_specimens(folder)
    with Judge(scorer, backend=backend, measures=False) as judge:
        return {finding.kind: finding.level for finding in check_judge(judge, one, other, folder)}


def test_a_judge_that_follows_each_change_passes(scorer: Path, tmp_path: Path) -> None:
    assert check(scorer, Seeing(), tmp_path) == {"judge_ta": "ok", "judge_vq": "ok", "judge_mq": "ok"}


def test_a_judge_that_has_it_the_wrong_way_round_is_named(scorer: Path, tmp_path: Path) -> None:
    wrong = check(scorer, Seeing(sign=-1.0), tmp_path)
    assert wrong == {"judge_ta": "problem", "judge_vq": "problem", "judge_mq": "problem"}


def test_the_same_scores_for_different_clips_warn(scorer: Path, tmp_path: Path) -> None:
    found = check(scorer, Rote(), tmp_path)
    assert found["judge_same_scores"] == "note"
    assert found["judge_vq"] == "problem"


def test_footage_is_copied_blurred_and_stuttering(scorer: Path, tmp_path: Path) -> None:
    one, other = CaptionedClip(EXAMPLES / "a.mp4", "A fox."), CaptionedClip(EXAMPLES / "star.mp4", "A star.")
    with Judge(scorer, backend=Seeing(), measures=False) as judge:
        levels = {f.kind: f.level for f in check_judge(judge, one, other, tmp_path)}
    assert (levels["judge_vq"], levels["judge_mq"]) == ("ok", "ok")


def test_the_default_judge_passes(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--judge", "vrt-tiny-2", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {finding["kind"]: finding["level"] for finding in found["findings"]} == {
        "judge_ta": "ok",
        "judge_vq": "ok",
        "judge_mq": "ok",
    }


def test_an_evaluation_checks_its_judge_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "pairs.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("a", "b", "prompt", "overall"))
        rows.writerow((EXAMPLES / "star.mp4", EXAMPLES / "circle.mp4", "A blue star moves up.", "A"))
        rows.writerow((EXAMPLES / "a.mp4", EXAMPLES / "b.mp4", "A red circle moves down.", "A"))
    assert run(["eval", str(table), "--self-check", "--quiet", "--budget", "0", "--store", str(tmp_path / "s")]) == 0
    err = capfd.readouterr().err
    assert [line.split(":")[0] for line in err.splitlines() if line.startswith("self-check")] == ["self-check"] * 3
