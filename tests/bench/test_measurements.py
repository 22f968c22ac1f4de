"""Every verb runs end to end on something small. What it took is nobody's business here; what was counted is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from bench import reply_texts
from bench.__main__ import cli
from bench.measurements import Figure, Report
from bench.random_checkpoint import SHAPES, cut
from bench.random_pair import write_pair

SMALL = ("--max-pixels", "12544", "--threads", "1")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder, "tiny", cut(SHAPES["tiny"], layers=1))
    return folder


def measure(tmp_path: Path, *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """Run a verb here; returns its report and what it prints."""
    file = tmp_path / "report.json"
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(file.read_text(encoding="utf-8")), done.output


def test_a_later_judgement_says_its_notes_in_other_words_order() -> None:
    first, later = (reply_texts.script(1, number=number)[0] for number in (0, 1))
    assert first != later and sorted(first.split()) == sorted(later.split())


def test_a_verdict_of_every_side(pair: Path, tmp_path: Path) -> None:
    [projector] = pair.glob("mmproj*")
    sides = (
        "--former",
        Path(__file__).parents[2],
        "--stock-projector",
        shutil.copy(projector, tmp_path / "other.gguf"),
    )
    chosen = ("--rounds", "2", "--sides", "ours,former,stock,transformers,in-turn,at-once")
    report, output = measure(tmp_path, "verdict", "--model", pair, *SMALL, *sides, *chosen)
    assert "2 rounds, whole" in output
    assert "transformers: not measured" in output
    assert report["options"]["stock_projector"] == "other.gguf"
    found: dict[str, Any] = {side: runs[0]["judgements"][0] for side, runs in report["detail"]["2 rounds"].items()}
    ours, former, stock, turns, once = (found.pop(side) for side in ("ours", "former", "stock", "in-turn", "at-once"))
    assert not found
    for one in (ours, former, stock):
        assert one["outcomes"] == ["tool", "final"]
        assert one["choices"] == {"TA": 1, "VQ": 1, "MQ": 1, "OA": 1}
    assert ours["tokens_generated"] == stock["tokens_generated"]
    # 8 first frames and 8 of the call: once here; there the first ones again in the second round.
    assert (ours["frames_encoded"], ours["frames_reused"], stock["frames_encoded"]) == (16, 8, 24)
    # Both orders ask for the same frames, and each order reads all but the system prompt.
    assert [one["orders"] for one in (ours, turns, once)] == [1, 2, 2]
    assert turns["frames_encoded"] == once["frames_encoded"] == 16
    for name in ("tokens_prefilled", "tokens_reused", "tokens_generated"):
        assert once[name] == turns[name] > ours[name]
    headlines = [figure for figure in report["figures"] if figure["headline"]]
    assert [set(figure["ratios"]) for figure in headlines] == [{"former", "stock", "in-turn", "at-once"}]
    assert report["machine"]["packages"]["llama-cpp-python"]


def test_a_ranking_encodes_each_clip_once(pair: Path, tmp_path: Path) -> None:
    chosen = ("--clips", "3", "--sample", "1", "--engine", "sequences=2")
    report, output = measure(tmp_path, "rank", "--model", pair, *SMALL, *chosen)
    assert "measured on 1 judgements of 6, its figures times 6" in output
    judgements = report["detail"]["ours"][0]["judgements"]
    assert len(judgements) == 6
    assert sum(judgement["frames_encoded"] for judgement in judgements) == 3 * 4


def test_frames_of_a_long_clip_against_decoding_all(tmp_path: Path) -> None:
    clip = str(tmp_path / "long.mp4")
    done = CliRunner().invoke(cli, ["clip", clip, "--minutes", "0.4", "--size", "320", "180"], catch_exceptions=False)
    assert "frames" in done.output
    report, output = measure(tmp_path, "video", clip, "--frames", "4")
    assert "pyav, all: the same frames" in output
    assert "OTHER FRAMES" not in output
    assert report["options"]["frames"] == [0, 240, 479, 719]


def test_overhead_is_a_share_of_the_whole(tmp_path: Path) -> None:
    report, _ = measure(tmp_path, "overhead", "--repeat", "1", "--threads", "1")
    assert 0 < report["detail"]["share"] < 1


def test_a_chart_is_drawn_of_headlines(tmp_path: Path) -> None:
    figures = [Figure("whole", "s", {"ours": 2.0, "stock": 5.0, "other": 90.0}, "A verdict")]
    file, chart = tmp_path / "report.json", tmp_path / "chart.png"
    file.write_text(json.dumps(Report("verdict", "A title", {}, figures).to_json()), encoding="utf-8")
    assert CliRunner().invoke(cli, ["plot", str(file), "-o", str(chart)]).exit_code == 0
    with Image.open(chart) as picture:
        assert picture.width == 1760


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("plot", "{file}", "-o", "{file}.png"), "is no report of this bench"),
        (("verdict", "--model", "{folder}"), "needs one text GGUF"),
        (("verdict", "--model", "{folder}", "--sides", "ours,theirs"), "known are ours, former, stock, transformers"),
        (("model", "7b", "{folder}", "--vision-layers", "3"), "multiple of 8"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    (tmp_path / "file.json").write_text("[]", encoding="utf-8")
    given = [a.format(file=tmp_path / "file.json", folder=tmp_path) for a in arguments]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code != 0
    assert reason in done.output


def test_no_gpu_is_said_in_one_line(pair: Path) -> None:
    from bench.gpu import has_gpu

    if has_gpu():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(cli, ["gpu", "--model", str(pair)])
    assert done.exit_code == 1
    assert done.output.startswith("Error: llama-cpp-python here has no GPU back end")
    assert len(done.output.splitlines()) == 1
