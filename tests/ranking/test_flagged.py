"""A clip with a measured fault is named wherever its ranking is told, and can be left out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from clips import write_clip
from measures.scenes import scenes

from vrt_lite.cli import run
from vrt_lite.measures.kept import list_files, measures_folder

JUDGE = ("--model", "vrt-tiny-2", "--orders", "one")


def write_moving(path: Path, *, hold: int, shade: int) -> Path:
    """A texture that moves, brightened by `shade` levels, each picture shown `hold` times."""
    texture = scenes()["texture"]
    held = [np.clip(texture[t - t % hold].astype(int) + shade, 0, 255).astype(np.uint8) for t in range(len(texture))]
    pictures = [np.repeat(picture[..., None], 3, 2) for picture in held]
    return write_clip(path, frames=len(held), fps=16, size=(416, 240), pictures=pictures, bframes=0)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    folder = tmp_path / "renders"
    folder.mkdir()
    for name, hold, shade in (("a.mp4", 1, 0), ("b.mp4", 1, 4), ("stutters.mp4", 4, 8)):
        write_moving(folder / name, hold=hold, shade=shade)
    return folder


def ranked(capfd: pytest.CaptureFixture[str], *arguments: str, command: str = "rank") -> tuple[int, str, str]:
    status = run([command, *arguments])
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_a_flag_stands_beside_its_clip_in_every_output(
    clips: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = ranked(capfd, str(clips), *JUDGE, "--name", "all", "-q")
    lines = out.splitlines()
    [row] = [line for line in lines if "stutters.mp4" in line and line[0].isdigit()]
    assert (status, lines[0].split()[-1]) == (0, "FLAGGED")
    assert row.endswith("repeated 77 %")
    assert lines[-1].startswith("Best: ")
    assert lines[-1].endswith("Flagged: stutters.mp4 (stutter).")

    assert ranked(capfd, "all", command="show")[1].splitlines()[-1] == lines[-1]
    for command, arguments in (("rank", (str(clips), *JUDGE, "-q", "--json")), ("show", ("all", "--json"))):
        _, text, _ = ranked(capfd, *arguments, command=command)
        [ladder] = json.loads(text)["ladders"]
        flags = {clip["name"]: clip["flags"] for clip in ladder["clips"]}
        assert flags == {"a.mp4": [], "b.mp4": [], "stutters.mp4": [{"fault": "stutter", "words": "repeated 77 %"}]}
    page = tmp_path / "all.html"
    assert run(["report", "all", "-o", str(page)]) == 0
    assert "repeated 77 %" in page.read_text(encoding="utf-8")
    capfd.readouterr()
    _, text, _ = ranked(capfd, "all", "-o", "-", "--format", "csv", command="export")
    for cells in csv.DictReader(io.StringIO(text)):
        assert ("is flagged: repeated 77 %" in cells["warnings"]) == (
            "stutters.mp4" in (cells["first"], cells["second"])
        )


def test_a_clip_is_measured_once(
    clips: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked(capfd, str(clips), *JUDGE, "-q")
    files = {file: file.read_bytes() for file in list_files(measures_folder())}
    assert len(files) == 3

    def measure_again(*_: object, **__: object) -> None:
        raise AssertionError("a clip is measured again")

    monkeypatch.setattr("vrt_lite.measures.measuring.measure_clip", measure_again)
    # Another prompt is judged anew, by another run; the measures are those of the clips.
    status, out, _ = ranked(capfd, str(clips), *JUDGE, "-q", "--prompt", "A fox.")
    assert (status, out.splitlines()[-1].endswith("Flagged: stutters.mp4 (stutter).")) == (0, True)
    assert run(["compare", str(clips / "a.mp4"), str(clips / "stutters.mp4"), *JUDGE, "-q"]) == 0
    assert "warning: Video 2 is flagged: repeated 77 %." in capfd.readouterr().out


def test_flagged_clips_are_left_out(clips: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ranked(capfd, str(clips), *JUDGE, "-q", "--exclude-flagged")
    assert status == 0
    assert "judged: 1 of 1 pairs" in out
    assert "stutters.mp4' is flagged: repeated 77 %" in out
    assert "Flagged" not in out.splitlines()[-1]

    (clips / "b.mp4").unlink()
    status, out, err = ranked(capfd, str(clips), *JUDGE, "-q", "--exclude-flagged")
    assert (status, out) == (2, "")
    assert "Without the flagged clips no two are left to rank. Leave out --exclude-flagged." in err


def test_a_flagged_winner_is_named_before_it_is_copied(
    clips: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    best = tmp_path / "best"
    _, _, err = ranked(capfd, str(clips), *JUDGE, "-q", "--top", "3", "--copy-to", str(best))
    assert "stutters.mp4 is flagged: repeated 77 %; it is copied all the same. --exclude-flagged leaves" in err
    assert len(list(best.iterdir())) == 3
