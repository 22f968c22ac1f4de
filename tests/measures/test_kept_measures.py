"""A clip is measured once in its life: what is kept, when it counts, and what the command shows and deletes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from clips import write_clip

from vrt_lite import Judge, Settings
from vrt_lite.cli import run
from vrt_lite.measures import kept as module
from vrt_lite.measures.clip_measures import ClipMeasures, measure_clip
from vrt_lite.measures.kept import KeptMeasures, list_files, measures_folder
from vrt_lite.video import open_clip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> ClipMeasures:
    with open_clip(write_clip(tmp_path_factory.mktemp("clip") / "a.mp4", frames=9)) as clip:
        return measure_clip(clip)


def test_what_is_kept_comes_back_equal(tmp_path: Path, measured: ClipMeasures) -> None:
    kept = KeptMeasures(tmp_path / "new" / "folder")
    assert kept.get("a" * 64) is None
    kept.put("a" * 64, measured)
    assert KeptMeasures(tmp_path / "new" / "folder").get("a" * 64) == measured
    assert kept.get("b" * 64) is None


def test_a_damaged_or_foreign_file_counts_as_absent(tmp_path: Path, measured: ClipMeasures) -> None:
    kept = KeptMeasures(tmp_path)
    kept.put("a" * 64, measured)
    (path,) = list_files(tmp_path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:200] + b"7" + whole[201:], b"\xff" * len(whole), whole + b" "):
        path.write_bytes(damaged)
        assert kept.get("a" * 64) is None
    path.rename(path.with_name(path.name.replace("a" * 64, "b" * 64)))
    assert kept.get("b" * 64) is None
    kept.put("a" * 64, replace(measured, values={"sharpness": 1.0}))
    assert kept.get("a" * 64) is None
    kept.put("a" * 64, measured)
    assert kept.get("a" * 64) == measured


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, measured: ClipMeasures) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptMeasures(tmp_path / "file" / "folder")
    kept.put("a" * 64, measured)
    assert kept.get("a" * 64) is None


def test_the_oldest_are_deleted(tmp_path: Path, measured: ClipMeasures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    for number, letter in enumerate("abcd"):
        KeptMeasures(tmp_path).put(letter * 64, measured)
        os.utime(next(tmp_path.glob(f"{letter}*")), (number, number))
    (tmp_path / "own notes.measures").write_text("stays")
    KeptMeasures(tmp_path).put("e" * 64, measured)
    assert sorted(path.name[0] for path in list_files(tmp_path)) == ["c", "d", "e"]
    assert (tmp_path / "own notes.measures").exists()


def test_compare_keeps_measures_unless_told_not_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (write_clip(tmp_path / f"{name}.mp4", frames=12, fps=fps) for name, fps in (("a", 8), ("b", 16)))
    with Judge(settings=Settings(cache=False)) as judge:
        fresh = judge.compare(a, b)
    assert not list(list_files(measures_folder()))
    with Judge(settings=Settings()) as judge:
        first = judge.compare(a, b)
        assert len(list(list_files(measures_folder()))) == 2
        for path in list_files(measures_folder()):
            os.utime(path, (1, 1))
        again = judge.compare(a, b)
    assert fresh.measures == first.measures == again.measures
    assert all(path.stat().st_mtime > 1 for path in list_files(measures_folder()))
    assert run(["cache"]) == 0
    assert "measures of 2 clips" in capsys.readouterr().out
    assert run(["cache", "--clear"]) == 0
    assert not list(list_files(measures_folder()))
