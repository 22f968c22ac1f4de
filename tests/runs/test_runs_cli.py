"""runs, show, export: as a person, a spreadsheet and a script meet them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgements import FINAL, ONE, TIED, TWO, judgement, sure, with_odds
from msgspec.structs import replace
from run_worker import JUDGED, question

from vrt_lite.cli import run as vrt_lite
from vrt_lite.errors import NoVerdictError
from vrt_lite.records.pairs import Question
from vrt_lite.runs.export import COLUMNS, csv_lines
from vrt_lite.runs.store import Store, users_store

EVIL = '=HYPERLINK("http://x")\x1b[31m\u202e,\n"\'<script>'
NONE = NoVerdictError("No verdict: 1 round(s).")
KEYS = ("TA", "VQ", "MQ", "OA")
BEGINNINGS = ("", " ", "\u00a0 ", "\ufeff", "\u200b", "\t", "\r", "\n", "\v", "\0", "\u3000", "\u2060\u00ad", "\u0301")
SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe62", "\ufe6b", "\u207a")


@pytest.fixture
def asked() -> list[Question]:
    """A run in the user's store: a verdict, a failure, and a hostile prompt."""
    asked = [question(0), question(1), question(2, prompt=EVIL)]
    clips = [{"name": "@a.mp4", "path": "x/@a.mp4", "sha256": asked[0].first}]
    groups = [{"name": "", "prompt": EVIL, "clips": clips}]
    with Store() as store:
        run = store.begin("foxes", kind="rank", about={"prompts": [EVIL], "groups": groups})
        run.add(asked[0], JUDGED)
        run.add(asked[1], NONE)
        run.add(asked[2], judgement([sure()], names=("-one.mp4", "two.mp4")))
    return asked


@pytest.fixture
def export(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Any:
    """Export the run of the foxes in one form, to a file, and lines to a pipe too; returns the rows."""

    def rows(form: str) -> list[dict[str, Any]]:
        path = tmp_path / f"foxes.{form}"
        assert vrt_lite(["export", "foxes", "-o", str(path)]) == 0
        assert capfdbinary.readouterr() == (b"", f"3 judgement(s) of foxes are in {path}\n".encode())
        if form == "jsonl":
            assert vrt_lite(["export", "foxes", "-o", "-"]) == 0
            assert capfdbinary.readouterr() == (path.read_bytes(), b"")
        text = path.read_bytes().decode()
        return rows_of(text) if form == "csv" else [json.loads(line) for line in text.splitlines()]

    return rows


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def said(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    assert vrt_lite(arguments) == status
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    return out, err


def refused(capfd: pytest.CaptureFixture[str], says: str, *arguments: str, status: int = 2) -> None:
    out, err = said(capfd, *arguments, status=status)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert says in err


@pytest.mark.usefixtures("asked")
def test_runs_are_listed_and_failures_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        many = store.begin("many", kind="rank", about={"prompts": ["A fox " * 20, "b", "c"]})
        many.add(question(1), NONE)
        assert store.runs()[0].created <= store.runs()[0].updated
    _, many, foxes = said(capfd, "runs")[0].splitlines()
    assert many.split()[:2] == ["many", "rank"]
    assert many.endswith("… (and 2 more)")
    assert foxes.split()[:2] == ["foxes", "rank"]
    assert foxes.split()[4:6] == ["3", "1"]
    assert "\\u202e" in foxes
    listed = json.loads(said(capfd, "runs", "--json")[0])
    counts = [(info["name"], info["judgements"], info["failures"]) for info in listed]
    assert counts == [("many", 1, 1), ("foxes", 3, 1)]
    assert listed[1]["about"]["prompts"] == [EVIL]
    assert said(capfd, "runs", "--retry", "foxes")[0].startswith("1 failure(s) of foxes are forgotten")
    with Store() as store:
        assert [info.judgements for info in store.runs()] == [2]
        assert not store.run("foxes").result(question(1))


def test_every_command_takes_the_beginning_of_a_name(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store() as store:
        for name in ("hounds", "fox-12ffffff", "fox-12ab34cd", "foxes", "fox"):
            run = store.begin(name, kind="rank")
            run.add(question(len(name)), JUDGED)
            time.sleep(0.002)  # the clock of some systems has a tick of a millisecond
        run.add(question(7), NONE)
    for words, expected in (
        ("show", "run: fox"),
        ("show ho", "run: hounds"),
        ("show fox-12a", "run: fox-12ab34cd"),
        ("export -o all.csv", "2 judgement(s) of fox are in all.csv"),
        ("export h -o h.jsonl", "1 judgement(s) of hounds are in h.jsonl"),
        ("report hou", "hounds.html is written"),
        ("runs --retry latest", "1 failure(s) of fox are forgotten; give its command again"),
        ("runs --rm foxe", "foxes is deleted, with 1 judgement(s) that no other run has"),
    ):
        out, err = said(capfd, *words.split())
        assert expected in (out or err), words
        assert len(err.splitlines()) <= 1
    for name in ("foxe", "OX", "LATEST", ""):
        refused(capfd, f"There is no run {name!r}", "runs", "--rm", name)
    refused(capfd, "There is no run 'foxe'; the nearest is 'fox'. See: vrt-lite runs", "show", "foxe")
    several = "'fox-1' is the beginning of several runs: 'fox-12ab34cd', 'fox-12ffffff'. Give more of the name."
    refused(capfd, several, "show", "fox-1")
    refused(capfd, "not both", "runs", "--rm", "hounds", "--retry", "hounds")
    with Store() as store:
        store.begin("hounds", kind="rank")  # used again, although it judges nothing new
        assert store.run("latest").name == "hounds"


def test_a_table_and_lines_have_all_that_was_judged(asked: list[Question], export: Any) -> None:
    first, failed, hostile = export("csv")
    assert tuple(first) == COLUMNS
    assert (first["number"], first["first"], first["second"]) == ("1", "'@a.mp4", "b.mp4")
    assert [first[key] for key in KEYS] == ["0", "2", "1", "2"]
    assert [float(first[f"OA {chance}"]) for chance in ("tie", "1", "2")] == [0.04, 0.03, 0.93]
    assert (first["source"], first["rounds"], first["error"]) == ("final", "1", "")
    assert (first["first sha256"], first["key"]) == (asked[0].first, asked[0].key)
    assert (failed["OA"], failed["OA 1"], failed["error"]) == ("", "", str(NONE))
    assert (hostile["prompt"], hostile["first"]) == (f"'{EVIL}", "'-one.mp4")
    first, failed, hostile = export("jsonl")
    assert first["judgement"] == JUDGED.to_json()
    assert first["first"] == {"name": "@a.mp4", "sha256": asked[0].first}
    assert first["winners"]["OA"] == 2
    assert (failed["judgement"], failed["winners"], failed["error"]) == (None, {}, str(NONE))
    assert (hostile["number"], hostile["prompt"]) == (3, EVIL)


def test_an_export_says_what_both_orders_come_to(export: Any) -> None:
    one, other = question(0), replace(question(0), first=question(0).second, second=question(0).first)
    unsure = with_odds(FINAL, TIED, TWO, ONE, (0.1, 0.3, 0.6))
    with Store() as store:
        run = store.begin("foxes", kind="rank", about={})
        run.add(one, JUDGED)
        run.add(other, judgement([unsure], names=("b.mp4", "a.mp4")))
        run.add(question(1), JUDGED)
    assert [[row[f"{key} both orders"] for key in KEYS] for row in export("csv")] == [
        ["tie", "undecided", "undecided", "undecided, leans to 2 (0.61)"],
        ["tie", "undecided", "undecided", "undecided, leans to 1 (0.61)"],
        ["", "", "", ""],
    ]
    both = [row["both_orders"] for row in export("jsonl")]
    assert [row and (row["OA"]["undecided"], row["OA"]["leans"]) for row in both] == [(True, 2), (True, 1), None]


def rows_about(*prompts: str) -> list[dict[str, str]]:
    """The table of a run with a judgement about each prompt."""
    with Store() as store:
        run = store.begin(f"run {prompts!r}"[:100], kind="rank")
        for number, prompt in enumerate(prompts):
            run.add(question(number, prompt=prompt), JUDGED)
        return rows_of("".join(csv_lines(run)))


@pytest.mark.usefixtures("asked")
def test_nothing_is_overwritten_unasked(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, folder = tmp_path / "foxes.csv", tmp_path / "a.csv"
    path.write_text("mine")
    folder.mkdir()
    link = users_store().with_name("store.csv")
    link.hardlink_to(users_store())
    for says, target, *more in (
        ("is there already: give another name, or --overwrite", path),
        ("is the store itself", link, "--overwrite"),
        ("is a directory", folder, "--overwrite"),
        ("cannot be written: ", tmp_path / "no" / "a.csv"),
        ("neither in .csv nor in .jsonl", tmp_path / "a.txt"),
    ):
        refused(capfd, says, "export", "foxes", "-o", str(target), *more)
    assert path.read_text() == "mine"
    for command in (["runs"], ["show", "x"], ["export", "x", "-o", "x.csv"]):
        refused(capfd, "There is no store", *command, "--store", str(tmp_path / "a.sqlite"))
    said(capfd, "export", "foxes", "-o", str(path), "--overwrite")
    assert len(rows_of(path.read_text(encoding="utf-8"))) == 3
    path.unlink()
    with Store() as store, store.write() as connection:
        connection.execute("UPDATE judgements SET body = x'00' WHERE id = 3")
    refused(capfd, "is damaged", "export", "foxes", "-o", str(path), status=7)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("asked")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such pipe")
def test_a_reader_may_go_away() -> None:
    with Store() as store:
        run = store.run("foxes")
        for number in range(10, 70):
            run.add(question(number), JUDGED)
    command = [sys.executable, "-m", "vrt_lite", "export", "foxes", "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["number"] == 1
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_formula_gets_an_apostrophe_whatever_stands_before_it() -> None:
    prompts = [f"{beginning}{sign}HYPERLINK(1)" for beginning in BEGINNINGS for sign in SIGNS]
    assert [row["prompt"] for row in rows_about(*prompts)] == [f"'{prompt}" for prompt in prompts]


def test_a_line_break_stays_inside_its_cell() -> None:
    texts = ["a\r=1+1", "a\r\n=1+1", 'a"\r=1+1', "a\n\r\n=1+1", "a\r", "\ra", '"', "a,b;c\td"]
    rows = rows_about(*texts)
    assert [row["prompt"].removeprefix("'") for row in rows] == texts
    assert tuple(rows[0]) == COLUMNS


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.sampled_from("a =+-@\r\n\t\",;'\ufeff\uff1d\u200b1"), max_size=12))
def test_no_text_becomes_a_formula_or_another_row(text: str) -> None:
    [row] = rows_about(text)
    kept = row["prompt"]
    assert kept in {text, f"'{text}"}
    visible = [c for c in unicodedata.normalize("NFKC", kept) if unicodedata.category(c)[0] not in "CZM"]
    assert visible[:1] != ["="]
