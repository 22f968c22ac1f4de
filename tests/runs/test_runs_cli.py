"""runs, show, export: as a person, a spreadsheet and a script meet them."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from judgements import FINAL, ONE, TIED, TWO, judgement, sure, with_odds
from made import JUDGED, question
from msgspec.structs import replace

from vrt_lite.cli import run as vrt_lite
from vrt_lite.errors import NoVerdictError
from vrt_lite.records.pairs import Question
from vrt_lite.runs.export import COLUMNS
from vrt_lite.runs.store import Store, users_store

EVIL = '=HYPERLINK("http://x")\x1b[31m\u202e,\n"\'<script>'


@pytest.fixture
def asked() -> list[Question]:
    """A run in the user's store: a verdict, a failure, and a hostile prompt."""
    asked = [question(0), question(1), question(2, prompt=EVIL)]
    clips = [{"name": "@a.mp4", "path": "x/@a.mp4", "sha256": asked[0].first}]
    with Store() as store:
        run = store.begin(
            "foxes", kind="rank", about={"prompts": [EVIL], "groups": [{"name": "", "prompt": EVIL, "clips": clips}]}
        )
        run.add(asked[0], JUDGED)
        run.add_failure(asked[1], NoVerdictError("No verdict: 1 round(s)."))
        run.add(asked[2], judgement([sure()], names=("-one.mp4", "two.mp4")))
    return asked


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
def test_runs_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        many = store.begin("many", kind="rank", about={"prompts": ["A fox " * 20, "b", "c"]})
        many.add_failure(question(1), NoVerdictError("No verdict."))
    _, many, foxes = said(capfd, "runs")[0].splitlines()
    assert many.split()[:2] == ["many", "rank"]
    assert many.endswith("… (and 2 more)")
    assert foxes.split()[:2] == ["foxes", "rank"]
    assert foxes.split()[4:6] == ["3", "1"]
    assert "\\u202e" in foxes
    listed = json.loads(said(capfd, "runs", "--json")[0])
    assert [(info["name"], info["judgements"], info["failures"]) for info in listed] == [
        ("many", 1, 1),
        ("foxes", 3, 1),
    ]
    assert listed[1]["about"]["prompts"] == [EVIL]


@pytest.mark.usefixtures("asked")
def test_a_run_is_deleted(capfd: pytest.CaptureFixture[str]) -> None:
    assert said(capfd, "runs", "--rm", "foxes")[0] == "foxes is deleted, with 3 judgement(s) that no other run has\n"
    refused(capfd, "There is no run 'foxes'", "runs", "--rm", "foxes")
    refused(capfd, "not both", "runs", "--rm", "foxes", "--retry", "foxes")


def test_failures_are_forgotten(capfd: pytest.CaptureFixture[str], asked: list[Question]) -> None:
    assert said(capfd, "runs", "--retry", "foxes")[0].startswith("1 failure(s) of foxes are forgotten")
    with Store() as store:
        run = store.run("foxes")
        assert [run.result(q) is None for q in asked] == [False, True, False]
        assert len(list(run.results())) == 2


def test_a_run_is_shown(capfd: pytest.CaptureFixture[str], asked: list[Question]) -> None:
    named = (("@a.mp4", asked[0].first), ("b.mp4", asked[0].second))
    clips = [{"name": name, "path": f"x/{name}", "sha256": sha256} for name, sha256 in named]
    with Store() as store:
        groups = [{"name": "", "prompt": asked[0].prompt, "clips": clips}]
        run = store.begin("two foxes", kind="rank", about={"groups": groups})
        assert run.result(asked[0])
    heading, first, second, *facts = said(capfd, "show", "two foxes")[0].splitlines()
    assert heading.split()[:3] == ["RANK", "CLIP", "RATING"]
    assert (first.split()[:2], second.split()[:2]) == (["1", "b.mp4"], ["2", "@a.mp4"])
    assert "run: two foxes" in facts
    assert json.loads(said(capfd, "show", "foxes", "--json")[0])["judgements"] == 3
    refused(capfd, "the nearest is 'foxes'", "show", "fix")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_is_a_table_that_a_spreadsheet_does_not_run(
    capfd: pytest.CaptureFixture[str], asked: list[Question], tmp_path: Path
) -> None:
    path = tmp_path / "foxes.csv"
    out, err = said(capfd, "export", "foxes", "-o", str(path))
    assert (out, err) == ("", f"3 judgement(s) of foxes are in {path}\n")
    first, failed, hostile = rows(path.read_bytes().decode())
    assert tuple(first) == COLUMNS
    assert (first["number"], first["first"], first["second"]) == ("1", "'@a.mp4", "b.mp4")
    assert [first[key] for key in ("TA", "VQ", "MQ", "OA")] == ["0", "2", "1", "2"]
    assert [float(first[f"OA {chance}"]) for chance in ("tie", "1", "2")] == [0.04, 0.03, 0.93]
    assert (first["source"], first["rounds"], first["error"]) == ("final", "1", "")
    assert (first["first sha256"], first["key"]) == (asked[0].first, asked[0].key)
    assert (failed["OA"], failed["OA 1"], failed["error"]) == ("", "", "No verdict: 1 round(s).")
    assert hostile["prompt"] == f"'{EVIL}"
    assert hostile["first"] == "'-one.mp4"


def test_jsonl_has_the_whole_judgement(
    capfd: pytest.CaptureFixture[str], asked: list[Question], tmp_path: Path
) -> None:
    path = tmp_path / "foxes.jsonl"
    said(capfd, "export", "foxes", "-o", str(path))
    first, failed, hostile = map(json.loads, path.read_text(encoding="ascii").splitlines())
    assert first["judgement"] == JUDGED.to_json()
    assert first["first"] == {"name": "@a.mp4", "sha256": asked[0].first}
    assert first["winners"]["OA"] == 2
    assert (failed["judgement"], failed["winners"], failed["error"]) == (None, {}, "No verdict: 1 round(s).")
    assert (hostile["number"], hostile["prompt"]) == (3, EVIL)


def test_an_export_says_what_both_orders_come_to(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, other = question(0), replace(question(0), first=question(0).second, second=question(0).first)
    unsure = with_odds(FINAL, TIED, TWO, ONE, (0.1, 0.3, 0.6))
    with Store() as store:
        run = store.begin("foxes", kind="rank", about={})
        run.add(one, JUDGED)
        run.add(other, judgement([unsure], names=("b.mp4", "a.mp4")))
        run.add(question(1), JUDGED)
    told: dict[str, list[dict[str, Any]]] = {}
    for form, read in (("csv", rows), ("jsonl", lambda text: [json.loads(line) for line in text.splitlines()])):
        said(capfd, "export", "foxes", "-o", str(tmp_path / f"foxes.{form}"))
        told[form] = read((tmp_path / f"foxes.{form}").read_text(encoding="utf-8"))
    assert [[row[f"{key} both orders"] for key in ("TA", "VQ", "MQ", "OA")] for row in told["csv"]] == [
        ["tie", "undecided", "undecided", "undecided, leans to 2 (0.61)"],
        ["tie", "undecided", "undecided", "undecided, leans to 1 (0.61)"],
        ["", "", "", ""],
    ]
    both = [row["both_orders"] for row in told["jsonl"]]
    assert [row and (row["OA"]["undecided"], row["OA"]["leans"]) for row in both] == [(True, 2), (True, 1), None]


@pytest.mark.usefixtures("asked")
def test_a_pipe_gets_what_a_file_gets(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        path = tmp_path / f"foxes.{form}"
        assert vrt_lite(["export", "foxes", "-o", str(path)]) == 0
        capfdbinary.readouterr()
        assert vrt_lite(["export", "foxes", "-o", "-", "--format", form]) == 0
        assert capfdbinary.readouterr() == (path.read_bytes(), b"")


@pytest.mark.usefixtures("asked")
def test_nothing_is_overwritten_unasked(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "foxes.csv"
    path.write_text("mine")
    refused(capfd, "is there already: give another name, or --overwrite", "export", "foxes", "-o", str(path))
    assert path.read_text() == "mine"
    said(capfd, "export", "foxes", "-o", str(path), "--overwrite")
    assert len(rows(path.read_text(encoding="utf-8"))) == 3
    store = str(users_store())
    refused(capfd, "is the store itself", "export", "foxes", "-o", store, "--overwrite", "--format", "csv")
    folder = tmp_path / "a.csv"
    folder.mkdir()
    refused(capfd, "it is no regular file", "export", "foxes", "-o", str(folder), "--overwrite")
    refused(capfd, "cannot be written: ", "export", "foxes", "-o", str(tmp_path / "no" / "a.csv"))
    refused(capfd, "neither in .csv nor in .jsonl", "export", "foxes", "-o", str(tmp_path / "a.txt"))
    refused(capfd, "--format", "export", "foxes", "-o", "-")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "foxes.csv"]


@pytest.mark.usefixtures("asked")
def test_an_export_that_fails_leaves_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Store() as store, store._database.write() as connection:
        connection.execute("UPDATE judgements SET body = x'00' WHERE id = 3")
    refused(capfd, "is damaged", "export", "foxes", "-o", str(tmp_path / "a.csv"), status=7)
    assert not list(tmp_path.iterdir())


def test_a_store_is_not_made_by_looking_for_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in (["runs"], ["show", "x"], ["export", "x", "-o", "x.csv"]):
        refused(capfd, "There is no store", *command, "--store", str(tmp_path / "a.sqlite"))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("asked")
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such pipe")
def test_a_reader_may_go_away(own_home: Path) -> None:
    with Store() as store:
        run = store.run("foxes")
        for number in range(10, 400):
            run.add(question(number), JUDGED)
    command = [sys.executable, "-m", "vrt_lite", "export", "foxes", "-o", "-", "--format", "jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout
    assert process.stderr
    assert json.loads(process.stdout.readline())["number"] == 1
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1
