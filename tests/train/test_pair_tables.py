"""Tables of pairs: two that share a pair are refused by content, and test pairs have two parts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from train.pair_tables import check_tables, choose_part, read_table
from train.recipe import Data
from vrt_lite.errors import UsageError

Row = tuple[str, str, str, str]


def write_table(path: Path, rows: Iterable[Row]) -> str:
    """Write a table of (id, a, b, prompt), in each of which the first clip is better."""
    lines = [f'{name},{a},{b},"{prompt}",A' for name, a, b, prompt in rows]
    path.write_text("\n".join(["id,a,b,prompt,overall", *lines]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Four tables without a common pair; clips are compared, not decoded."""
    for name in "abcdefgh":
        (tmp_path / f"{name}.mp4").write_bytes(f"clip {name}".encode())
    return Data(
        source="tables",
        traces="traces.jsonl",
        cold_start=write_table(tmp_path / "cold.csv", [("one", "a.mp4", "b.mp4", "a cat")]),
        sample=write_table(tmp_path / "sample.csv", [("one", "a.mp4", "c.mp4", "a cat")]),
        grpo=write_table(
            tmp_path / "grpo.csv", [("one", "a.mp4", "b.mp4", "a dog"), ("two", "a.mp4", "d.mp4", "a cat")]
        ),
        test=write_table(tmp_path / "test.csv", [("x", "e.mp4", "f.mp4", "a cat"), ("y", "g.mp4", "h.mp4", "a cat")]),
    )


def test_tables_may_share_clips_prompts_and_names(data: Data) -> None:
    check_tables(data)
    check_tables(Data())


@pytest.mark.parametrize("prompt", ["a cat", "  a   cat "])
@pytest.mark.parametrize("clips", [("new1.mp4", "new2.mp4"), ("new2.mp4", "new1.mp4")])
def test_a_shared_pair_is_named_under_any_name_and_in_any_order(
    data: Data, tmp_path: Path, clips: tuple[str, str], prompt: str
) -> None:
    shutil.copy(tmp_path / "a.mp4", tmp_path / "new1.mp4")
    shutil.copy(tmp_path / "c.mp4", tmp_path / "new2.mp4")
    write_table(tmp_path / "test.csv", [("x", "e.mp4", "f.mp4", "a cat"), ("seven", *clips, prompt)])
    expected = f"data.sample ({data.sample}) and data.test ({data.test}) share a pair: 'one' and 'seven' have the same"
    with pytest.raises(UsageError, match=re.escape(expected)):
        check_tables(data)
    (tmp_path / "new2.mp4").write_bytes(b"clip x")  # of the same size
    check_tables(data)


def test_one_table_for_two_stages_is_refused(data: Data) -> None:
    with pytest.raises(UsageError, match=r"data\.cold_start .* and data\.grpo .* share a pair: 'one' and 'one'"):
        check_tables(replace(data, grpo=data.cold_start))


def test_a_test_table_has_two_parts(data: Data, tmp_path: Path) -> None:
    short = write_table(tmp_path / "short.csv", [("x", "e.mp4", "f.mp4", "a cat"), ("y", "g.mp4", "lost.mp4", "a cat")])
    with pytest.raises(UsageError, match=r"short\.csv\) has 1 pair\(s\) with clips, and at least 2"):
        check_tables(replace(data, test=short))
    rows = [(f"row {n}", "e.mp4", "f.mp4", f"cat {n}") for n in range(40)]
    rows += [(f"again {n}", "f.mp4", "e.mp4", f"cat {n}") for n in range(40)]
    pairs = read_table(Path(write_table(tmp_path / "many.csv", rows))).pairs
    fit, report = choose_part(pairs, "fit"), choose_part(pairs, "report")
    assert sorted(pair.row.name for pair in (*fit, *report)) == sorted(row[0] for row in rows)
    assert not {pair.content for pair in fit} & {pair.content for pair in report}
    assert (len(fit), len(report)) == (20, 60)
    assert [len(choose_part(pairs[:2], part)) for part in ("fit", "report")] == [1, 1]


def test_two_pairs_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"a")
    table = write_table(tmp_path / "t.csv", [("x", "a.mp4", "a.mp4", "1"), ("y", "a.mp4", "a.mp4", "2")] * 2)
    with pytest.raises(UsageError, match=r"has two pairs 'x' \(rows 1 and 3\): give each an id of its own"):
        read_table(Path(table))


def test_rows_without_clips_are_left_out_with_a_reason(data: Data, tmp_path: Path) -> None:
    rows = [("x", "a.mp4", "b.mp4", ""), ("y", "a.mp4", "lost.mp4", "")]
    table = read_table(Path(write_table(tmp_path / "t.csv", rows)))
    assert [pair.row.name for pair in table.pairs] == ["x"]
    assert len(table.left_out) == 1 and "lost.mp4" in table.left_out[0]
