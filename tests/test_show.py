"""What a person sees: at every width, with and without colour, and whatever a name or the judge's text holds."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from judgements import FINAL, ONE, TIED, TWO, call, judgement, sure, with_odds
from rich.cells import cell_len
from rich.console import Console
from terminals import Terminal

from vrt_lite import interfaces as at_work
from vrt_lite.protocol.messages import FrameRef
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import ClipGroup
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.ladders import Progress, RankedClip
from vrt_lite.show import safe, show_verdict
from vrt_lite.show.judge_view import JudgeView
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.show.pair_words import verdict_lines
from vrt_lite.show.panel import draw_verdict
from vrt_lite.show.run_views import EvaluationView, RankingView
from vrt_lite.show.screen import Screen

HOSTILE = (
    "\x1b[31m\x1b]0;owned\x07\x1b[2J\x9b31m[bold]x[/bold][/] :smile: \u202egpj.exe\u2066\u200e\u061c"
    "\x00\r\x08\x7f\n\u2028\ufeff\U000e0041\udc80\ud83d.mp4"
)
HARMLESS = re.compile(r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]*")
HARMLESS_TEXTS = ("狐が雪の中", "مرحبا", "👩\u200d🚀", "a\u00a0b\u3000c", "C:\\new", "[bold]")
# What rich itself may write: colours, cursor and erase sequences.
OURS = re.compile(r"\x1b\[[0-9;?]*[mAKhl]")
LONG = at_work.Predicted(at_work.TimeRange(720.0, 2880.0))


def console(width: int = 80, *, colour: bool = False, encoding: str = "utf-8") -> Console:
    system = "truecolor" if colour else None
    plain = {"legacy_windows": False, "highlight": False, "markup": False, "emoji": False}
    stream = Terminal(encoding)
    return Console(file=stream, width=width, height=24, force_terminal=True, color_system=system, **plain)


def written(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def panel(shown: Judgement, width: int = 80, *, colour: bool = False, encoding: str = "utf-8") -> str:
    on = console(width, colour=colour, encoding=encoding)
    on.print(draw_verdict(shown, on))
    return written(on)


def flat(rendered: str) -> str:
    """The panel's words in one line, without its frame."""
    return re.sub(r"\s+", " ", re.sub(r"[│╭╮╰╯─]", " ", rendered))


def check_harmless(out: str) -> list[str]:
    """Check that a terminal obeys nothing in a text but what rich writes; returns its lines without that."""
    lines = [OURS.sub("", line) for line in re.split(r"[\r\n]", out)]
    assert all(HARMLESS.fullmatch(line) for line in lines)
    return lines


def check_fits(out: str, width: int, encoding: str = "utf-8") -> list[str]:
    """Check a text as above, its width and its characters."""
    lines = check_harmless(out)
    assert max(map(cell_len, lines)) <= width
    assert encoding == "utf-8" or out.isascii()
    return lines


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("\x1b[31m", "utf-8", r"\x1b[31m"),
        ("a\nb\tc\rd\x00", "utf-8", r"a\nb\tc\rd\x00"),
        ("\u202egpj.exe\u2066", "utf-8", r"\u202egpj.exe\u2066"),
        ("\udc80", "utf-8", r"\udc80"),
        ("é 狐", "cp1252", r"é \u72d0"),
        ("é", "ascii", r"\xe9"),
        *((same, "utf-8", same) for same in HARMLESS_TEXTS),
    ],
)
def test_what_a_terminal_would_obey_is_escaped_and_nothing_else(text: str, encoding: str, expected: str) -> None:
    assert safe(text, encoding=encoding) == expected
    assert safe(f"a\n\t{text}", encoding=encoding, lines=True).startswith("a\n    ")


def opposite() -> Judgement:
    """A judgement whose orders name opposite winners overall."""
    unsure = with_odds(FINAL, TIED, TWO, ONE, (0.1, 0.3, 0.6))
    return judgement([sure()], [unsure])


CASES: dict[str, Callable[[], Judgement]] = {
    "final": lambda: judgement([call(9, 57), sure()]),
    "no probabilities": lambda: judgement([FINAL]),
    "recommended": lambda: judgement([call(9)] * 5, warnings=("Video 1: short.",)),
    "both orders": opposite,
    "identical": lambda: judgement(warnings=("Both clips are the same file.",)),
    "hostile": lambda: judgement([sure()], names=(HOSTILE, "n" * 250), dimension=HOSTILE, warnings=(HOSTILE,)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_fits_and_obeys_nothing(case: str) -> None:
    shown = CASES[case]()
    for width in (20, 40, 60, 120):
        for colour, encoding in ((False, "utf-8"), (True, "utf-8"), (False, "ascii")):
            out = panel(shown, width, colour=colour, encoding=encoding)
            check_fits(out, width, encoding)
            assert ("\x1b" in out) == colour
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with redirect_stdout(pipe):
        show_verdict(shown)
    pipe.seek(0)
    for line in pipe.read().splitlines():
        assert HARMLESS.fullmatch(line)
        assert re.match(r"(overall|TA|VQ|MQ|orders disagree|rounds|frames|seconds|warning): ", line)


def test_the_panel_says_no_more_than_the_judge() -> None:
    assert "11111111----22222222" in panel(judgement([with_odds(FINAL, *[(0.2, 0.4, 0.4)] * 4)]), encoding="ascii")
    assert "%" not in panel(judgement([FINAL])) + panel(judgement())
    recommended = flat(panel(judgement([call(9)] * 5), 100))
    assert "Only a recommendation, with confidence 2 of 5 (medium): the judge never gave a final answer." in recommended
    for width in (40, 66, 88):
        out = flat(panel(opposite(), width))
        assert "Undecided, leans to video 2 (0.61)" in out
        assert "is better" not in out and "A tie" not in out


def test_lines() -> None:
    alike = judgement([sure()], names=("one/x.mp4", "two/x.mp4"))
    for shown, first in (
        (judgement([FINAL]), "overall: video 2 (b.mp4) [final]"),
        (judgement(), "overall: tie [identical]"),
        (alike, f"overall: video 2 ({Path('two/x.mp4')}) 0.93 [final]"),
        (opposite(), "overall: undecided, leans to video 2 (0.61) [final]"),
    ):
        assert verdict_lines(shown)[0] == first
    assert " | ".join(verdict_lines(judgement([call(9, 57), sure()], warnings=("Look out.",)))) == (
        "overall: video 2 (b.mp4) 0.93 [final] | TA: tie 0.81 | VQ: video 2 0.93 | MQ: video 1 0.91 | "
        "rounds: 2 | frames: 10 | seconds: 0.83 | warning: Look out."
    )


def test_a_pipe_gets_lines_in_its_encoding_and_a_terminal_the_panel() -> None:
    raw, terminal = io.BytesIO(), Terminal()
    pipe = io.TextIOWrapper(raw, encoding="cp1252")
    shown = judgement([sure()], names=("a.mp4", "狐.mp4"))
    for stream in (pipe, terminal):
        with redirect_stdout(stream):
            show_verdict(shown)
    pipe.flush()
    assert raw.getvalue().decode("cp1252").splitlines() == [safe(of, encoding="cp1252") for of in verdict_lines(shown)]
    assert "Verdict" in terminal.getvalue()


def test_a_ranking_without_a_verdict_shows_its_notes_alone() -> None:
    ladder = rate_group(ClipGroup("", "x", tuple(RankedClip(name, Path(name), name) for name in ("a.mp4", "b.mp4"))))
    for stream in (io.StringIO(), Terminal()):
        with redirect_stdout(stream):
            show_ladders([ladder], (), run="foxes", judge="j")
        assert stream.getvalue().splitlines() == [
            "judged: 0 of 1 pairs, 0 judgement(s)",
            "not ranked: a.mp4: not judged yet",
            "not ranked: b.mp4: not judged yet",
            "judge: j",
            "run: foxes",
        ]


class Closed(io.StringIO):
    """The pipe of a reader that left."""

    def write(self, s: str, /) -> int:
        raise BrokenPipeError


def events(text: str) -> list[at_work.Event]:
    shown = (FrameRef(0, 8), FrameRef(0, 39), FrameRef(1, 8))
    preparing = [at_work.Loading(HOSTILE), at_work.Waiting(HOSTILE, 2), at_work.RoundBegan(0, 1, shown)]
    reading = [at_work.Encoding(0, 2), at_work.Encoding(2, 2), at_work.Prefill(0, 300), at_work.Prefill(300, 300)]
    writing = [at_work.Wrote(text[i : i + 3]) for i in range(0, len(text), 3)]
    second = [at_work.RoundBegan(1, 1, ()), at_work.RoundEnded(1, 1, "correction")]
    return [*preparing, *reading, *writing, at_work.RoundEnded(0, 1, "tool"), *second]


def live(text: str, on: Console, *, verbose: bool = True) -> str:
    with JudgeView(console=on, verbose=verbose) as watching:
        for event in events(text):
            watching.observe(event)
    return written(on)


@pytest.mark.parametrize("width", [1, 12, 80])
def test_live_view_obeys_nothing(width: int) -> None:
    text = f"<snapshot>{HOSTILE}</snapshot>{HOSTILE}<think>{HOSTILE * 9}\n\n狐{'狐' * 99}</think><b><final ans"
    for colour, verbose in ((False, False), (True, False), (False, True), (True, True)):
        check_harmless(live(text, console(width, colour=colour), verbose=verbose))


def test_a_wait_is_shown_until_something_is_written() -> None:
    wait = at_work.Waiting("the server at http://h:1/v1 (cannot be reached: Connection refused)", 3)
    waited_for = "the server at http://h:1/v1 (cannot be reached: Connection refused), attempt 3"
    on, pipe = console(120), io.StringIO()
    watching = JudgeView(console=on)
    watching.observe(wait)
    on.print(watching._render())
    assert f"waiting for {waited_for}" in written(on)
    with JudgeView(pipe) as plain:
        plain.observe(wait)
    EvaluationView(pipe, total=3).observe(wait)
    RankingView(pipe).observe(wait)
    shown = [f"{counts}waiting for {waited_for}" for counts in ("", "0 of 3, ", "")]
    assert pipe.getvalue().splitlines() == shown


def test_plain_view_is_plain_and_short_and_tells_the_reasoning_if_asked() -> None:
    views = {"plain": io.StringIO(), "verbose": io.StringIO(), "quiet": io.StringIO(), "left": Closed()}
    for of, out in views.items():
        with JudgeView(out, verbose=of == "verbose", quiet=of == "quiet") as watching:
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


@pytest.mark.parametrize("width", [40, 120])
def test_reasoning_stays_in_order_under_headings(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrt_lite.show.screen._REFRESHES_PER_SECOND", 0.01)  # on a busy machine it would show drafts
    thought = " ".join(f"word{i}" for i in range(200))
    out = live(f"<snapshot>Both sharp.</snapshot>\n< Think >{thought}</ think >\n{call(9)}", console(width))
    kept = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    positions = [kept.index(word) for word in ("Snapshot", "Both sharp.", "Reasoning", "word0 ", "Recommends")]
    assert positions == sorted(positions)
    assert "think" not in kept.lower()
    assert re.findall(r"word\d+", kept[kept.rindex("word0 ") :]) == [f"word{i}" for i in range(200)]
    assert "a <b> c < d" in live("<think>a <b> c < d <i ", console(width))
    assert live("<think>狐 …</think>", console(width, encoding="ascii")).isascii()


def test_without_verbose_nothing_stays() -> None:
    out = live(FINAL, console(60), verbose=False)
    _, shown, end = out.rpartition("\x1b[?25h")  # the cursor is shown again
    assert shown
    assert not re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\s", "", end)


def test_the_view_follows_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert Screen(Terminal()).console
    assert not Screen(Terminal(), live=False).console
    assert not Screen(Terminal(), quiet=True).console
    assert not Screen(io.StringIO()).console
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen(Terminal()).console


def test_many_tokens_are_few_screens() -> None:
    on = console(80)
    with JudgeView(console=on) as watching:
        watching.observe(at_work.RoundBegan(0, 1, ()))
        for _ in range(10_000):
            watching.observe(at_work.Wrote(" token"))
    # Far less than one screen a token, and than all of the text.
    assert len(written(on)) < 6 * 10_000


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [20, 60, 120])
def test_progress_fits(width: int, encoding: str) -> None:
    on = console(width, encoding=encoding)
    with EvaluationView(console=on, total=40) as evaluation:
        for label in (1, 2, 0, None):
            evaluation.observe(at_work.Waiting(HOSTILE, 2))
            evaluation.count(failed=label is None, seconds_left=90.0)
            evaluation.observe(at_work.Loading("狐" * 99))
            assert len(on.render_lines(evaluation._render())) == 2, "the words or the bar take more than a line"
            on.print(evaluation._render())
    lines = check_fits(written(on), width, encoding)
    assert any("4 of 40" in line for line in lines)

    on = console(width, encoding=encoding)
    view = JudgeView(console=on)
    view.observe(LONG)
    for event, words in (
        (at_work.Working("decoding frames"), "decoding frames"),
        (at_work.Encoding(0, 8), "encoding frames (0 of 8)"),
        (at_work.Prefill(0, 3741), "reading (0 of 3741 tokens)"),
        (at_work.Working("measuring the clips"), "measuring the clips"),
    ):
        view.observe(event)
        with on.capture() as capture:
            on.print(view._render())
        shown = " ".join(check_fits(capture.get(), width, encoding))
        assert width < 60 or (words in shown and "s of 12 to 48 min" in shown)


def test_a_pipe_is_told_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now, evaluation, judged, ranking = 1000.0, io.StringIO(), io.StringIO(), io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with EvaluationView(evaluation, total=100) as counting:
        for _ in range(52):
            now += 4.0
            counting.count(failed=False, seconds_left=None)
    assert evaluation.getvalue().splitlines() == [f"{done} of 100" for done in (8, 16, 24, 32, 40, 48)]

    clips = tuple(RankedClip(f"{n}.mp4", Path(f"{n}.mp4"), str(n)) for n in range(14))
    judging, ranked = JudgeView(judged), RankingView(ranking)
    ranked.begins([ClipGroup("", "x", clips)], Progress(0, 182), at_work.TimeRange(65_520.0, 262_080.0))
    for event in (LONG, at_work.Working("decoding frames"), at_work.Encoding(0, 8)):
        judging.observe(event)
    for done in range(1, 9):
        now += 10.0
        judging.observe(at_work.Encoding(done, 8))
        ranked.observe(at_work.Prefill(100 * done, 800))
    assert judged.getvalue().splitlines() == [
        "this will take 12 to 48 min here",
        "decoding frames",
        "encoding frames (0 of 8)",
        "encoding frames (3 of 8), 30 s of 12 to 48 min",
        "encoding frames (6 of 8), 60 s of 12 to 48 min",
    ]
    assert ranking.getvalue().splitlines() == [
        "14 clips, at most 182 judgements, 0 of them made before; 6 to 24 min each here, 18 to 73 h in all",
        "0 of 182, reading (300 of 800 tokens), 36 h left",
        "0 of 182, reading (600 of 800 tokens), 36 h left",
    ]
