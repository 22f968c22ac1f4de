"""What a person sees: at every width, with and without colour, and whatever a name or the judge's text holds."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from judgements import FINAL, ONE, TIED, TWO, call, judgement, sure, with_odds
from rich.cells import cell_len
from rich.console import Console
from terminals import Terminal

from vrt_lite.interfaces import (
    Encoding,
    Event,
    Loading,
    Predicted,
    Prefill,
    RoundBegan,
    RoundEnded,
    TimeRange,
    Waiting,
    Working,
    Wrote,
)
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.ranking.clip_groups import ClipGroup
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.ladders import RankedClip
from vrt_lite.records.progress import Progress
from vrt_lite.show import safe, show_verdict, verdict_lines
from vrt_lite.show.judge_view import JudgeView
from vrt_lite.show.panel import VerdictPanel
from vrt_lite.show.run_views import EvaluationView, RankingView
from vrt_lite.show.screen import Screen

HOSTILE = (
    "\x1b[31m\x1b]0;owned\x07\x1b[2J\x9b31m[bold]x[/bold][/] :smile: \u202egpj.exe\u2066\u200e\u061c"
    "\x00\r\x08\x7f\n\u2028\ufeff\U000e0041\udc80\ud83d.mp4"
)
HARMLESS = re.compile(r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]*")
# What rich itself may write: colours, cursor and erase sequences, line ends.
OURS = re.compile(r"\x1b\[[0-9;?]*[mAKhl]|[\r\n]")


def console(width: int = 80, *, colour: bool = False, encoding: str = "utf-8") -> Console:
    return Console(
        file=Terminal(encoding),
        width=width,
        height=24,
        force_terminal=True,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def written(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def panel(shown: Judgement, width: int = 80, *, colour: bool = False, encoding: str = "utf-8") -> str:
    on = console(width, colour=colour, encoding=encoding)
    on.print(VerdictPanel(shown))
    return written(on)


def flat(rendered: str) -> str:
    """The panel's words in one line, without its frame."""
    return re.sub(r"\s+", " ", re.sub(r"[│╭╮╰╯─]", " ", rendered))


CASES: dict[str, Callable[[], Judgement]] = {
    "final": lambda: judgement([call(9, 57), sure()]),
    "no probabilities": lambda: judgement([FINAL]),
    "recommended": lambda: judgement([call(9)] * 5, warnings=("Video 1: short.",)),
    "both orders": lambda: judgement([sure()], [call(9, 57), sure()]),
    "identical": lambda: judgement(warnings=("Both clips are the same file.",)),
    "hostile": lambda: judgement([sure()], names=(HOSTILE, "n" * 250), dimension=HOSTILE, warnings=(HOSTILE,)),
}


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("\x1b[31m", "utf-8", r"\x1b[31m"),
        ("a\nb\tc\rd\x00", "utf-8", r"a\nb\tc\rd\x00"),
        ("\u202egpj.exe\u2066", "utf-8", r"\u202egpj.exe\u2066"),
        ("\udc80", "utf-8", r"\udc80"),
        ("é 狐", "cp1252", r"é \u72d0"),
        ("é", "ascii", r"\xe9"),
        *(
            (same, "utf-8", same)
            for same in ("狐が雪の中", "مرحبا", "👩\u200d🚀", "a\u00a0b\u3000c", "C:\\new", "[bold]")
        ),
    ],
)
def test_what_a_terminal_would_obey_is_escaped_and_nothing_else(text: str, encoding: str, expected: str) -> None:
    assert safe(text, encoding=encoding) == expected


def test_lines_of_the_judges_text_are_kept() -> None:
    assert safe("a\n\tb\x1b", lines=True) == "a\n    b\\x1b"


# The verdict


@pytest.mark.parametrize(("colour", "encoding"), [(False, "utf-8"), (True, "utf-8"), (False, "ascii")])
@pytest.mark.parametrize("width", [20, 40, 60, 120])
@pytest.mark.parametrize("case", CASES)
def test_panel_fits_and_obeys_nothing(case: str, width: int, colour: bool, encoding: str) -> None:
    out = panel(CASES[case](), width, colour=colour, encoding=encoding)
    assert all(cell_len(line) <= width for line in re.sub(r"\x1b\[[0-9;]*m", "", out).split("\n"))
    assert all(HARMLESS.fullmatch(line) for line in OURS.sub("\n", out).split("\n"))
    assert ("\x1b" in out) == colour
    assert out.isascii() or encoding == "utf-8"


def test_bars_tell_the_videos_apart_without_colour() -> None:
    even = (0.2, 0.4, 0.4)
    out = panel(judgement([with_odds(FINAL, even, even, even, even)]), 80, encoding="ascii")
    assert "11111111----22222222" in out


def test_panel_shows_no_probabilities_that_were_not_given() -> None:
    assert "%" not in panel(judgement([FINAL]))
    assert "%" not in panel(judgement())


def test_a_recommendation_is_called_one() -> None:
    out = flat(panel(judgement([call(9)] * 5), 100))
    assert "Only a recommendation, with confidence 2 of 5 (medium): the judge never gave a final answer." in out


@pytest.mark.parametrize("width", [40, 66, 88])
def test_opposite_winners_are_no_win(width: int) -> None:
    unsure = (0.1, 0.3, 0.6)
    record = judgement([with_odds(FINAL, TIED, TWO, ONE, TWO)], [with_odds(FINAL, TIED, TWO, ONE, unsure)])
    assert verdict_lines(record)[:3] == [
        "overall: undecided, leans to video 2 (0.61) [final]",
        "TA: tie 0.81",
        "VQ: undecided",
    ]
    out = flat(panel(record, width))
    assert "Undecided, leans to video 2 (0.61)" in out
    assert "is better" not in out and "A tie" not in out


def test_lines() -> None:
    assert verdict_lines(judgement([call(9, 57), sure()], warnings=("Look out.",))) == [
        "overall: video 2 (b.mp4) 0.93 [final]",
        "TA: tie 0.81",
        "VQ: video 2 0.93",
        "MQ: video 1 0.91",
        "rounds: 2",
        "frames: 10",
        "seconds: 0.83",
        "warning: Look out.",
    ]
    assert verdict_lines(judgement([FINAL]))[:2] == ["overall: video 2 (b.mp4) [final]", "TA: tie"]
    assert verdict_lines(judgement())[0] == "overall: tie [identical]"
    assert "rounds: 0" in verdict_lines(judgement())
    alike = verdict_lines(judgement([sure()], names=("one/x.mp4", "two/x.mp4")))
    assert alike[0] == f"overall: video 2 ({Path('two/x.mp4')}) 0.93 [final]"


@pytest.mark.parametrize("case", CASES)
def test_lines_are_lines(case: str) -> None:
    for line in verdict_lines(CASES[case](), encoding="ascii"):
        assert HARMLESS.fullmatch(line)
        assert line.isascii()
        assert re.match(r"(overall|TA|VQ|MQ|orders disagree|rounds|frames|seconds|warning): ", line)


def test_a_pipe_gets_lines_in_its_encoding_and_a_terminal_the_panel() -> None:
    raw, terminal = io.BytesIO(), Terminal()
    pipe = io.TextIOWrapper(raw, encoding="cp1252")
    shown = judgement([sure()], names=("a.mp4", "狐.mp4"))
    for stream in (pipe, terminal):
        show_verdict(shown, stream=stream)
    pipe.flush()
    assert raw.getvalue().decode("cp1252").splitlines() == verdict_lines(shown, encoding="cp1252")
    assert "Verdict" in terminal.getvalue()


# At work

SHOWN = (FrameRef(0, 8), FrameRef(0, 39), FrameRef(1, 8))


def events(text: str) -> list[Event]:
    pieces: list[Event] = [Wrote(text[i : i + 3]) for i in range(0, len(text), 3)]
    return [
        Loading(HOSTILE),
        Waiting(HOSTILE, 2),
        RoundBegan(0, 1, SHOWN),
        Encoding(0, 2),
        Encoding(2, 2),
        Prefill(0, 300),
        Prefill(300, 300),
        *pieces,
        RoundEnded(0, 1, "tool"),
        RoundBegan(1, 1, ()),
        RoundEnded(1, 1, "correction"),
    ]


def live(text: str, on: Console, *, verbose: bool = True) -> str:
    with JudgeView(console=on, verbose=verbose) as watching:
        for event in events(text):
            watching.observe(event)
    return written(on)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [1, 12, 40, 60, 80, 120])
def test_live_view_obeys_nothing(width: int, colour: bool, verbose: bool) -> None:
    text = f"<snapshot>{HOSTILE}</snapshot>{HOSTILE}<think>{HOSTILE * 9}\n\n狐{'狐' * 99}</think><b><final ans"
    out = live(text, console(width, colour=colour), verbose=verbose)
    assert all(HARMLESS.fullmatch(line) for line in OURS.sub("\n", out).split("\n"))


def test_a_wait_is_shown_until_something_is_written() -> None:
    wait = Waiting("the server at http://h:1/v1 (cannot be reached: Connection refused)", 3)
    waited_for = "the server at http://h:1/v1 (cannot be reached: Connection refused), attempt 3"
    on, pipe = console(120), io.StringIO()
    watching = JudgeView(console=on)
    watching.observe(wait)
    on.print(watching._screen._render())
    assert f"waiting for {waited_for}" in written(on)
    with JudgeView(pipe) as plain:
        plain.observe(wait)
    EvaluationView(Screen(pipe), total=3).observe(wait)
    RankingView(Screen(pipe)).observe(wait)
    shown = [f"{counts}waiting for {waited_for}" for counts in ("", "0 of 3, ", "")]
    assert pipe.getvalue().splitlines() == shown


def test_plain_view_is_plain_and_short_and_tells_the_reasoning_if_asked() -> None:
    views = {of: io.StringIO() for of in ("plain", "verbose", "quiet")}
    for of, out in views.items():
        with JudgeView(out, verbose=of != "plain", quiet=of == "quiet") as watching:
            for event in events(f"{FINAL}\n{HOSTILE}"):
                watching.observe(event)
        assert all(HARMLESS.fullmatch(line) for line in out.getvalue().split("\n"))
    lines = views["plain"].getvalue().splitlines()
    assert (len(lines), lines[2]) == (8, "round 1: video 1: 9, 40; video 2: 9")
    assert lines[-2:] == [
        "round 1, clips exchanged: no new frames",
        "round 1, clips exchanged: the reply could not be used",
    ]
    assert "Reasoning\n  Enough.\nFinal answer\n" in views["verbose"].getvalue()
    assert views["quiet"].getvalue() == ""


@pytest.mark.parametrize("width", [40, 80, 120])
def test_reasoning_stays_in_order_under_headings(width: int) -> None:
    thought = " ".join(f"word{i}" for i in range(200))
    out = live(f"<snapshot>Both sharp.</snapshot>\n< Think >{thought}</ think >\n{call(9)}", console(width))
    kept = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    positions = [kept.index(word) for word in ("Snapshot", "Both sharp.", "Reasoning", "word0 ", "Recommends")]
    assert positions == sorted(positions)
    assert "think" not in kept.lower()
    assert re.findall(r"word\d+", kept[kept.rindex("word0 ") :]) == [f"word{i}" for i in range(200)]
    assert "a <b> c < d" in live("<think>a <b> c < d <i ", console(60))
    assert live("<think>狐 …</think>", console(40, encoding="ascii")).isascii()


def test_without_verbose_nothing_stays() -> None:
    out = live(FINAL, console(60), verbose=False)
    _, shown, end = out.rpartition("\x1b[?25h")  # the cursor is shown again
    assert shown
    assert not re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s", "", end)


def test_a_reader_that_left_costs_no_verdict(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, s: str, /) -> int:
            raise BrokenPipeError

    with JudgeView(Closed()) as watching:
        judgement([sure()], observe=watching.observe)


def test_the_view_follows_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert Screen(Terminal()).is_live
    assert not Screen(Terminal(), live=False).is_live
    assert not Screen(Terminal(), quiet=True).is_live
    assert not Screen(io.StringIO()).is_live
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen(Terminal()).is_live


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_the_progress_of_an_evaluation_fits(width: int, encoding: str) -> None:
    on = console(width, encoding=encoding)
    with EvaluationView(Screen(console=on), total=40) as watching:
        for label in (1, 2, 0, None):
            watching.observe(Waiting(HOSTILE, 2))
            watching.count(label, 1, seconds_left=90.0)
            watching.observe(Loading("狐" * 99))
            on.print(watching._screen._render())
    lines = [OURS.sub("", line) for line in re.split(r"[\r\n]", written(on))]
    assert max(map(cell_len, lines)) <= width
    assert any("4 of 40" in line for line in lines)
    assert all(HARMLESS.fullmatch(line) for line in lines)
    assert encoding == "utf-8" or written(on).isascii()
    if width == 120:
        assert any("tau 33.3, diff 50.0" in line for line in lines)


def test_lines_of_an_evaluation_come_now_and_then() -> None:
    pipe = io.StringIO()
    with EvaluationView(Screen(pipe), total=100) as watching:
        for _ in range(52):
            watching.count(1, 1, seconds_left=None)
    lines = pipe.getvalue().splitlines()
    assert lines[0] == "5 of 100, tau 100.0, diff 100.0"
    assert lines[-1] == "52 of 100, tau 100.0, diff 100.0"
    assert len(lines) == 11


def test_many_tokens_are_few_screens() -> None:
    on = console(80)
    with JudgeView(console=on) as watching:
        watching.observe(RoundBegan(0, 1, SHOWN))
        for _ in range(20_000):
            watching.observe(Wrote(" token"))
    # Far less than one screen a token, and than all of the text.
    assert len(written(on)) < 6 * 20_000


def test_pipes_and_errors_need_no_rich() -> None:
    code = "import sys, vrt_lite.show, vrt_lite.show.judge_view; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_a_long_judgement_shows_what_is_done_and_the_time_it_takes(width: int, encoding: str) -> None:
    on = console(width, encoding=encoding)
    shown: list[str] = []
    watching = JudgeView(console=on)
    watching.observe(Predicted(TimeRange(720.0, 2880.0)))
    for event in (Working("decoding frames"), Encoding(0, 8), Prefill(0, 3741), Working("measuring the clips")):
        watching.observe(event)
        with on.capture() as capture:
            on.print(watching._screen._render())
        shown.append(OURS.sub("", capture.get()))
    assert max(cell_len(line) for text in shown for line in text.splitlines()) <= width
    if width >= 60:
        words = ("decoding frames", "encoding frames (0 of 8)", "reading (0 of 3741 tokens)", "measuring the clips")
        assert all(said in text and "s of 12 to 48 min" in text for said, text in zip(words, shown, strict=True))


def test_a_long_judgement_in_a_pipe_says_now_and_then_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pipe = io.StringIO()
    shown = JudgeView(pipe)
    shown.observe(Predicted(TimeRange(720.0, 2880.0)))
    shown.observe(Working("decoding frames"))
    shown.observe(Encoding(0, 8))
    for done in range(1, 9):
        now += 10.0
        shown.observe(Encoding(done, 8))
    shown.observe(Working("decoding frames"))
    assert pipe.getvalue().splitlines() == [
        "this will take 12 to 48 min here",
        "decoding frames",
        "encoding frames (0 of 8)",
        "encoding frames (3 of 8), 30 s of 12 to 48 min",
        "encoding frames (6 of 8), 60 s of 12 to 48 min",
    ]


def test_a_run_of_long_judgements_says_now_and_then_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pipe = io.StringIO()
    clips = [RankedClip(f"{n}.mp4", Path(f"{n}.mp4"), str(n)) for n in range(14)]
    with RankingView(Screen(pipe)) as shown:
        shown.begins([ClipGroup("", "x", tuple(clips))], Progress(0, 182), TimeRange(65_520.0, 262_080.0))
        for done in range(1, 9):
            now += 10.0
            shown.observe(Prefill(100 * done, 800))
    assert pipe.getvalue().splitlines() == [
        "14 clips, at most 182 judgements, 0 of them made before; 6 to 24 min each here, 18 to 73 h in all "
        "(--budget 40: 4.0 to 16 h)",
        "0 of 182, reading (300 of 800 tokens), 36 h left",
        "0 of 182, reading (600 of 800 tokens), 36 h left",
    ]
