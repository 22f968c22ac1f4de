"""What a report holds, made without a browser: whole or not at all, small, bounded, and honest about what it lacks."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import write_clip
from hypothesis import given
from hypothesis import strategies as st
from judgements import call, judgement, sure
from pages.example_records import FINAL, PROMPT, clip_pair, judge_pair
from reports import Reader, Report
from terminals import Terminal

from vrt_lite.cli import run as vrt_lite
from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.video.encoding import MOST_BYTES
from vrt_lite.viewer import page_file, write_report
from vrt_lite.viewer.clip_media import ClipMedia, list_shown, make_address
from vrt_lite.viewer.page_file import make_table, write_json

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def page_of(judgement: Judgement, folder: Path, **more: Any) -> Report:
    write_report(judgement, folder / "report.html", **more)
    return Report(folder / "report.html")


@pytest.fixture
def clips(tmp_path: Path) -> list[Path]:
    return clip_pair(tmp_path)


def test_a_report_has_the_record_a_table_and_a_policy_of_what_may_run(tmp_path: Path, clips: list[Path]) -> None:
    judgement = judge_pair(clips, prompt="A blue star moves up.")
    page = page_of(judgement, tmp_path)
    assert page.record["judgement"] == judgement.to_json()
    assert page.table[0] == ["Dimension", "Better", "Video 1", "Tie", "Video 2"]
    assert page.table[1][:2] == ["Overall", "Video 2"]
    assert "Video 2 is better" in page.html.partition("<caption>")[2].partition("</caption>")[0]
    assert page.policy.startswith("default-src &#x27;none&#x27;; img-src data: &#x27;self&#x27; file:; media-src")
    assert "unsafe" not in page.policy
    for tag in ("style", 'script type="module"'):
        text = page.html.partition(f"<{tag}>")[2].partition("</")[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"&#x27;sha256-{digest}&#x27;" in page.policy
    page = page_of(judge_pair([clips[0], clips[0]]), tmp_path)
    assert (page.record["words"]["headline"], page.table[1]) == ("A tie", ["Overall", "Tie", "–", "–", "–"])
    modules = "".join(path.read_text(encoding="utf-8") for path in Path(page_file.__file__).parent.glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", modules)


@given(st.text(), st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_text_becomes_markup_and_no_data_end_their_element(text: str, data: Any) -> None:
    written = io.StringIO()
    write_json(written, "record", data)
    reader = Reader()
    reader.feed(make_table(text, [text], [[text]]) + written.getvalue())
    reader.close()
    assert [tag for tag, _ in reader.elements] == ["table", "caption", "tr", "th", "tr", "td", "script"]
    shown = [cell for tag, cell in reader.texts if tag != "script"]
    assert all(c.isprintable() or c in "\n\u00a0\u3000\u200c\u200d" for cell in shown for c in cell)
    assert json.loads(next(text for tag, text in reader.texts if tag == "script")) == data


def test_each_frame_is_in_it_once_and_both_orders_share_them(tmp_path: Path, clips: list[Path]) -> None:
    replies = (call(9, 57), FINAL, call(9, 57), FINAL)
    page = page_of(judge_pair(clips, *replies, settings=Settings(both_orders=True)), tmp_path)
    assert len(page.pictures) == 10
    rounds = [of for order in page.record["judgement"]["orders"] for of in order["rounds"]]
    assert sum(len(of["frames"]) for of in rounds) == 20
    first, second = page.record["judgement"]["inputs"]
    shown = {str(frame["source_frame"]) for of in rounds for frame in of["frames"] if frame["video"] == 1}
    assert page.media[first["sha256"]]["frames"].keys() == shown
    assert len(page.media[second["sha256"]]["frames"]) + len(shown) == 10


def test_two_rounds_of_noise_stay_under_three_megabytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (2, 48, 360, 640, 3), np.uint8)
    files = [
        write_clip(tmp_path / name, size=(640, 360), options={"crf": "10", "preset": "ultrafast"}, pictures=pictures)
        for name, pictures in zip(("a.mp4", "b.mp4"), noise, strict=True)
    ]
    settings = Settings(max_pixels=640 * 360)
    page = page_of(judge_pair(files, call(9, 10, 25, 40, 57, 58, 73, 88), sure(), settings=settings), tmp_path)
    assert len(page.pictures) == 16
    assert len(page.html.encode()) < 3_000_000


def test_a_clip_that_is_gone_or_another_is_said_to_be(tmp_path: Path, clips: list[Path]) -> None:
    judgement = judge_pair(clips)
    clips[0].unlink()
    page = page_of(judgement, tmp_path, embed=lambda _: None)
    gone, there = page.media.values()
    assert (gone["address"], gone["note"]) == ("", f"'{clips[0]}' is no longer there")
    assert page.data[there["address"].removeprefix("#")] == page.copies[0]
    write_clip(clips[1], frames=64, size=(56, 56))
    page = page_of(judgement, tmp_path)
    missing = [page.media[clip["sha256"]]["missing"] for clip in page.record["judgement"]["inputs"]]
    assert missing == [f"'{clips[0]}' is no longer there", f"'{clips[1]}' has changed since it was judged"]
    assert [place["address"] for place in page.media.values()] == ["", ""]
    assert page.record["words"]["headline"].startswith("Video 2 is better")


def test_clips_are_found_beside_the_judgement_and_where_a_run_knows_them(
    tmp_path: Path, clips: list[Path], monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    judgement = judge_pair([Path("a.mp4"), Path("b.mp4")])
    (tmp_path / "moved").mkdir()
    moved = [clip.rename(tmp_path / "moved" / clip.name) for clip in clips]
    page = page_of(judgement, tmp_path, beside=tmp_path / "moved")
    assert [place["address"] for place in page.media.values()] == ["./moved/a.mp4", "./moved/b.mp4"]
    assert len(page.pictures) > 8
    told = [
        {"name": clip.stem, "path": str(clip), "sha256": of.sha256}
        for clip, of in zip(moved, judgement.inputs, strict=True)
    ]
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("some", kind="rank", about={"groups": [{"name": "", "prompt": PROMPT, "clips": told}]})
        run.add(Question(told[0]["sha256"], told[1]["sha256"], PROMPT, "j"), judgement)
        write_report(run, tmp_path / "r.html")
    assert Report(tmp_path / "r.html").pictures
    assert make_address(tmp_path / "data:a b#?.mp4", tmp_path / "r.html") == "./data%3Aa%20b%23%3F.mp4"
    assert make_address(tmp_path / "x" / "a.mp4", tmp_path / "y" / "r.html") == "./../x/a.mp4"


def test_pictures_and_copies_are_made_once_and_end_when_no_bytes_are_left(tmp_path: Path, clips: list[Path]) -> None:
    made = judge_pair(clips)
    first, second = made.inputs
    page, copies = io.StringIO(), io.StringIO()
    with Decoder() as decoder:
        media = ClipMedia(page, tmp_path / "r.html", decoder, 12_000, 5_000)
        media.draw(first, [0])
        media.draw(first, range(48))
        media.draw(second, [0])
        left = MOST_BYTES * 4 // 3 + 100
        copied = ClipMedia(copies, tmp_path / "r.html", decoder, 0, embed=lambda _: None, copy_bytes_left=left)
        one, other = map(copied.place, list_shown([made]).values())
    pictures = re.findall(r'id="(\w+)">data:image/jpeg;base64,([^<]*)<', page.getvalue())
    assert 1 < len(pictures) < 48
    assert sum(len(data) for _, data in pictures) <= 12_000
    assert list(media.frames[first.sha256].values()) == [name for name, _ in pictures]
    assert (media.frames[second.sha256], media.missing) == ({}, {})
    assert (one["address"], copies.getvalue().count("data:video/mp4;base64,")) == ("#v0", 1)
    assert (other["address"], other["note"]) == ("", "it is left out, to keep this page small")


def test_what_is_no_judgement_is_refused_in_a_line(tmp_path: Path) -> None:
    for place, value in (
        ("inputs", []),
        ("inputs.0.fps", float("nan")),
        ("inputs.0.path", 3),
        ("inputs.0.shown_size", [1]),
        ("orders.0.first", True),
        ("orders.0.rounds.0.frames.0.video", 3),
        ("orders.0.rounds.0.frames.0.source_frame", -1),
        ("orders.0.rounds.0.text", None),
        ("verdict.overall.winner", "1"),
        ("verdict.dimensions", {}),
        ("settings", []),
        ("timings", {"total": "x"}),
    ):
        told = at = json.loads(json.dumps(judgement([sure()]).to_json()))
        *steps, last = (int(step) if step.isdigit() else step for step in place.split("."))
        for step in steps:
            at = at[step]
        at[last] = value
        with pytest.raises(UsageError, match=r"^[^\n]*no judgement of vrt-lite[^\n]*$"):
            write_report(told, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_nothing_in_it_is_refused_and_a_ranking_says_where_frame_sizes_differ(
    tmp_path: Path, clips: list[Path]
) -> None:
    report = tmp_path / "r.html"
    a, b = clips
    large, small = judge_pair([a, b]), judge_pair([b, a], settings=Settings(max_pixels=784 * 4))
    first, second = (clip.sha256 for clip in large.inputs)
    with Store(tmp_path / "runs.sqlite") as store:
        for kind in ("eval", "rank"):
            run = store.begin(kind, kind=kind, about={})
            with pytest.raises(UsageError, match="no judgements yet"):
                write_report(run, report)
        assert not report.exists()
        told = [
            {"name": clip.stem, "path": str(clip), "sha256": of}
            for clip, of in zip(clips, (first, second), strict=True)
        ]
        run.note({"groups": [{"name": "", "prompt": PROMPT, "clips": told}]})
        run.add(Question(first, second, PROMPT, "j"), large)
        write_report(run, report)
        assert "not comparable" not in Report(report).words
        run.add(Question(second, first, PROMPT, "j"), small)
        write_report(run, report)
    used = (of.settings for of in (large, small))
    sizes = ", ".join(f"1 at {of.max_pixels} ({of.tool_max_pixels} a requested frame)" for of in used)
    assert f"judgements by pixels a frame: {sizes}: not comparable" in Report(report).words


JUDGE = ("--prompt", PROMPT, "-q")


def test_clips_that_are_alike_share_the_first_place(
    tmp_path: Path, clips: list[Path], capfd: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.mp4").write_bytes(clips[0].read_bytes())
    Path("b.mp4").write_bytes(clips[0].read_bytes() + b"\0\0\0\x08free")  # the same frames
    assert vrt_lite(["rank", "a.mp4", "b.mp4", *JUDGE, "--report", "rank.html"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "Best: a.mp4. As good: b.mp4."
    assert Report(Path("rank.html")).record["title"] == "2 clips share the first place"


def test_compare_rank_and_eval_write_reports_and_report_takes_the_last_run(
    tmp_path: Path, clips: list[Path], capfd: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = map(str, clips)
    assert vrt_lite(["compare", a, b, *JUDGE[:-1], "--no-measures", "--report", "ab.html", "--embed"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("overall: ")
    assert "ab.html is written (" in err.splitlines()[-1]
    assert len(Report(Path("ab.html")).copies) == 2
    store = ("--store", "runs.sqlite")
    assert vrt_lite(["rank", a, b, *JUDGE, *store, "--orders", "one", "--name", "two", "--report", "rank.html"]) == 0
    assert Report(Path("rank.html")).record["title"].endswith("mp4 leads")
    Path("pairs.csv").write_text(f"a,b,prompt,overall\n{a},{b},{PROMPT},A\n")
    assert vrt_lite(["eval", "pairs.csv", "-q", *store, "--name", "of-it", "--report", "eval.html"]) == 0
    assert "Beside people's labels" in Report(Path("eval.html")).words
    assert vrt_lite(["report", *store]) == 0
    assert Path("of-it.html").read_bytes() == Path("eval.html").read_bytes()
    assert vrt_lite(["report", *store, "--embed"]) == 0
    assert "of-it.html is written" in capfd.readouterr().err
    assert len(Report(Path("of-it.html")).copies) == 2


def test_what_cannot_be_is_refused_in_a_line_before_anything_is_judge_pair(
    tmp_path: Path, clips: list[Path], capfd: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.html").write_text("mine")
    Path("ab.json").write_text("{}")
    Path("list.json").write_text("[]")
    for command, options, says in (
        ("compare", "--embed", "--embed is about a report: give its --report FILE.html, or --open, as well."),
        ("compare", "--report ab.txt", "a report is HTML. Give a name that ends in .html."),
        ("compare", "--report notes.html", "notes.html is there and is no report: give another name."),
        ("compare", "--report no/where.html", "there is no folder"),
        ("compare", "--report x.html --trace x.html", "--report x.html is also --trace; write to another file."),
        ("report", "none.json", "cannot be read"),
        ("report", "ab.json", "no judgement of vrt-lite"),
        ("report", "list.json", "no judgement of vrt-lite"),
        ("report", "ab.json -o ab.json", "is what the report is made from"),
        ("report", "ab.json -o notes.html", "is there and is no report"),
        ("report", "ab.json -o no/r.html", "there is no folder"),
        ("report", "ab.json -o r.pdf", "a report is HTML. Give a name that ends in .html."),
        ("report", "nothing", "There is no run 'nothing'"),
        ("report", "", "there are none yet. vrt-lite rank and vrt-lite eval make them."),
    ):
        arguments = [*map(str, clips), *JUDGE] if command == "compare" else []
        assert vrt_lite([command, *arguments, *options.split()]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert says in err
    assert Path("notes.html").read_text() == "mine"


@pytest.fixture
def no_browsers(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with a judgement, where webbrowser, which looks for browsers once, has found none yet."""
    for name, value in (("_tryorder", None), ("_browsers", {}), ("_os_preferred_browser", None)):
        monkeypatch.setattr(webbrowser, name, value)
    for variable in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "TERM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("a b.json").write_text(json.dumps(judgement([sure()]).to_json()))
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="webbrowser splits the command there as a POSIX shell would")
def test_open_hands_the_page_to_the_browser(
    no_browsers: Path, clips: list[Path], capfd: Capture, monkeypatch: Patch
) -> None:
    seen, browser = no_browsers / "seen.txt", no_browsers / "browser.py"
    browser.write_text(f"import pathlib, sys; pathlib.Path({str(seen)!r}).write_text(sys.argv[1])")
    monkeypatch.setenv("BROWSER", f"{sys.executable} {browser} %s")
    monkeypatch.setattr("tempfile.tempdir", str(no_browsers))
    assert vrt_lite(["report", "a b.json", "--open"]) == 0
    assert re.fullmatch(r"a b\.html is written \(\d\.\d MB\)\n", capfd.readouterr().err)
    assert seen.read_text() == (no_browsers / "a b.html").as_uri()
    # Without a name it lies among temporary files.
    assert vrt_lite(["compare", *map(str, clips), *JUDGE, "--open"]) == 0
    [page] = no_browsers.glob("vrt-lite-*/report.html")
    assert seen.read_text() == page.as_uri()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system always has a browser")
def test_without_a_browser_the_page_is_named(no_browsers: Path, capfd: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(no_browsers))
    assert vrt_lite(["report", "a b.json", "--open"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "No browser was found: open a b.html in one."
    assert vrt_lite(["report", "a b.json"]) == 0  # a report may be replaced


def test_a_terminal_is_told_which_clip_is_copied(tmp_path: Path, clips: list[Path], monkeypatch: Patch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    (tmp_path / "ab.json").write_text(json.dumps(judgement([sure()], names=tuple(map(str, clips))).to_json()))
    assert vrt_lite(["report", str(tmp_path / "ab.json"), "-o", str(tmp_path / "ab.html"), "--embed"]) == 0
    assert " copying a.mp4 into the report " in terminal.getvalue()
    assert terminal.getvalue().endswith(" MB): open it in a browser\n")
