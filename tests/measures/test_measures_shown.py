"""How measures are shown: a row for each, with both values, the unit and the better video."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from judgements import judgement, sure
from reports import Report
from rich.cells import cell_len
from test_show import panel

from vrt_lite.cli import run
from vrt_lite.measures import MEASURES, MeasureName, compare_values
from vrt_lite.show.pair_words import verdict_lines
from vrt_lite.viewer import write_report

VALUES: dict[MeasureName, tuple[float | None, float | None]] = {
    "sharpness": (0.61, 0.2),
    "noise": (2.0, 9.04),
    "frozen": (0.0, 0.0),
    "shake": (None, 0.4),
}
SHOWN = replace(judgement([sure()]), measures=tuple(compare_values(name, values) for name, values in VALUES.items()))


def test_lines_have_both_values_and_the_better_video() -> None:
    assert [line for line in verdict_lines(SHOWN) if line.startswith("measured")] == [
        "measured sharpness: 0.61 and 0.20 of 1, video 1",
        "measured noise: 2.0 and 9.0 levels, video 1",
        "measured shake: – and 0.40 % of the side, not measured",
        "measured alike: frozen",
    ]
    assert not [line for line in verdict_lines(judgement([sure()])) if line.startswith("measured")]
    assert all(cell_len(row) <= 40 for row in panel(SHOWN, 40).splitlines())


def test_the_report_has_a_table_of_them_and_what_the_judge_reads(tmp_path: Path) -> None:
    [order] = SHOWN.orders
    read = replace(SHOWN, orders=(replace(order, rounds=tuple(replace(r, report="VQ: a tie") for r in order.rounds)),))
    told: list[Any] = []
    for record in (SHOWN, read, judgement([sure()])):
        write_report(record.to_json(), tmp_path / "page.html")
        page = Report(tmp_path / "page.html").record
        assert page["judgement"] == record.to_json()
        told.append(page["words"]["measures"])
    assert [len(rows) for rows in told] == [len(VALUES), len(VALUES), 0]
    [sharpness] = [row for row in told[0] if row["name"] == "sharpness"]
    assert (sharpness["unit"], sharpness["values"]) == ("of 1", ["0.61", "0.20"])
    assert [row["words"] for row in told[0]].count("video 1") == 2


def test_compare_measures_unless_it_is_told_not_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clips = [str(write_clip(tmp_path / f"{name}.mp4", size=(112, 84))) for name in "ab"]
    Path(clips[1]).write_bytes(Path(clips[1]).read_bytes() + b"\0\0\0\x08free")
    assert run(["compare", *clips, "--no-cache", "-q"]) == 0
    assert capfd.readouterr().out.count("\nmeasured alike: " + ", ".join(MEASURES)) == 1
    assert run(["compare", *clips, "--no-cache", "-q", "--no-measures"]) == 0
    assert "measured" not in capfd.readouterr().out
