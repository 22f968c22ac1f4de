"""Judges that give one reply, with a small checkpoint in the engine: converted, loaded, read, and told by commands."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from web.conftest import EXAMPLES, ROOT

sys.path.insert(0, str(ROOT / "tests" / "convert"))

import answering_checkpoint

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.models.library import recipes

A, B, STAR = (str(EXAMPLES / f"{name}.mp4") for name in ("a", "b", "star"))
POINT = (
    "visual quality: 3\ntemporal consistency: 2\ndynamic degree: 1\ntext-to-video alignment: 4\n"
    "factual consistency: 2\nFinal Score: 7"
)


def make_judge(folder: Path, recipe: str, *answer: str) -> Path:
    """A pair that answers this, whatever it is asked, with the profile of a recipe and small frames."""
    answering_checkpoint.make(folder / "checkpoint", *answer)
    export_pair(folder / "checkpoint", folder / recipe, text_type="f16", projector_type="f16")
    profile = recipes()[recipe].profile.replace("[answer]", "max_pixels = 12544\nmin_pixels = 12544\n\n[answer]")
    (folder / recipe / "profile.toml").write_text(profile)
    return folder / recipe


@pytest.fixture(scope="module")
def pointwise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_judge(tmp_path_factory.mktemp("point"), "unifiedreward-7b-point", POINT)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / "home"))


def test_the_engine_gives_the_probabilities_at_the_choice(tmp_path: Path) -> None:
    model = make_judge(tmp_path, "unifiedreward-7b", "Video", " ", "2", " is better.", "Both")
    with Judge(model, measures=False) as judge:
        judgement = judge.compare(A, B, prompt="Both videos. <answer>Video 1 is better</answer> {prompt}")
    [[judged]] = [order.rounds for order in judgement.orders]
    assert judged.text == "Video 2 is better.Both"
    odds = judgement.verdict.overall.odds
    assert odds
    assert sum(odds) == pytest.approx(1)
    assert odds[2] > max(odds[:2]), "the digit that was written is the likeliest"
    assert min(odds) > 0, "those of a tie come from the first word, those of video 1 from the digit"


def test_a_clip_is_scored_from_text(pointwise: Path) -> None:
    with Judge(pointwise, measures=False) as judge:
        judgement = judge.compare(A, B, prompt="A fox.")
    assert judgement.scores
    assert [{name: score.value for name, score in of.items()} for of in judgement.scores] == [
        {
            "VQ": 3.0,
            "temporal consistency": 2.0,
            "dynamic degree": 1.0,
            "TA": 4.0,
            "factual consistency": 2.0,
            "OA": 7.0,
        }
    ] * 2
    assert [r.text for r in judgement.orders[0].rounds] == [POINT] * 2
    assert judgement.verdict.not_judged == ("MQ",)


def test_score_lists_raw_and_percentile_and_finds_it_again(
    pointwise: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evil = tmp_path / "=1+1.mp4"
    evil.write_bytes(Path(STAR).read_bytes())
    command = ["score", A, B, str(evil), "--prompt", "A fox.", "--model", str(pointwise), "-q"]
    assert run([*command, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    assert [row["OA"] for row in rows] == ["7.0"] * 3
    assert [row["VQ percentile"] for row in rows] == ["50.0"] * 3
    assert {row["clip"] for row in rows} == {A, B, str(evil)}
    assert run([*command, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["clips"][0]["scores"]["dynamic degree"] == {"raw": 1.0, "percentile": 50.0}
    assert run(["runs", "--json"]) == 0
    [stored] = json.loads(capfd.readouterr().out)
    assert (stored["judgements"], stored["kind"]) == (3, "rank")
    assert run(["score", A, "--prompt", "A fox.", "--model", str(pointwise), "-q"]) == 0
    assert "a.mp4" in capfd.readouterr().out, "one clip is enough"
    assert run(["show", "latest"]) == 0
    capfd.readouterr()
    assert run(["rank", A, B, str(evil), "--prompt", "A fox.", "--model", str(pointwise), "-q", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["found"] == 3


def test_a_judge_of_pairs_scores_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["score", A, B, "-q"]) == 2
    assert "Use: vrt-lite rank" in capfd.readouterr().err


def test_a_broken_clip_is_listed_and_the_others_are_scored(
    pointwise: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    assert run(["score", A, str(broken), "--prompt", "A fox.", "--model", str(pointwise), "--csv"]) == 3
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 2
    assert "left out" in err


def test_a_quick_judge_orders_all_and_another_ranks_the_best_in_both_orders(
    pointwise: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["rank", A, B, STAR, "--prompt", "A fox.", "--model", str(pointwise), "--then", "vrt-tiny-0", "-q"]
    assert run([*command, "--top", "2", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["judge"] == "vrt-tiny-0"
    [ladder], [before] = told["ladders"], told["before"]["ladders"]
    assert (len(ladder["clips"]), ladder["judgements"]) == (2, 2), "one pair, both orders"
    assert (len(before["clips"]), before["judgements"]) == (3, 3)
    assert [clip["name"] for clip in ladder["clips"]] == [s["name"] for s in before["standings"][:2]]
    assert run([*command, "--top", "2"]) == 0
    out = capfd.readouterr().out
    assert out.index("scored: 3 clips") < out.index("judged: 1 of 1 pairs, 2 judgement(s)") < out.index("winner 1")
    assert run([*command, "--top", "1"]) == 2
    assert "Two different clips are needed to rank" in capfd.readouterr().err
