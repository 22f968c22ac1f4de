"""Reports with copies of their clips: they play anywhere, stay within their bounds, and say what they lack."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clips import write_clip
from pages.conftest import until
from pages.example_records import HOSTILE, clip_pair, judge_pair, judged
from pages.test_browser import BROKEN, READY, SIDEWAYS, TIMES, fill
from reports import Report

from vrt_lite.decoder import Decoder
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.video.small_copy import MOST_BYTES
from vrt_lite.viewer import write_report
from vrt_lite.viewer.clip_media import ClipMedia, list_shown

COPIES = "[...document.querySelectorAll('video')].map(video => video.currentSrc.slice(0, 15))"


def test_a_pair_plays_where_its_clips_are_not(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    clips = clip_pair(tmp_path)
    write_report(judge_pair(clips), tmp_path / "report.html", embed=lambda _: None)
    for clip in clips:
        clip.unlink()
    page = Report(tmp_path / "report.html")
    assert "media-src data:;" in page.policy
    assert [place["note"] for place in page.media.values()] == ["a small copy: 112 × 84"] * 2
    assert len(page.html) < 2 * MOST_BYTES
    tab = tabs()
    shown = tab.open(tmp_path / "report.html")
    until(shown, READY)
    assert shown.evaluate(COPIES) == ["data:video/mp4;"] * 2
    shown.get_by_role("button", name="Play").click()
    until(shown, f"{TIMES}[0] > 0.3")
    assert shown.evaluate(BROKEN) == []
    tab.check_quiet()


def test_each_pair_of_a_ranking_plays_where_its_clips_are_not(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    clips = [write_clip(folder / f"{n}.mp4", frames=30 + i, size=(112, 84)) for i, n in enumerate(("oak", "elm"))]
    with Store(tmp_path / "runs.sqlite") as store:
        write_report(fill(store, clips), tmp_path / "ladder.html", embed=lambda _: None)
    shutil.rmtree(folder)
    assert len(Report(tmp_path / "ladder.html").copies) == 2
    tab = tabs(width=390)
    page = tab.open(tmp_path / "ladder.html", hash="#/pair/1")
    until(page, "document.querySelectorAll('video').length === 2 && " + READY)
    assert page.evaluate(COPIES) == ["data:video/mp4;"] * 2
    assert page.evaluate(SIDEWAYS) == 0
    tab.check_quiet()


def test_a_clip_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    judgement = judged(clips)
    clips[0].unlink()
    write_report(judgement, tmp_path / "report.html", embed=lambda _: None)
    page = Report(tmp_path / "report.html")
    gone, there = page.media.values()
    assert (gone["address"], gone["note"]) == ("", f"'{clips[0]}' is no longer there")
    assert page.data[there["address"].removeprefix("#")] == page.copies[0]


def test_what_is_over_the_bound_of_a_page_is_said_to_be(tmp_path: Path) -> None:
    clips = clip_pair(tmp_path)
    shown = list_shown([Judgement.from_json(judged(clips))])
    page, left = io.StringIO(), MOST_BYTES * 4 // 3 + 100
    with Decoder() as decoder:
        media = ClipMedia(page, tmp_path / "r.html", decoder, 0, embed=lambda _: None, copy_bytes_left=left)
        first, second = map(media.place, shown.values())
    assert (first["address"], page.getvalue().count("data:video/mp4;base64,")) == ("#v0", 1)
    assert (second["address"], second["note"]) == ("", "it is left out, to keep this page small")


def test_no_words_get_into_the_policy_or_the_players(tmp_path: Path, tabs: Callable[..., Any]) -> None:
    judgement = judged(clip_pair(tmp_path), prompt=HOSTILE.replace("\x00", ""))
    judgement["inputs"][0]["path"] = str(tmp_path / "a.mp4")
    judgement["inputs"][1]["path"] = f'/gone/{HOSTILE}/#v0" data-copy="#about'
    write_report(judgement, tmp_path / "report.html", embed=lambda _: None)
    tab = tabs()
    page = tab.open(tmp_path / "report.html")
    until(page, READY)
    assert page.locator("video").count() == 1
    assert page.locator("script[type=module]").count() == 1
    assert page.get_by_text("cannot be played here").count() == 1
    tab.check_quiet()
