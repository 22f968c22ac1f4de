"""What a report holds, made without a browser: whole or not at all, small, bounded, and honest about what it lacks."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import write_clip
from hypothesis import given
from hypothesis import strategies as st
from judgements import call, sure
from pages.example_records import clip_pair, judge_pair, judged
from reports import Reader, Report

from vrt_lite.cli import run as vrt_lite
from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.measures import compare_values
from vrt_lite.records.joining import exchange_clips, join_judgements
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.viewer import page_file, write_report
from vrt_lite.viewer.clip_media import ClipMedia, make_address
from vrt_lite.viewer.page_file import make_table, write_json


def page_of(judgement: dict[str, Any], folder: Path) -> Report:
    write_report(judgement, folder / "report.html")
    return Report(folder / "report.html")


def test_a_report_has_the_record_a_table_and_a_policy_of_what_may_run(tmp_path: Path) -> None:
    judgement = judged(clip_pair(tmp_path), prompt="A blue star moves up.")
    page = page_of(judgement, tmp_path)
    assert page.record["judgement"] == Judgement.from_json(judgement).to_json()
    assert page.table[0] == ["Dimension", "Better", "Video 1", "Tie", "Video 2"]
    assert page.table[1][:2] == ["Overall", "Video 2"]
    assert "Video 2 is better" in page.html.partition("<caption>")[2].partition("</caption>")[0]
    assert page.policy.startswith("default-src &#x27;none&#x27;; img-src data: &#x27;self&#x27; file:; media-src")
    assert "unsafe" not in page.policy
    style, script = (page.html.partition(f"<{tag}>")[2].partition("</")[0] for tag in ("style", 'script type="module"'))
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"&#x27;sha256-{digest}&#x27;" in page.policy


@given(st.text(), st.text(), st.text())
def test_no_text_becomes_markup(caption: str, heading: str, cell: str) -> None:
    reader = Reader()
    reader.feed(make_table(caption, [heading], [[cell]]))
    reader.close()
    assert [tag for tag, _ in reader.elements] == ["table", "caption", "tr", "th", "tr", "td"]
    shown = "".join(text for _, text in reader.texts)
    assert all(c.isprintable() or c in "\n\u00a0\u3000\u200c\u200d" for c in shown)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_data_end_their_element(data: Any) -> None:
    written = io.StringIO()
    write_json(written, "record", data)
    reader = Reader()
    reader.feed(written.getvalue())
    reader.close()
    assert [tag for tag, _ in reader.elements] == ["script"]
    assert json.loads(reader.texts[0][1]) == data


def test_the_modules_of_the_viewer_are_one_without_a_name_twice() -> None:
    folder = Path(page_file.__file__).parent
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}
    names = [
        name
        for text in texts.values()
        for name in re.findall(r"^(?:export )?(?:async )?(?:const|function) (\w+)", text, re.M)
    ]
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
    for name, text in texts.items():
        found = re.findall(r'^import \{([^}]+)\} from "\./(\w+)\.js";$', text, re.M)
        assert len(found) == len(re.findall(r"^import ", text, re.M)), f"{name}: an import that takes no single line"
        for wanted, module in found:
            for each in wanted.split(","):
                assert re.search(rf"^export (?:async )?(?:const|function) {each.strip()}\b", texts[module], re.M), each
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", "".join(texts.values()))
    lines = sum(text.count("\n") for text in texts.values()) + (folder / "app.css").read_text("utf-8").count("\n")
    assert lines <= 1_900


def test_each_frame_is_in_it_once_and_both_orders_share_them(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    final = "<think>T</think><final answer>TA=0, VQ=2, MQ=1, OA=2</final answer>"
    page = page_of(judged(clips, call(9, 57), final, call(9, 57), final, settings=Settings(both_orders=True)), tmp_path)
    assert len(page.pictures) == 10
    rounds = [of for order in page.record["judgement"]["orders"] for of in order["rounds"]]
    assert sum(len(of["frames"]) for of in rounds) == 20
    first, second = page.record["judgement"]["inputs"]
    shown = {str(frame["source_frame"]) for of in rounds for frame in of["frames"] if frame["video"] == 1}
    assert page.media[first["sha256"]]["frames"].keys() == shown
    assert len(page.media[second["sha256"]]["frames"]) + len(shown) == 10


def test_two_rounds_of_noise_stay_under_three_megabytes(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    clips = [
        write_clip(
            tmp_path / name,
            size=(640, 360),
            frames=48,
            options={"crf": "10"},
            pictures=(chance.integers(0, 256, (360, 640, 3), np.uint8) for _ in range(48)),
        )
        for name in ("a.mp4", "b.mp4")
    ]
    settings = Settings(max_pixels=640 * 360)
    page = page_of(judged(clips, call(9, 10, 25, 40, 57, 58, 73, 88), sure(), settings=settings), tmp_path)
    assert len(page.pictures) == 16
    assert len(page.html.encode()) < 3_000_000


def test_a_clip_that_is_gone_or_another_is_said_to_be(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    judgement = judged(clips)
    clips[0].unlink()
    write_clip(clips[1], frames=64, size=(56, 56))
    page = page_of(judgement, tmp_path)
    missing = [page.media[clip["sha256"]]["missing"] for clip in page.record["judgement"]["inputs"]]
    assert missing == [f"'{clips[0]}' is no longer there", f"'{clips[1]}' has changed since it was judged"]
    assert [place["address"] for place in page.media.values()] == ["", ""]
    assert page.record["words"]["headline"].startswith("Video 2 is better")


def test_clips_are_found_beside_the_judgement(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    judgement = judged(clips)
    moved = tmp_path / "moved"
    moved.mkdir()
    for clip in clips:
        clip.rename(moved / clip.name)
    write_report(judgement, tmp_path / "report.html", beside=moved)
    page = Report(tmp_path / "report.html")
    assert [place["address"] for place in page.media.values()] == ["./moved/a.mp4", "./moved/b.mp4"]
    assert len(page.pictures) > 8


def test_a_run_knows_where_its_clips_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    clips = clip_pair(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    judgement = judge_pair([Path("a.mp4"), Path("b.mp4")])
    monkeypatch.chdir(tmp_path)
    first, second = (clip.sha256 for clip in judgement.inputs)
    told = [
        {"name": clip.stem, "path": str(clip), "sha256": sha256}
        for clip, sha256 in zip(clips, (first, second), strict=True)
    ]
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("some", kind="rank", about={"groups": [{"name": "", "prompt": "A fox runs.", "clips": told}]})
        run.add(Question(first, second, "A fox runs.", "j"), judgement)
        write_report(run, tmp_path / "r.html")
    assert Report(tmp_path / "r.html").pictures


def test_the_same_file_twice(tmp_path: Path) -> None:
    clip = clip_pair(tmp_path)[0]
    page = page_of(judged([clip, clip]), tmp_path)
    assert page.record["words"]["headline"] == "A tie"
    assert page.table[1] == ["Overall", "Tie", "–", "–", "–"]


def test_pictures_are_made_once_and_end_when_no_bytes_are_left(tmp_path: Path) -> None:
    first, second = judge_pair(clip_pair(tmp_path)).inputs
    page = io.StringIO()
    with Decoder() as decoder:
        media = ClipMedia(page, tmp_path / "r.html", decoder, 12_000, 5_000)
        media.draw(first, [0])
        media.draw(first, range(48))
        media.draw(second, [0])
    pictures = re.findall(r'id="(\w+)">data:image/jpeg;base64,([^<]*)<', page.getvalue())
    assert 1 < len(pictures) < 48
    assert sum(len(data) for _, data in pictures) <= 12_000
    assert list(media.frames[first.sha256].values()) == [name for name, _ in pictures]
    assert (media.frames[second.sha256], media.missing) == ({}, {})


def test_both_orders_of_a_store_are_one_pair(tmp_path: Path) -> None:
    a, b = clip_pair(tmp_path)
    one, other = judge_pair([a, b]), judge_pair([b, a])
    joined = join_judgements(one, exchange_clips(other))
    assert [order.first for order in joined.orders] == [1, 2]
    assert joined.disagreements == ("VQ", "MQ", "OA")
    seconds = [
        {frame.seconds for frame in order.rounds[0].frames if frame.video == 1}
        for order in (joined.orders[1], one.orders[0])
    ]
    assert seconds[0] == seconds[1]
    assert joined.inputs == one.inputs
    # An earlier version measured nothing in a ranking; what is measured of either order is of both.
    measured = (compare_values("noise", (0.0, 9.0)),)
    assert join_judgements(one, exchange_clips(replace(other, measures=measured))).measures == (measured[0].mirrored(),)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("inputs",), []),
        (("inputs", 0, "fps"), float("nan")),
        (("inputs", 0, "path"), 3),
        (("inputs", 0, "shown_size"), [1]),
        (("orders", 0, "first"), True),
        (("orders", 0, "rounds", 0, "frames", 0, "video"), 3),
        (("orders", 0, "rounds", 0, "frames", 0, "source_frame"), -1),
        (("orders", 0, "rounds", 0, "text"), None),
        (("verdict", "overall", "winner"), "1"),
        (("verdict", "dimensions"), {}),
        (("settings",), []),
        (("timings",), {"total": "x"}),
    ],
)
def test_what_is_no_judgement_is_refused_in_a_line(path: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    judgement = copy.deepcopy(judged(clip_pair(tmp_path)))
    at: Any = judgement
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(UsageError, match="no judgement of vrt-lite") as error:
        write_report(judgement, tmp_path / "report.html")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "report.html").exists()
    assert not list(tmp_path.glob(".*"))


def test_addresses_are_relative_and_never_a_scheme(tmp_path: Path) -> None:
    assert make_address(tmp_path / "data:a b#?.mp4", tmp_path / "r.html") == "./data%3Aa%20b%23%3F.mp4"
    assert make_address(tmp_path / "x" / "a.mp4", tmp_path / "y" / "r.html") == "./../x/a.mp4"


def test_the_command_writes_a_file_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "ab.json"
    source.write_text(json.dumps(judged(clip_pair(tmp_path))), encoding="utf-8")
    assert vrt_lite(["report", str(source)]) == 0
    assert f"{tmp_path / 'ab.html'} is written" in capsys.readouterr().err
    assert vrt_lite(["report", str(source)]) == 0  # a report may be replaced


def test_the_command_refuses_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, other = tmp_path / "ab.json", tmp_path / "notes.html"
    source.write_text("{}", encoding="utf-8")
    other.write_text("mine", encoding="utf-8")
    for arguments, words in (
        ([str(tmp_path / "none.json")], "cannot be read"),
        ([str(source)], "no judgement of vrt-lite"),
        ([str(source), "-o", str(source)], "is what the report is made from"),
        ([str(source), "-o", str(other)], "is there and is no report"),
        ([str(source), "-o", str(tmp_path / "no" / "r.html")], "there is no folder"),
        ([str(source), "-o", str(tmp_path / "r.pdf")], "a report is HTML. Give a name that ends in .html."),
        (["nothing"], "There is no run 'nothing'"),
    ):
        assert vrt_lite(["report", *arguments]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    assert other.read_text(encoding="utf-8") == "mine"


def test_a_run_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        for kind in ("rank", "eval"):
            with pytest.raises(UsageError, match="no judgements yet"):
                write_report(store.begin(kind, kind=kind, about={}), tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_ranking_says_where_frame_sizes_differ(tmp_path: Path) -> None:
    a, b = clip_pair(tmp_path)
    large, small = judge_pair([a, b]), judge_pair([b, a], settings=Settings(max_pixels=784 * 4))
    first, second = (clip.sha256 for clip in large.inputs)
    with Store(tmp_path / "runs.sqlite") as store:
        run = store.begin("sizes", kind="rank", about={})
        run.add(Question(first, second, "A fox runs.", "j"), large)
        write_report(run, tmp_path / "r.html")
        assert "not comparable" not in Report(tmp_path / "r.html").words
        run.add(Question(second, first, "A fox runs.", "j"), small)
        write_report(run, tmp_path / "r.html")
    words = Report(tmp_path / "r.html").words
    assert f"1 judgements at {large.settings.max_pixels} pixels a frame, 1 at {784 * 4}: not comparable" in words
