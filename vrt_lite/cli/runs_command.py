"""The commands about what was judged before. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.compare_command import print_judgement
from vrt_lite.cli.options import (
    FILE_PATH,
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
from vrt_lite.stored_settings import Number

if TYPE_CHECKING:
    from vrt_lite.records.judgement import PlainData
    from vrt_lite.runs.store import Run, RunInfo

STATUS = "Exit status: 0 done, 2 usage, 7 the store is damaged, or cannot be read or written, 130 interrupted."
HEADINGS = ("NAME", "KIND", "LAST USED", "JUDGED", "FAILED", "ABOUT")
_LONGEST = 68


run_argument = click.argument("run", metavar="[RUN]", default="latest")
"""A run's name, the beginning of one, or "latest"."""
_HISTORY_HEADINGS = ("ID", "JUDGED", "VIDEO 1", "VIDEO 2", "RESULT", "JUDGE", "PROMPT")
_ID_CHARACTERS = 8
_PROMPT_CHARACTERS = 40


@click.command(epilog=STATUS)
@store_option
@click.option("--rm", "remove", metavar="RUN", help="Delete a run, and the judgements that no other run has.")
@click.option("--retry", metavar="RUN", help="Forget a run's failures, so that they are judged again.")
@json_option
def runs(*, store: Path | None, remove: str | None, retry: str | None, as_json: bool) -> None:
    """List the runs: rankings, evaluations, and the comparisons of a day by one judge.

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
            from vrt_lite.show.words import show_table  # noqa: PLC0415

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
        if as_json:
            info = next(info for info in opened.runs() if info.name == found.name)
            print_json(_to_json(info) | _read_results(found))
        else:
            _show_results(found, verbose=verbose)


def _read_results(run: Run) -> PlainData:
    from vrt_lite.run_api import read_figures, read_ladders  # noqa: PLC0415
    from vrt_lite.show.pair_words import list_comparisons  # noqa: PLC0415

    if run.kind == "rank":
        return {"ladders": [ladder.to_json() for ladder in read_ladders(run)]}
    if run.kind == "compare":
        return {"comparisons": list(list_comparisons(run))}
    return {"figures": read_figures(run).to_json()}


def _show_results(run: Run, *, verbose: bool) -> None:
    from vrt_lite.run_api import read_figures, read_ladders  # noqa: PLC0415

    judge = str(run.about.get("model", ""))
    if run.kind == "rank":
        from vrt_lite.ranking.rank_run import read_rank_about  # noqa: PLC0415
        from vrt_lite.show.leaderboard import show_conclusions, show_ladders  # noqa: PLC0415

        ladders, about = read_ladders(run), read_rank_about(run)
        show_ladders(ladders, about.left_out, run=run.name, judge=judge, scope=about.scope, verbose=verbose)
        show_conclusions(ladders)
    elif run.kind == "compare":
        from vrt_lite.show.pair_words import show_comparisons  # noqa: PLC0415

        show_comparisons(run, judge=judge)
    else:
        from vrt_lite.show.evaluation_sections import show_figures  # noqa: PLC0415

        show_figures(read_figures(run), judge=judge, run=run.name)


@click.command(epilog=STATUS)
@run_argument
@click.option("-o", "--output", required=True, type=FILE_PATH, help="FILE.csv, FILE.jsonl, or - for JSONL.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@store_option
def export(run: str, *, output: Path, overwrite: bool, store: Path | None) -> None:
    """Write every judgement of RUN to a file, one a line.

    \b
    vrt-lite export foxes -o foxes.csv
    vrt-lite export foxes -o - | head -1

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

    form = output.suffix.lower()
    if form not in (".csv", ".jsonl") and str(output) != "-":
        raise UsageError(f"{output} ends neither in .csv nor in .jsonl: give a name that does.")
    with open_existing_store(store) as opened:
        found = opened.run(run)
        if str(output) == "-":
            # Bytes, so that line ends and the encoding are the same on every system.
            sys.stdout.buffer.writelines(line.encode("utf-8", "backslashreplace") for line in json_lines(found))
            return
        if output.exists() and output.samefile(opened.path):
            raise UsageError(f"{output} is the store itself; write to another file.")
        lines = csv_lines(found) if form == ".csv" else json_lines(found)
        written = _write_lines(output, lines, overwrite=overwrite)
    print_text(f"{written - (form == '.csv')} judgement(s) of {found.name} are in {output}", err=True)


def _to_json(info: RunInfo) -> PlainData:
    return asdict(info) | {name: format_time(getattr(info, name), whole=True) for name in ("created", "updated")}


def _row(info: RunInfo) -> tuple[str, ...]:
    """Return a run's cells. What it is about is not too long: its prompt or prompts, or its labelled set and judge."""
    words = ", ".join(str(info.about[key]) for key in ("title", "split", "model") if info.about.get(key))
    if info.kind == "rank":
        first, *others = info.about.get("prompts") or [""]
        more = f" (and {len(others)} more)" if others else ""
        words = f"{shorten(first, _LONGEST - len(more))}{more}"
    return (info.name, info.kind, format_time(info.updated), str(info.judgements), str(info.failures), words)


def _write_lines(path: Path, lines: Iterable[str], *, overwrite: bool) -> int:
    """Write the whole file or none of it; return the number of lines. UsageError if it cannot be written."""
    if os.path.lexists(path) and not (overwrite and path.is_file()):
        hint = "give another name, or --overwrite" if path.is_file() else "it is no regular file"
        raise UsageError(f"{path} is there already: {hint}.")
    try:
        with draft_of(path) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            return sum(1 for line in lines if file.write(line))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


@click.command(epilog=STATUS)
@click.argument("id", metavar="[ID]", required=False)
@click.option("-n", "count", type=Number(1), default=20, help="List the newest N. [default: 20]")
@click.option("--rm", "remove", is_flag=True, help="Delete the comparison with this ID.")
@store_option
@json_option
def history(*, id: str | None, count: int, remove: bool, store: Path | None, as_json: bool) -> None:  # noqa: A002
    """List what was compared, the newest first, or show the comparison with this ID again.

    \b
    vrt-lite history
    vrt-lite history 3f2a91c0
    vrt-lite history 3f2a91c0 --json > judged.json

    It has what compare and serve have judged. The beginning of an ID is enough if no other begins so. What is deleted
    is judged again when it is asked for, unless a ranking or an evaluation has it too.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    if remove and id is None:
        raise UsageError("--rm deletes one comparison: give its ID. See: vrt-lite history")
    from vrt_lite.runs.history import find_compared, list_history  # noqa: PLC0415
    from vrt_lite.show.pair_words import describe_pair  # noqa: PLC0415
    from vrt_lite.show.words import show_table  # noqa: PLC0415

    with open_existing_store(store) as opened:
        if id is None:
            newest = list_history(opened)[:count]
            entries = [{**describe_pair(run, of), "made": format_time(at, whole=True)} for run, of, at in newest]
            if as_json:
                print_json(entries)
            else:
                show_table(_HISTORY_HEADINGS, [_list_cells(entry) for entry in entries])
            return
        run, pair, made = find_compared(opened, id)
        if remove:
            clips = {pair.first, pair.second}
            every = [of for of in run.results() if {of.first, of.second} == clips and of.prompt == pair.prompt]
            opened.remove_judgements("compare", [result.key for result in every])
            print_text(f"comparison {pair.id[:_ID_CHARACTERS]} is deleted")
        elif (judgement := run.read_pair(pair)) is None:
            raise UsageError(f"Comparison {id!r} has no verdict: {pair.errors[0]}")
        else:
            print_judgement(judgement, as_json=as_json)
            if not as_json:
                print_text(f"judged {format_time(made)}")


def _list_cells(entry: PlainData) -> tuple[str, ...]:
    when = entry["made"][:16].replace("T", " ")
    prompt = shorten(entry["prompt"], _PROMPT_CHARACTERS)
    return (entry["id"][:_ID_CHARACTERS], when, entry["first"], entry["second"], entry["words"], entry["judge"], prompt)
