"""Folders that are watched: clips are judged when they are whole, whoever writes them and however slowly."""

from __future__ import annotations

import _thread
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from brightness import Brightness, judge_of, names, write_grey
from chat_server import says, serving
from clips import write_clip
from judgements import FINAL
from PIL import Image

from examples.ladder import PROMPT, write_ladder
from vrt_lite import Judge, Ranking, Remote, Store, UsageError
from vrt_lite.interfaces import Event
from vrt_lite.ranking.rank import Label
from vrt_lite.ranking.rank_run import ClipGroup, Effort
from vrt_lite.ranking.watch import BEING_WRITTEN, FolderWatch, watch_folders
from vrt_lite.records.ladders import Progress, RankedClip
from vrt_lite.records.pairs import Result
from vrt_lite.show.run_views import FolderView

SETTLED = 0.1
MOST_SECONDS = 60.0


class Recorder:
    """Keeps what a watched ranking reports, and interrupts it when a condition holds."""

    def __init__(self, until: Callable[[Recorder], bool]) -> None:
        self.clips: list[tuple[str, ...]] = []
        self.waiting: list[dict[str, str]] = []
        self.pairs: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.missing = 1
        self._until = until

    def begins(self, *ignored: object) -> None:
        raise AssertionError("a watched ranking has no fixed beginning")

    def changed(self, group: ClipGroup, progress: Progress, waiting: Mapping[Path, str]) -> None:
        self.clips.append(tuple(clip.name for clip in group.clips))
        self.waiting.append({path.name: why for path, why in waiting.items()})
        self.check(progress)

    def judged(self, label: Label, result: Result, progress: Progress) -> None:
        _, i, j = label
        self.pairs.append((self.clips[-1][i], self.clips[-1][j]))
        self.failures += [result.error] if result.error else []
        self.check(progress)

    def observe(self, event: Event) -> None: ...

    def check(self, progress: Progress) -> None:
        self.missing = progress.most - progress.done
        if self._until(self):
            raise KeyboardInterrupt


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.fixture
def renders(tmp_path: Path) -> Path:
    """A folder with two clips, b the brighter one."""
    (tmp_path / "renders").mkdir()
    write_grey(tmp_path / "renders" / "a.mp4", 60)
    write_grey(tmp_path / "renders" / "b.mp4", 120)
    return tmp_path / "renders"


def watched(
    folder: Path, store: Store, until: Callable[[Recorder], bool], judge: Judge | None = None, **options: Any
) -> tuple[Ranking, Recorder]:
    """Watch until the condition holds; a timer ends a watch for which it never does."""
    recorder, watch = Recorder(until), FolderWatch([str(folder)], settled_seconds=SETTLED)
    timer = threading.Timer(MOST_SECONDS, _thread.interrupt_main)
    timer.start()
    with judge or judge_of(Brightness()) as opened:
        options |= {"watcher": recorder, "poll_seconds": 0.05}
        ranking = watch_folders(watch, prompt="x", store=store, judge=opened, **options)
    assert timer.is_alive(), (recorder.clips, recorder.waiting, recorder.pairs)
    timer.cancel()
    return ranking, recorder


def all_judged(clips: int) -> Callable[[Recorder], bool]:
    return lambda recorder: bool(recorder.clips) and len(recorder.clips[-1]) == clips and recorder.missing == 0


def test_clips_are_judged_as_a_slow_writer_finishes_them(renders: Path, store: Store, tmp_path: Path) -> None:
    """MP4 with the index last and first, Matroska, GIF and WebP, in pieces with pauses longer than a poll."""
    sources = [
        write_grey(tmp_path / "c.mp4", 180),
        write_clip(tmp_path / "d.mp4", frames=20, size=(56, 56), faststart=True),
        write_clip(tmp_path / "e.mkv", frames=20, size=(56, 56)),
    ]
    greys = [Image.new("RGB", (64, 64), (level,) * 3) for level in range(30, 50)]
    for name in ("f.gif", "g.webp"):
        greys[0].save(tmp_path / name, save_all=True, append_images=greys[1:], duration=60)
        sources.append(tmp_path / name)
    opened_half = threading.Event()

    def until(recorder: Recorder) -> bool:
        if recorder.waiting[-1].get("c.mp4", BEING_WRITTEN) != BEING_WRITTEN:
            opened_half.set()
        return all_judged(7)(recorder)

    def write_slowly() -> None:
        for source in sources:
            data = source.read_bytes()
            with (renders / source.name).open("wb", buffering=0) as file:
                for part in range(5):
                    file.write(data[part * len(data) // 5 : (part + 1) * len(data) // 5])
                    time.sleep(1.5 * SETTLED if part < 4 else 0)
                    if source.name == "c.mp4" and part == 2:
                        opened_half.wait(MOST_SECONDS)

    writer = threading.Thread(target=write_slowly)
    writer.start()
    ranking, recorder = watched(renders, store, until, effort=Effort(both_orders=False))
    writer.join()
    assert recorder.failures == []
    assert set(recorder.clips[-1]) == {"a.mp4", "b.mp4", *(source.name for source in sources)}
    assert len({frozenset(pair) for pair in recorder.pairs}) == len(recorder.pairs) == 21, "each pair is judged once"
    faults = {name: why for waiting in recorder.waiting for name, why in waiting.items() if why != BEING_WRITTEN}
    assert "is truncated" in faults["c.mp4"], "it was opened half, and only waited for"
    assert faults.keys() <= {source.name for source in sources}
    assert names(ranking.ladders[0])[0] == "c.mp4"
    assert ranking.found == 0, "nothing was judged before it began"
    assert not [result for result in store.run(ranking.run).results() if result.error]


def test_a_restart_goes_on_judges_nothing_twice_and_ends_with_its_budget(renders: Path, store: Store) -> None:
    first, recorder = watched(renders, store, all_judged(2))
    assert (len(recorder.pairs), names(first.ladders[0])) == (2, ("b.mp4", "a.mp4"))
    write_grey(renders / "c.mp4", 90)
    second, recorder = watched(renders, store, all_judged(3))
    assert (first.found, second.found, first.run) == (0, 2, second.run)
    assert len(recorder.pairs) == 4
    assert all("c.mp4" in pair for pair in recorder.pairs)
    assert names(second.ladders[0]) == ("b.mp4", "c.mp4", "a.mp4")
    third, recorder = watched(renders, store, all_judged(3))
    assert (recorder.pairs, third.ladders) == ([], second.ladders)
    write_grey(renders / "d.mp4", 150)
    fourth, recorder = watched(renders, store, lambda _: False, effort=Effort(budget=9))
    assert (len(recorder.pairs), fourth.ladders[0].judgements) == (3, 9)


def test_clips_that_are_deleted_or_replaced_leave_the_ranking(renders: Path, store: Store) -> None:
    write_grey(renders / "c.mp4", 200)
    steps: list[tuple[int, Callable[[], object]]] = [
        (3, (renders / "c.mp4").unlink),
        (2, lambda: write_grey(renders / "a.mp4", 240)),
        (1, lambda: None),
        (2, lambda: None),
    ]

    def until(recorder: Recorder) -> bool:
        """Each step waits for so many clips, all judged. Of the last two, the first is that a.mp4 is written anew."""
        clips, act = steps[0]
        if all_judged(clips)(recorder):
            del steps[0]
            act()
        return not steps

    ranking, recorder = watched(renders, store, until)
    assert names(ranking.ladders[0]) == ("a.mp4", "b.mp4"), "the new a.mp4 is the brightest"
    assert ("b.mp4",) in recorder.clips
    assert recorder.failures == []
    write_grey(renders / "c.mp4", 200)
    _, recorder = watched(renders, store, all_judged(3))
    assert len(recorder.pairs) == 2, "what was judged of c and b was kept while c was gone"


def test_what_is_never_finished_is_waited_for_and_named(renders: Path, store: Store) -> None:
    whole = write_grey(renders / "c.mp4", 200).read_bytes()
    (renders / "c.mp4").write_bytes(whole[: len(whole) // 2])
    (renders / "notes.mp4").write_text("no clip at all")
    (renders / "empty.mp4").touch()
    unfinished = {"c.mp4", "notes.mp4", "empty.mp4"}

    def until(recorder: Recorder) -> bool:
        last = recorder.waiting[-1]
        return all_judged(2)(recorder) and last.keys() == unfinished and BEING_WRITTEN not in last.values()

    ranking, _ = watched(renders, store, until)
    assert names(ranking.ladders[0]) == ("b.mp4", "a.mp4")
    assert {out.path.name: out.broken for out in ranking.left_out} == dict.fromkeys(unfinished, False)
    assert not [result for result in store.run(ranking.run).results() if result.error]


def test_only_folders_are_watched_and_they_may_be_away_for_a_while(renders: Path) -> None:
    with pytest.raises(UsageError, match="--watch needs folders"):
        FolderWatch([str(renders / "a.mp4")])
    watch = FolderWatch([str(renders)], settled_seconds=0.0)
    with judge_of(Brightness()) as judge:
        watch.look(judge.look_at)
        assert len(watch.look(judge.look_at)[0]) == 2
        moved = renders.rename(renders.with_name("away"))
        assert watch.look(judge.look_at)[0] == ()
        moved.rename(renders)
        watch.look(judge.look_at)
        assert len(watch.look(judge.look_at)[0]) == 2


def test_a_server_judges_several_pairs_at_once(renders: Path, store: Store) -> None:
    write_grey(renders / "c.mp4", 200)
    with serving(says(FINAL)) as server:
        judge = Judge(backend=Remote(server.url, served_model="judge"), jobs=3)
        _, recorder = watched(renders, store, all_judged(3), judge)
    assert len(set(recorder.pairs)) == len(server.bodies) == 6


def test_a_line_is_printed_for_what_comes_and_goes_alone() -> None:
    """A slow writer makes the reason change again and again, and that is no news."""
    stream = io.StringIO()
    one, two = (RankedClip(f"{name}.mp4", Path(f"{name}.mp4"), name) for name in "ab")
    late = Path("c.mp4")
    with FolderView(stream) as view:
        view.changed(ClipGroup("", "x", ()), Progress(0, 0), {one.path: BEING_WRITTEN})
        view.changed(ClipGroup("", "x", (one, two)), Progress(0, 2), {})
        for why in (BEING_WRITTEN, "has no whole index", BEING_WRITTEN):
            view.changed(ClipGroup("", "x", (one, two)), Progress(0, 2), {late: why})
        view.changed(ClipGroup("", "x", (two,)), Progress(0, 0), {late: BEING_WRITTEN})
    assert stream.getvalue().splitlines() == [
        "0 clips; waiting for: a.mp4",
        "2 clips; new: a.mp4, b.mp4",
        "2 clips; waiting for: c.mp4",
        "1 clip; gone: a.mp4",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_the_command_ends_by_ctrl_c_with_the_leaderboard(tmp_path: Path) -> None:
    best, *_, worst = write_ladder(tmp_path / "made")
    renders = tmp_path / "renders"
    renders.mkdir()
    shutil.copyfile(best, renders / "a.mp4")
    command = [sys.executable, "-m", "vrt_lite", "rank", str(renders), "--watch", "-p", PROMPT, "--model", "vrt-tiny-0"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for line in process.stderr:
            lines.append(line.rstrip())
            if line.startswith("1 clip;"):
                shutil.copyfile(worst, renders / "b.mp4")
            if line.startswith("2 of 2"):
                break
        os.kill(process.pid, signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    for beginning in ("1 clip; new: a.mp4", "2 clips; new: b.mp4"):
        assert any(line.startswith(beginning) for line in lines)
    assert any("waiting for: b.mp4" in line for line in lines)
    assert [line.split()[1] for line in out.splitlines()[1:3]] == ["a.mp4", "b.mp4"]
