"""What is printed fits any width, and no word is broken: golden pictures, and the commands themselves."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from click.testing import CliRunner
from golden.make_terminal import GOLDEN, SCREENS, WIDTH, draw_screen, draw_screens
from rich.cells import cell_len
from terminals import Terminal

from vrt_lite.cli import _COMMANDS, cli, run
from vrt_lite.show.words import cut_middle, cut_words, print_lines, show_table, wrap_line

DRAWN = re.compile(r"[█▒━─│╭╮╰╯]+")
FIGURE = re.compile(r"[~(]*[\d.,:%)-]+")
COMMANDS = (
    ["cache"],
    ["runs"],
    ["estimate", "vrt-tiny-2"],
    ["estimate", "vr-thinker-7b", "--memory", "16"],
    ["compare", "renders/a-clip-that-is-nowhere.mp4", "b.mp4", "-m", "vrt-tiny-0", "-q"],
    ["show", "a run of that name"],
    ["compare", "a.mp4", "b.mp4", "--model", "some-model-that-nobody-has-here"],
    ["report", "a judgement that is nowhere.json"],
    ["rank", "renders", "--stop-at", "7"],
)


def words_of(shown: str) -> set[str]:
    """The words of a screen: not figures, which another moment changes, nor what is drawn."""
    return {word for word in DRAWN.sub(" ", shown).lower().replace(":", " ").split() if not FIGURE.fullmatch(word)}


def check_screen(show: Callable[[], object], *widths: int) -> None:
    """Each line fits, but for a command to copy and for a word that is longer than a line, which the terminal folds.

    Each word is whole, or has lost its middle.
    """
    whole = words_of(draw_screen(show, 1000))
    for width in widths:
        shown = draw_screen(show, width)
        for line in shown.splitlines():
            assert cell_len(line) <= width or "next: " in line or len(line.split()) == 1, line
        for word in words_of(shown) - whole:
            start, cut, end = word.partition("…")
            assert cut, f"{word!r} is a part of a word"
            assert any(of.startswith(start) and of.endswith(end) for of in whole), word


def test_screens_are_the_golden_ones() -> None:
    golden = GOLDEN.read_text(encoding="utf-8")
    assert draw_screens(WIDTH) == golden, "look at what python tests/golden/make_terminal.py makes of it"


@pytest.mark.parametrize("name", SCREENS)
def test_screens_fit_and_break_no_word(name: str) -> None:
    check_screen(SCREENS[name], 40, 60, 80, 120)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_fit_and_break_no_word(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_screen(lambda: run(command), 60)


@pytest.mark.parametrize("name", ["", *_COMMANDS])
def test_help_fits(name: str) -> None:
    for width in (60, 80):
        shown = CliRunner().invoke(cli, [*filter(None, [name]), "--help"], terminal_width=width).output
        too_long = [line for line in shown.splitlines() if len(line) > width]
        # Below 80 columns a command to copy stays on its line.
        assert all(width < 80 and {"vrt-lite", "curl"} & set(line.split()) for line in too_long)


def test_a_command_to_copy_stays_on_one_line_where_it_fits() -> None:
    line = "To try again: vrt-lite runs --retry foxes, and then the same command."
    assert wrap_line(line, 40) == ["To try again:", "  vrt-lite runs --retry foxes, and then", "  the same command."]
    assert wrap_line(f"See: vrt-lite show {'x ' * 20}", 30)[0].startswith("See: vrt-lite show x")
    assert wrap_line("  one two three four five six", 22) == ["  one two three four", "    five six"]


def test_a_name_keeps_its_beginning_and_its_end() -> None:
    assert cut_middle("short.mp4", 9) == "short.mp4"
    assert cut_middle("fox_seed_1234.mp4", 12) == "fox…1234.mp4"
    assert cut_middle("fox_seed_1234.mp4", 12, ellipsis="...") == "fox...34.mp4"
    assert cell_len(cut_middle("狐が雪の中を走る_42.mp4", 12)) <= 12
    assert cut_words("see fox_seed_1234.mp4 there", 12) == "see fox…1234.mp4 there"


def test_a_pipe_gets_lines_unbroken() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        with redirect_stdout(stream):
            print_lines(["word " * 40])
    assert pipe.getvalue().count("\n") == 1
    assert terminal.getvalue().count("\n") > 1


def test_a_table_that_is_too_wide_becomes_a_list() -> None:
    rows = [("one-name-of-a-model", "12 GB", "note")]
    shown = draw_screen(lambda: show_table(("NAME", "SIZE", ""), rows), 24)
    assert shown == "one-name-of-a-model\n  size 12 GB\n  note\n"
