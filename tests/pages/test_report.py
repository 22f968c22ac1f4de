"""What a report holds, made without a browser: whole or not at all, small, bounded, and honest about what it lacks."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import write_clip
from judgements import call, sure
from pages.example_records import clip_pair, judge_pair, judged

from vrt_lite.cli import run as vrt_lite
from vrt_lite.decoder import Decoder
from vrt_lite.errors import UsageError
from vrt_lite.measures import compare_values
from vrt_lite.records.joining import exchange_clips, join_judgements
from vrt_lite.records.pairs import Question
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.show.pages import write_report
from vrt_lite.show.pages.frame_album import FrameAlbum
from vrt_lite.show.pages.pair_page import make_address


def page_of(judgement: dict[str, Any], folder: Path) -> str:
    write_report(judgement, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8").replace("<wbr>", "")


def pictures(page: str) -> list[str]:
    return re.findall(r'"(data:image/jpeg;base64,[^"]+)"', page)


def test_each_frame_is_in_it_once_and_both_orders_share_them(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    final = "<think>T</think><final answer>TA=0, VQ=2, MQ=1, OA=2</final answer>"
    page = page_of(judged(clips, call(9, 57), final, call(9, 57), final, settings=Settings(both_orders=True)), tmp_path)
    found = pictures(page)
    assert len(found) == len(set(re.findall(r'id="(f\d+)" src="data:image/jpeg', page))) == 10
    assert page.count("<img") == 20
    assert page.count("Video 2 at 0.50") == 0 < page.count("Video 1 at 0.50")


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
    assert len(pictures(page)) == 16
    assert len(page.encode()) < 3_000_000


def test_the_policy_names_what_may_run_by_digest(tmp_path: Path) -> None:
    page = page_of(judged(clip_pair(tmp_path)), tmp_path)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;; img-src data: &#39;self&#39; file:; media-src")
    assert "unsafe" not in policy[1]
    assert not re.findall(r"(?:src|href)=.(?!data:|#|\./)", page.partition("<body>")[2].partition("<script>")[0])


def test_a_clip_that_is_gone_or_another_is_said_to_be(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    judgement = judged(clips)
    clips[0].unlink()
    write_clip(clips[1], frames=64, size=(56, 56))
    page = page_of(judgement, tmp_path)
    assert f"Frames not shown: &#39;{clips[0]}&#39; is no longer there." in page
    assert f"Frames not shown: &#39;{clips[1]}&#39; has changed since it was judged." in page
    assert "<video" not in page
    assert "Video 2 is better" in page


def test_clips_are_found_beside_the_judgement(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    judgement = judged(clips)
    moved = tmp_path / "moved"
    moved.mkdir()
    for clip in clips:
        clip.rename(moved / clip.name)
    write_report(judgement, tmp_path / "report.html", beside=moved)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'src="./moved/a.mp4"' in page
    assert len(pictures(page)) > 8


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
        run = store.begin("some", kind="rank", about={"clips": told})
        run.add(Question(first, second, "A fox runs.", "j"), judgement)
        write_report(run, tmp_path / "r.html")
    assert "data:image/jpeg" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_same_file_twice(tmp_path: Path) -> None:
    clip = clip_pair(tmp_path)[0]
    page = page_of(judged([clip, clip]), tmp_path)
    assert '<h1 class="tie" tabindex="-1">A tie</h1>' in page
    assert "no model ran" in page


def test_the_album_ends_when_no_bytes_are_left(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    first, second = judge_pair(clips).inputs
    with Decoder() as decoder:
        album = FrameAlbum(decoder, 12_000, largest=5_000)
        made = list(album.embed(first, range(48), [clips[0]]))
    assert 1 < len(made) < 48
    assert album.full
    assert sum(len(frame.uri) for frame in made) <= 12_000 + 48 * len("data:image/jpeg;base64,")
    assert list(album.embed(second, [0], [clips[1]])) == []
    assert album.explain(second) == "left out, to keep this page small"


def test_a_picture_is_given_with_its_bytes_once(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    first, _ = judge_pair(clips).inputs
    with Decoder() as decoder:
        album = FrameAlbum(decoder, 100_000)
        album.embed_in_place(first, [0], [clips[0]])
    shown = [album.show(first, 0), album.show(first, 0)]
    assert [bool(frame and frame.uri) for frame in shown] == [True, False]
    assert album.show(first, 1) is None


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
        assert "not comparable" not in (tmp_path / "r.html").read_text(encoding="utf-8")
        run.add(Question(second, first, "A fox runs.", "j"), small)
        write_report(run, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"1 judgements at {large.settings.max_pixels} pixels a frame, 1 at {784 * 4}: not comparable." in page
