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

from vrt_lite.cli import run
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
from vrt_lite.ranking.clip_groups import ClipGroup, RankedClip
from vrt_lite.records.judgement import Judgement
from vrt_lite.show import safe, show_verdict, verdict_lines
from vrt_lite.show.judge_view import JudgeView
from vrt_lite.show.panel import VerdictPanel
from vrt_lite.show.progress import Screen
from vrt_lite.show.run_views import EvaluationView, RankingView

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


# safe


def test_safe_escapes_what_a_terminal_would_obey() -> None:
    assert safe("\x1b[31m") == r"\x1b[31m"
    assert safe("a\nb\tc\rd\x00") == r"a\nb\tc\rd\x00"
    assert safe("\u202egpj.exe\u2066") == r"\u202egpj.exe\u2066"
    assert safe("\udc80") == r"\udc80"
    assert HARMLESS.fullmatch(safe(HOSTILE))


@pytest.mark.parametrize(
    "text", ["A fox.mp4", "狐が雪の中を走る", "مرحبا", "👩\u200d🚀", "a\u00a0b\u3000c", "C:\\new\\test", "[bold]"]
)
def test_safe_leaves_harmless_text_alone(text: str) -> None:
    assert safe(text) == text


def test_safe_keeps_lines_of_model_text() -> None:
    assert safe("a\n\tb\x1b", lines=True) == "a\n    b\\x1b"


def test_safe_writes_nothing_that_an_encoding_lacks() -> None:
    assert safe("é 狐", encoding="cp1252") == r"é \u72d0"
    assert safe("é", encoding="ascii") == r"\xe9"


# The verdict


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
@pytest.mark.parametrize("case", CASES)
def test_panel_fits_and_obeys_nothing(case: str, width: int, colour: bool) -> None:
    out = panel(CASES[case](), width, colour=colour)
    plain = OURS.sub("\n", out)
    assert all(cell_len(line) <= width for line in re.sub(r"\x1b\[[0-9;]*m", "", out).split("\n"))
    assert all(HARMLESS.fullmatch(line) for line in plain.split("\n"))
    assert ("\x1b" in out) == colour


@pytest.mark.parametrize("case", CASES)
def test_panel_in_ascii(case: str) -> None:
    out = panel(CASES[case](), 60, encoding="ascii")
    assert out.isascii()
    assert all(len(line) <= 60 for line in out.split("\n"))


@pytest.mark.parametrize("width", [40, 80])
def test_panel_says_who_wins_and_by_how_much(width: int) -> None:
    out = flat(panel(judgement([call(9, 57), sure()]), width))
    assert "b.mp4 (video 2) is better" in out
    for name in ("Overall", "Prompt alignment", "Visual quality", "Motion quality"):
        assert name in out
    for share in ("93%", "81%", "91%"):
        assert share in out
    assert "10 frames in 2 rounds" in out
    assert "0.8 s" in out
    assert "recommendation" not in out


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


def test_orders_that_disagree_are_told() -> None:
    out = flat(panel(judgement([with_odds(FINAL, TIED, TWO, ONE, TWO)], [sure()]), 120))
    assert "The two orders choose differently: Visual quality (VQ), Motion quality (MQ), Overall." in out
    assert "8 frames in 1 + 1 rounds (both orders)" in out


@pytest.mark.parametrize("width", [40, 66, 88])
def test_opposite_winners_are_no_win(width: int) -> None:
    unsure = (0.1, 0.3, 0.6)
    record = judgement([with_odds(FINAL, TIED, TWO, ONE, TWO)], [with_odds(FINAL, TIED, TWO, ONE, unsure)])
    assert verdict_lines(record)[:4] == [
        "overall: undecided, leans to video 2 (0.61) [final]",
        "TA: tie 0.81",
        "VQ: undecided",
        "MQ: undecided",
    ]
    out = flat(panel(record, width))
    assert "Undecided, leans to video 2 (0.61)" in out
    assert "is better" not in out
    assert "A tie" not in out


def test_names_that_are_alike_become_paths() -> None:
    lines = verdict_lines(judgement([sure()], names=("one/x.mp4", "two/x.mp4")))
    assert lines[0] == f"overall: video 2 ({Path('two/x.mp4')}) 0.93 [final]"


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


def test_lines_without_probabilities_or_model() -> None:
    assert verdict_lines(judgement([FINAL]))[:2] == ["overall: video 2 (b.mp4) [final]", "TA: tie"]
    assert verdict_lines(judgement())[0] == "overall: tie [identical]"
    assert "rounds: 0" in verdict_lines(judgement())


@pytest.mark.parametrize("case", CASES)
def test_lines_are_lines(case: str) -> None:
    for line in verdict_lines(CASES[case](), encoding="ascii"):
        assert HARMLESS.fullmatch(line)
        assert line.isascii()
        assert re.match(r"(overall|TA|VQ|MQ|orders disagree|rounds|frames|seconds|warning): ", line)


def test_a_pipe_gets_lines_and_a_terminal_the_panel() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    show_verdict(judgement([sure()]), stream=pipe)
    show_verdict(judgement([sure()]), stream=terminal)
    assert pipe.getvalue().splitlines() == verdict_lines(judgement([sure()]))
    assert "Verdict" in terminal.getvalue()


def test_a_pipe_with_a_small_encoding() -> None:
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(raw, encoding="cp1252")
    show_verdict(judgement([sure()], names=("a.mp4", "狐.mp4")), stream=pipe)
    pipe.flush()
    assert raw.getvalue().splitlines()[0] == rb"overall: video 2 (\u72d0.mp4) 0.93 [final]"


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


def test_live_view_in_ascii() -> None:
    assert live("<think>狐 …</think>", console(40, encoding="ascii")).isascii()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_reasoning_stays_in_order_under_headings(width: int) -> None:
    thought = " ".join(f"word{i}" for i in range(200))
    out = live(f"<snapshot>Both sharp.</snapshot>\n< Think >{thought}</ think >\n{call(9)}", console(width))
    kept = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    positions = [kept.index(word) for word in ("Snapshot", "Both sharp.", "Reasoning", "word0 ", "Recommends")]
    assert positions == sorted(positions)
    assert "think" not in kept.lower()
    assert re.findall(r"word\d+", kept[kept.rindex("word0 ") :]) == [f"word{i}" for i in range(200)]


def test_rounds_say_which_frames_are_new() -> None:
    kept = live("x", console(120))
    assert "round 1: video 1: 9, 40; video 2: 9" in kept
    assert "round 1, clips exchanged: no new frames" in kept
    assert "the reply could not be used" in kept


def test_without_verbose_nothing_stays() -> None:
    out = live(FINAL, console(60), verbose=False)
    _, shown, end = out.rpartition("\x1b[?25h")  # the cursor is shown again
    assert shown
    assert not re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s", "", end)


def test_text_that_only_looks_like_a_tag_is_text() -> None:
    kept = live("<think>a <b> c < d <i ", console(60))
    assert "a <b> c < d" in kept


def test_plain_view_is_plain_and_short() -> None:
    out = io.StringIO()
    with JudgeView(out) as watching:
        for event in events(FINAL * 50):
            watching.observe(event)
    lines = out.getvalue().splitlines()
    assert len(lines) == 8
    assert all(HARMLESS.fullmatch(line) for line in lines)
    assert lines[2] == "round 1: video 1: 9, 40; video 2: 9"
    assert lines[-1] == "round 1, clips exchanged: the reply could not be used"


def test_plain_view_tells_the_reasoning_if_asked() -> None:
    out = io.StringIO()
    with JudgeView(out, verbose=True) as watching:
        for event in events(f"{FINAL}\n{HOSTILE}"):
            watching.observe(event)
    assert "Reasoning\n  Enough.\nFinal answer\n" in out.getvalue()
    assert all(HARMLESS.fullmatch(line) for line in out.getvalue().split("\n"))


def test_quiet_says_nothing() -> None:
    out = io.StringIO()
    with JudgeView(out, quiet=True, verbose=True) as watching:
        for event in events(FINAL):
            watching.observe(event)
    assert out.getvalue() == ""


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


def test_plots_without_matplotlib_are_refused_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["eval", str(tmp_path / "pairs.csv"), "--plots", str(tmp_path / "plots")]) == 2
    assert re.search(r"Install it: .* -m pip install .*'matplotlib>=", capfd.readouterr().err)


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
        shown.begins([ClipGroup("", "x", tuple(clips))], 0, 182, TimeRange(65_520.0, 262_080.0))
        for done in range(1, 9):
            now += 10.0
            shown.observe(Prefill(100 * done, 800))
    assert pipe.getvalue().splitlines() == [
        "14 clips, at most 182 judgements, 0 of them made before; 6 to 24 min each here, 18 to 73 h in all "
        "(--budget 40: 4.0 to 16 h)",
        "0 of 182, reading (300 of 800 tokens), 36 h left",
        "0 of 182, reading (600 of 800 tokens), 36 h left",
    ]
