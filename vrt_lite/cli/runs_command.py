"""The commands about what was judged before. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from vrt_lite.cli.options import (
    PATH,
    format_time,
    json_option,
    open_existing_store,
    print_json,
    print_text,
    shorten,
    store_option,
)
from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.runs.export import Format
    from vrt_lite.runs.store import Run, RunInfo

STATUS = "Exit status: 0 done, 2 usage, 7 the store is damaged, or cannot be read or written, 130 interrupted."
HEADINGS = ("NAME", "KIND", "LAST USED", "JUDGED", "FAILED", "ABOUT")
_LONGEST = 68
_FORMATS: Final[dict[str, Format]] = {".csv": "csv", ".jsonl": "jsonl"}


run_argument = click.argument("run", metavar="[RUN]", default="latest")
"""A run's name, the beginning of one, or "latest"."""


@click.command(epilog=STATUS)
@store_option
@click.option("--rm", "remove", metavar="RUN", help="Delete a run, and the judgements that no other run has.")
@click.option("--retry", metavar="RUN", help="Forget a run's failures, so that they are judged again.")
@json_option
def runs(*, store: Path | None, remove: str | None, retry: str | None, as_json: bool) -> None:
    """List the runs of rank, eval and serve.

    An interrupted run continues when its command is given again. FAILED counts judgements without a verdict. Wherever a
    RUN is named, the beginning of its name is enough if no other begins so, and "latest" is the one last used.
    """
    if remove is not None and retry is not None:
        raise UsageError("Give --rm or --retry, not both.")
    with open_existing_store(store) as opened:
        if remove is not None:
            name = opened.find_name(remove)
            print_text(f"{name} is deleted, with {opened.remove(name)} judgement(s) that no other run has")
        elif retry is not None:
            name = opened.find_name(retry)
            print_text(f"{opened.forget_failures(name)} failure(s) of {name} are forgotten; give its command again")
        elif as_json:
            print_json([_to_json(info) for info in opened.runs()])
        else:
            from vrt_lite.show.table import show_table  # noqa: PLC0415

            show_table(HEADINGS, [_row(info) for info in opened.runs()])


@click.command(epilog=STATUS)
@run_argument
@store_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="All notes below a leaderboard.")
def show(run: str, *, store: Path | None, as_json: bool, verbose: bool) -> None:
    """Show the results of RUN: leaderboard, figures or comparisons.

    Judges nothing. RUN is a name (see: vrt-lite runs), the beginning of one, or latest, which is the default.
    """
    with open_existing_store(store) as opened:
        found = opened.run(run)
        info = next(info for info in opened.runs() if info.name == found.name)
        shown = {"rank": _show_ranking, "compare": _show_comparisons}.get(found.kind, _show_evaluation)
        result = shown(found, as_json=as_json, verbose=verbose)
        if as_json:
            print_json(_to_json(info) | result)


def _show_ranking(run: Run, *, as_json: bool, verbose: bool) -> dict[str, Any]:
    from vrt_lite.ranking.rank_run import read_rank_about  # noqa: PLC0415
    from vrt_lite.run_api import read_ladders  # noqa: PLC0415
    from vrt_lite.show.leaderboard import show_conclusions, show_ladders  # noqa: PLC0415

    ladders, about = read_ladders(run), read_rank_about(run)
    if as_json:
        return {"ladders": [ladder.to_json() for ladder in ladders]}
    show_ladders(ladders, about.left_out, run=run.name, judge=about.model, scope=about.scope, verbose=verbose)
    show_conclusions(ladders)
    return {}


def _show_comparisons(run: Run, *, as_json: bool, verbose: bool) -> dict[str, Any]:
    from vrt_lite.show.pair_words import list_comparisons, show_comparisons  # noqa: PLC0415

    if as_json:
        return {"comparisons": list(list_comparisons(run))}
    show_comparisons(run, judge=str(run.about.get("model", "")))
    return {}


def _show_evaluation(run: Run, *, as_json: bool, verbose: bool) -> dict[str, Any]:
    from vrt_lite.evaluation.cases import read_eval_about  # noqa: PLC0415
    from vrt_lite.run_api import read_figures  # noqa: PLC0415
    from vrt_lite.show.evaluation_sections import show_figures  # noqa: PLC0415

    figures = read_figures(run)
    if as_json:
        return {"figures": figures.to_json()}
    show_figures(figures, judge=read_eval_about(run).model, run=run.name)
    return {}


@click.command(epilog=STATUS)
@run_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    type=PATH,
    help="Where to: FILE.csv, FILE.jsonl, or - for stdout.",
)
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the file's ending]")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@store_option
def export(run: str, *, output: Path, form: Format | None, overwrite: bool, store: Path | None) -> None:
    """Write every judgement of RUN to a file, one a line.

    \b
    vrt-lite export foxes -o foxes.csv
    vrt-lite export foxes -o - --format jsonl | head -1

    CSV has these columns:

    \b
    number; first, second: shown as video 1 and 2; prompt
    TA, VQ, MQ, OA: 1, 2, or 0 for a tie
    "TA tie", "TA 1", "TA 2" and so on: the probabilities
    "TA both orders" and so on: 1, 2, tie, or undecided and
        the way it leans; empty without the other order
    source, rounds, calls, tokens, seconds
    error, if there was no verdict; its kind; warnings
    the clips' sha256; the key
    what was chosen for the memory: pixels a frame and a
        requested frame, KV type
    in which of TA, VQ, MQ and OA the two orders disagree
    of an evaluation: the rows of its table that list the
        pair, and their labels, about first and second

    A text that a spreadsheet would take for a formula begins with an apostrophe. JSONL has the same, and the whole
    judgement.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.runs.export import csv_lines, json_lines  # noqa: PLC0415
    from vrt_lite.show import safe  # noqa: PLC0415

    form = form or _FORMATS.get(output.suffix.lower())
    if form is None:
        raise UsageError(f"{output} ends neither in .csv nor in .jsonl: give --format csv or --format jsonl.")
    with open_existing_store(store) as opened:
        found, to_stdout = opened.run(run), str(output) == "-"
        shown = safe if to_stdout and sys.stdout.isatty() else str
        lines = csv_lines(found, shown=shown) if form == "csv" else json_lines(found)
        if to_stdout:
            # Bytes, so that line ends and the encoding are the same on every system.
            for line in lines:
                sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace"))
            sys.stdout.buffer.flush()
            return
        if output.exists() and output.samefile(opened.path):
            raise UsageError(f"{output} is the store itself; write to another file.")
        written = _write_lines(output, lines, overwrite=overwrite)
    print_text(f"{written - (form == 'csv')} judgement(s) of {found.name} are in {output}", err=True)


def _to_json(info: RunInfo) -> dict[str, Any]:
    return asdict(info) | {name: format_time(getattr(info, name), whole=True) for name in ("created", "updated")}


def _row(info: RunInfo) -> tuple[str, ...]:
    """Return a run's cells. What it is about is not too long: its prompt or prompts, or its labelled set and judge."""
    about = info.about
    words = ", ".join(str(about[key]) for key in ("title", "split", "model") if about.get(key))
    if info.kind == "rank":
        prompts = [about["prompt"]] if isinstance(about.get("prompt"), str) else about.get("prompts") or [""]
        more = f" (and {len(prompts) - 1} more)" if len(prompts) > 1 else ""
        words = f"{shorten(str(prompts[0]), _LONGEST - len(more))}{more}"
    return (info.name, info.kind, format_time(info.updated), str(info.judgements), str(info.failures), words)


def _write_lines(path: Path, lines: Iterable[str], *, overwrite: bool) -> int:
    """Write the whole file or none of it; return the number of lines. UsageError if it cannot be written."""
    if os.path.lexists(path) and not (overwrite and path.is_file()):
        hint = "give another name, or --overwrite" if path.is_file() else "it is no regular file"
        raise UsageError(f"{path} is there already: {hint}.")
    count = 0
    try:
        with draft_of(path) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            for line in lines:
                file.write(line)
                count += 1
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error
    return count
