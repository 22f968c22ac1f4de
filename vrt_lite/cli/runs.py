"""The commands about what was judged before. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.runs.export import Format
    from vrt_lite.runs.store import Run, RunInfo, Store

STATUS = "Exit status: 0 done, 2 usage, 7 the store is damaged, or cannot be read or written, 130 interrupted."
HEADINGS = ("NAME", "KIND", "LAST USED", "JUDGED", "FAILED", "PROMPT")
_LONGEST_PROMPT = 48
_STORE = click.option(
    "--store", metavar="FILE", type=click.Path(path_type=Path), help="The store of runs. [default: the user's]"
)


@click.command(epilog=STATUS)
@_STORE
@click.option("--rm", "remove", metavar="NAME", help="Delete a run, and the judgements that no other run has.")
@click.option("--retry", metavar="NAME", help="Forget a run's failures, so that they are judged again.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def runs(*, store: Path | None, remove: str | None, retry: str | None, as_json: bool) -> None:
    """List what was judged: the runs of rank and eval, the last used first.

    A run that was cut short goes on when its command is given again. FAILED counts judgements without a verdict.
    """
    if remove is not None and retry is not None:
        raise UsageError("Give --rm or --retry, not both.")
    from vrt_lite.display import safe  # noqa: PLC0415

    with _opened(store) as opened:
        if remove is not None:
            deleted = opened.remove(remove)
            click.echo(safe(f"{remove} is deleted, with {deleted} judgement(s) that no other run has"))
        elif retry is not None:
            forgotten = opened.forget_failures(retry)
            click.echo(safe(f"{forgotten} failure(s) of {retry} are forgotten; give its command again"))
        elif as_json:
            _echo_json([_info(info) for info in opened.runs()])
        else:
            from vrt_lite.display.table import show_table  # noqa: PLC0415

            show_table(HEADINGS, [_row(info) for info in opened.runs()])


@click.command(epilog=STATUS)
@click.argument("run", metavar="RUN")
@_STORE
@click.option("--json", "as_json", is_flag=True, help="Print what the run says of itself as JSON.")
def show(run: str, *, store: Path | None, as_json: bool) -> None:
    """Show what came of RUN: the leaderboard of a ranking, the figures of an evaluation.

    Judges nothing. The names of runs: vrt-lite runs
    """
    with _opened(store) as opened:
        found = opened.run(run)
        if as_json:
            [info] = [info for info in opened.runs() if info.name == found.name]
            _echo_json(_info(info))
        elif found.kind == "rank":
            from vrt_lite import ranking  # noqa: PLC0415

            ranking.show(found, sys.stdout)
        elif found.kind == "eval":
            from vrt_lite import evaluation  # noqa: PLC0415

            evaluation.show(found, sys.stdout)
        else:
            _show_results(found)


@click.command(epilog=STATUS)
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="Where to: FILE.csv, FILE.jsonl, or - for stdout.",
)
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the file's ending]")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@_STORE
def export(run: str, *, output: Path, form: Format | None, overwrite: bool, store: Path | None) -> None:
    """Write every judgement of RUN to a file, one a line, in the order made.

    \b
    vrt-lite export foxes -o foxes.csv
    vrt-lite export foxes -o - --format jsonl | head -1

    CSV: number; first and second (shown as video 1 and video 2); prompt; TA, VQ, MQ and OA (1, 2, or 0 for a tie);
    "TA tie", "TA 1", "TA 2" and so on, the probabilities; "TA both orders" and so on, what both orders of the pair come
    to (1, 2, tie, or undecided, and which way it leans; empty without the other order); source, rounds, calls, tokens,
    seconds; error, if there was no verdict; the clips' sha256; the key. A text that a spreadsheet would take for a
    formula begins with an apostrophe. JSONL: the same, and the whole judgement.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    form = form or _format_of(output)
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.runs.export import csv_lines, json_lines  # noqa: PLC0415

    with _opened(store) as opened:
        found = opened.run(run)
        if str(output) == "-":
            shown = safe if sys.stdout.isatty() else str
            with _stdout() as file:
                file.writelines(csv_lines(found, shown=shown) if form == "csv" else json_lines(found))
            return
        lines = csv_lines(found) if form == "csv" else json_lines(found)
        if output.exists() and output.samefile(opened.path):
            raise UsageError(f"{output} is the store itself; write to another file.")
        written = _write(output, lines, overwrite=overwrite)
    click.echo(safe(f"{written - (form == 'csv')} judgement(s) of {run} are in {output}"), err=True)


def _opened(store: Path | None) -> Store:
    """The store, which must be there if it was named."""
    from vrt_lite.runs.store import Store  # noqa: PLC0415

    if store is not None and not os.path.lexists(store):
        raise UsageError(f"There is no store {store}. Give the --store that rank or eval was given.")
    return Store(store)


def _info(info: RunInfo) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415

    return {**asdict(info), "created": _time(info.created, whole=True), "updated": _time(info.updated, whole=True)}


def _row(info: RunInfo) -> tuple[str, ...]:
    counts = (str(info.judgements), str(info.failures))
    return (info.name, info.kind, _time(info.updated), *counts, _shortened(_prompt(info)))


def _prompt(info: RunInfo) -> str:
    """What a run's clips were made from, as far as it says so."""
    prompt, prompts = info.about.get("prompt"), info.about.get("prompts")
    if isinstance(prompt, str):
        return prompt
    texts = cast("list[Any]", prompts) if isinstance(prompts, list) else []
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return f"{_shortened(str(texts[0]))}{more}" if texts else ""


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_PROMPT + 20 else f"{line[:_LONGEST_PROMPT]}…"


def _time(seconds: float, *, whole: bool = False) -> str:
    """A moment in this place's time, to the minute; or ISO 8601 with its offset."""
    from datetime import datetime  # noqa: PLC0415

    moment = datetime.fromtimestamp(seconds).astimezone()
    return moment.isoformat(timespec="seconds") if whole else f"{moment:%Y-%m-%d %H:%M}"


def _show_results(run: Run) -> None:
    """What there is to say of any run."""
    from vrt_lite.display.table import show_table  # noqa: PLC0415
    from vrt_lite.runs.export import names_of  # noqa: PLC0415

    names = names_of(run)
    rows = [
        (
            names.get(result.first) or result.first[:12],
            names.get(result.second) or result.second[:12],
            str(result.winners.get("OA", "-")),
            str(result.rounds),
            f"{result.seconds:.1f}",
            result.error,
        )
        for result in run.results()
    ]
    show_table(("FIRST", "SECOND", "OVERALL", "ROUNDS", "SECONDS", "ERROR"), rows)


def _echo_json(value: object) -> None:
    import json  # noqa: PLC0415

    click.echo(json.dumps(value, indent=2))


def _format_of(output: Path) -> Format:
    match output.suffix.lower():
        case ".csv":
            return "csv"
        case ".jsonl":
            return "jsonl"
        case _:
            raise UsageError(f"{output} ends neither in .csv nor in .jsonl: give --format csv or --format jsonl.")


@contextlib.contextmanager
def _stdout() -> Generator[TextIO]:
    """Stdout as UTF-8 whose line ends are left alone, whatever the system's own would be."""
    import io  # noqa: PLC0415

    sys.stdout.flush()
    file = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="")
    try:
        yield file
        file.flush()
    finally:
        file.detach()


def _write(path: Path, lines: Iterable[str], *, overwrite: bool) -> int:
    """Write a file that is there whole or not at all; how many lines. UsageError if it is there, or cannot be."""
    if os.path.lexists(path) and not (overwrite and path.is_file()):
        hint = "give another name, or --overwrite" if path.is_file() else "it is no regular file"
        raise UsageError(f"{path} is there already: {hint}.")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    count = 0
    try:
        with part.open("x", encoding="utf-8", errors="backslashreplace", newline="") as file:
            for line in lines:
                file.write(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return count
