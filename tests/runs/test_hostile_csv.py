"""An exported table has one row a judgement, whatever a text holds, and no cell that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import JUDGED, question

from vrt_lite.runs.export import COLUMNS, csv_lines
from vrt_lite.runs.store import Store

FORMULA = "=HYPERLINK(1)"
BEGINNINGS = ("", " ", "\u00a0 ", "\ufeff", "\u200b", "\t", "\r", "\n", "\v", "\0", "\u3000", "\u2060\u00ad", "\u0301")
SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe62", "\ufe6b", "\u207a")


def export(prompt: str) -> list[dict[str, str]]:
    """Export a run of one judgement about this prompt; returns the rows of the table."""
    with Store() as store:
        run = store.begin(f"run {prompt!r}"[:100], kind="rank", about={})
        run.add(question(prompt=prompt), JUDGED)
        text = "".join(csv_lines(run))
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("sign", SIGNS)
def test_a_formula_gets_an_apostrophe_whatever_stands_before_it(sign: str) -> None:
    for beginning in BEGINNINGS:
        prompt = f"{beginning}{sign}{FORMULA}"
        [row] = export(prompt)
        assert row["prompt"] == f"'{prompt}"


@pytest.mark.parametrize("text", ["a\r=1+1", "a\r\n=1+1", 'a"\r=1+1', "a\n\r\n=1+1", "a\r", "\ra", '"', "a,b;c\td"])
def test_a_line_break_stays_inside_its_cell(text: str) -> None:
    [row] = export(text)
    assert row["prompt"].removeprefix("'") == text
    assert tuple(row) == COLUMNS


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.sampled_from("a =+-@\r\n\t\",;'\ufeff\uff1d\u200b1"), max_size=12))
def test_no_text_becomes_a_formula_or_another_row(text: str) -> None:
    [row] = export(text)
    kept = row["prompt"]
    assert kept in {text, f"'{text}"}
    visible = [c for c in unicodedata.normalize("NFKC", kept) if unicodedata.category(c)[0] not in "CZM"]
    assert visible[:1] != ["="]
