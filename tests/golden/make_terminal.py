"""Makes the golden pictures of a terminal: what commands print at 80 columns.

    PYTHONPATH=.:tests python tests/golden/make_terminal.py [FILE]

Look at them when they change. All values are made up, so that they are the same on every machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from unittest.mock import patch

import msgspec
from judgements import FINAL, ONE, TIED, TWO, call, judgement, sure, verdict_of, with_odds
from terminals import Terminal

from vrt_lite.cli import run
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.errors import Warned
from vrt_lite.evaluation.compute import compute_figures
from vrt_lite.measures import MEASURES, compare_values
from vrt_lite.protocol.messages import KEYS, Odds
from vrt_lite.protocol.verdict import SkippedOrder
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank_run import ClipGroup
from vrt_lite.records.figures import Figures
from vrt_lite.records.judgement import Judgement
from vrt_lite.records.labelled import EvalAbout, EvalCase
from vrt_lite.records.ladders import ExcludedClip, RankedClip
from vrt_lite.records.pairs import Result
from vrt_lite.show import show_verdict
from vrt_lite.show.evaluation_sections import show_figures
from vrt_lite.show.findings import show_findings
from vrt_lite.show.leaderboard import show_conclusions, show_ladders
from vrt_lite.show.words import show_table

GOLDEN = Path(__file__).parent / "terminal.txt"
WIDTH = 80
LONG = "ComfyUI_wan2.2_fox-in-the-snow_seed-90210377_cfg6.5_steps30_{:05}_.mp4"


def draw_screens(width: int) -> str:
    """Return what the commands print on a terminal of that many columns, each below its name."""
    return "".join(f"$ {name}\n{draw_screen(show, width)}\n" for name, show in SCREENS.items())


def draw_screen(show: Callable[[], object], width: int) -> str:
    """Return what a command prints, without the spaces at the ends of its lines."""
    stream = Terminal()
    with (
        patch.dict(os.environ, COLUMNS=str(width), LINES="40", TERM="dumb"),
        redirect_stdout(stream),
        redirect_stderr(stream),
    ):
        show()
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _verdict() -> Judgement:
    values = ((0.41, 0.22), (2.1, 9.4), (1.0, 1.05), (3.0, 2.5), (0.4, 0.3), (0.0, 0.75), (0.0, None), (0.0, 0.0))
    measures = tuple(compare_values(name, pair) for name, pair in zip(MEASURES, values, strict=True))
    return replace(judgement([call(9, 57), sure()]), measures=measures)


def _tie() -> Judgement:
    mostly, fully = (0.72, 0.18, 0.1), (1.0, 0.0, 0.0)
    words = "<snapshot>S</snapshot><think>T</think><final answer>TA=0, VQ=0, MQ=0, OA=0</final answer>"
    return judgement([with_odds(words, fully, mostly, mostly, mostly)])


def _undecided() -> Judgement:
    warnings = (
        f"Video 1: the clip is under a second long (0.62 s, 15 frames): {LONG.format(1)}",
        "Frames are judged at 112896 pixels, below the 602112 that the judge was trained on.",
    )
    replies = (with_odds(FINAL, TIED, TWO, ONE, odds) for odds in (TWO, (0.1, 0.3, 0.6)))
    return judgement(*([reply] for reply in replies), names=(LONG.format(1), LONG.format(2)), warnings=warnings)


def _result(key: str, first: str, second: str, winner: int, odds: Odds, keys: Sequence[str] = KEYS) -> Result:
    verdict = verdict_of(dict.fromkeys(keys, winner), dict.fromkeys(keys, odds))
    return Result(key, first, second, "A fox runs.", verdict, rounds=2, calls=1, tokens=2321, seconds=1.5)


def _rank(names: list[str]) -> Callable[[], None]:
    """A ranking in which the earlier clip mostly wins, and the two orders of one pair name opposite winners."""
    group = ClipGroup("", "A fox runs.", tuple(RankedClip(name, Path(name), name) for name in names))
    for a, b in permutations(range(len(names)), 2):
        winner = 1 if a < b or (a, b) == (3, 2) else 2
        share = 0.5 + 0.08 * abs(a - b)
        odds: Odds = (0.1, share, 0.9 - share) if winner == 1 else (0.1, 0.9 - share, share)
        group.results[a, b] = _result(f"{a} {b}", names[a], names[b], winner, odds)
    left_out = [ExcludedClip(Path("notes.mp4"), "", "is no video that can be read (Invalid data found)", broken=True)]

    def show() -> None:
        ladders = [rate_group(group)]
        show_ladders(ladders, left_out, run="foxes", judge="vrt-tiny-2")
        show_conclusions(ladders)

    return show


def _figures() -> Figures:
    """Figures of a judge that reads the prompts of every third pair, and never judges motion."""
    why = f"{LONG.format(7)!r} is not there"
    cases = [EvalCase(12, "pair 12", "given", {"OA": 1}, "p", 11, missing=why)]
    results: dict[str, Result] = {}
    warning = Warned("alignment_not_judged", "The judge does not understand this prompt: alignment is not judged.")
    for row in range(12):
        key, winner, label, understood = str(row), (1, 2, 0)[row % 3], (1, 2, 1)[row % 3], row % 3 == 0
        odds: Odds = tuple(0.8 if choice == winner else 0.1 for choice in range(3))  # type: ignore[assignment]
        keys = ("OA", "VQ", "TA") if understood else ("OA", "VQ")
        result = _result(key, f"a{row}", f"b{row}", winner, odds, keys)
        warnings = () if understood else (warning,)
        results[key] = msgspec.structs.replace(result, tokens=2000 + row, seconds=1.0 + row / 10, warnings=warnings)
        labels = {"OA": label, "TA": label, "VQ": 0, "MQ": label}
        case = EvalCase(row, f"pair {row}", "given", labels, f"p{row // 2}", 11, key=key, clip_seconds=2.0 + row)
        cases.insert(row, case)
    about = EvalAbout(
        set="genai-bench",
        title="GenAI-Bench",
        split="test",
        labels={"OA": (9, 4, 0), "TA": (8, 4, 0), "VQ": (0, 0, 12), "MQ": (8, 4, 0)},
        chosen=13,
        left_out={"broken": 1},
        scope="a judge of short prompts",
    )
    return compute_figures(cases, results, about)


AMX = "GCC 12.2 builds AMX kernels that crash with repacked weights: repacking stays off, as by default"
REBUILD = "CC=gcc-13 CXX=g++-13 python -m pip install --force-reinstall --no-cache-dir llama-cpp-python"
UNWRITABLE = "/home/someone/.cache/vrt-lite cannot be written"
FINDINGS = {
    "engine": [
        Finding("engine", "ok", "llama-cpp-python 0.3.36, built by GCC 12.2; back ends: cpu"),
        Finding("amx", "note", AMX, REBUILD),
    ],
    "files": [Finding("home", "problem", UNWRITABLE, "chmod u+w ~/.cache/vrt-lite")],
}
RUNS = """
NAME                 | KIND | LAST USED   | JUDGED | FAILED | PROMPT
foxes-1f3a           | rank | 11-23 00:10 | 30     | 0      | A red fox runs through the deep snow at dawn.
genai-bench-test-77c0| eval | 11-22 21:44 | 1234   | 2      |
"""
MODELS = """
NAME          | STATE         | QUANT | ON DISK  | MEMORY   | VERIFIED | LICENCE
vrt-tiny-2    | bundled       | Q8_0  | 4.2 MB   | ~0.2 GB  | yes      | MIT
qwen2.5-vl-3b | can be pulled | Q8_0  | ~4.62 GB | ~6.1 GB  | no       | Qwen Research (non-commercial)
vr-thinker-7b | can be pulled | Q8_0  | ~9.45 GB | ~11.9 GB | no       | MIT
"""
QUANTS = """
QUANT  | FETCHED  | STAYS   | DISK AT MOST | PIXELS | KV   | MEMORY  | GPU     | ON THE GPU            | FITS
q8_0   | 16.60 GB | 9.45 GB | 19.45 GB     | 602112 | q8_0 | 3.10 GB | 7.62 GB | 27 of 29 layers       | yes
q4_k_m | 16.60 GB | 6.03 GB | 16.03 GB     | 602112 | f16  | 1.20 GB | 7.90 GB | all layers, projector | no: disk
"""
TUNED = """
SETTING   | VALUE | FRAME PAIR | READS        | WRITES      | SPEED |
defaults  | -     | 0.031 s    | 4960.2 tok/s | 310.4 tok/s | 1.00  | measured
repacking | on    | -          | -            | -           | -     | refused (the engine ended with signal 11)
threads   | 2     | 0.021 s    | 7391.0 tok/s | 322.9 tok/s | 1.31  | taken
"""


def _show(judgement: Judgement) -> Callable[[], None]:
    return lambda: show_verdict(judgement)


def _table(text: str) -> Callable[[], None]:
    heading, *rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return lambda: show_table(heading, rows)


SKIPPED = replace(judgement([sure()]), skipped_order=SkippedOrder(0.93, 0.9))
EVALUATED = {"judge": "vr-thinker-7b", "run": "genai-bench-test"}
MISSING = "a judgement of two foxes in the snow that nobody has kept.json"
SCREENS: dict[str, Callable[[], object]] = {
    "vrt-lite compare a.mp4 b.mp4": _show(_verdict()),
    "vrt-lite compare a.mp4 b.mp4  (a tie)": _show(_tie()),
    "vrt-lite compare … --orders both  (undecided, long names)": _show(_undecided()),
    "vrt-lite compare … --orders auto": _show(SKIPPED),
    "vrt-lite rank renders/": _rank(["maple.mp4", "cedar.mp4", "aspen.mp4", "birch.mp4", "alder.mp4"]),
    "vrt-lite rank renders/  (long names)": _rank([LONG.format(number) for number in range(5)]),
    "vrt-lite eval genai-bench": lambda: show_figures(_figures(), **EVALUATED),
    "vrt-lite runs": _table(RUNS),
    "vrt-lite models": _table(MODELS),
    "vrt-lite estimate vr-thinker-7b --vram 8": _table(QUANTS),
    "vrt-lite tune": _table(TUNED),
    "vrt-lite doctor": lambda: show_findings(FINDINGS),
    "vrt-lite compare a.mp4": lambda: run(["compare", "a.mp4"]),
    f"vrt-lite report '{MISSING}'": lambda: run(["report", MISSING]),
}

if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    file.write_text(draw_screens(WIDTH), encoding="utf-8", newline="\n")
