"""The command that lists what was compared. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vrt_lite.cli.compare_command import print_judgement
from vrt_lite.cli.options import (
    format_time,
    json_option,
    open_existing_store,
    print_json,
    print_text,
    shorten,
    store_option,
)
from vrt_lite.cli.runs_command import STATUS
from vrt_lite.errors import UsageError
from vrt_lite.stored_settings import Number

_HEADINGS = ("ID", "JUDGED", "VIDEO 1", "VIDEO 2", "RESULT", "JUDGE", "PROMPT")
_ID_CHARACTERS = 8
_PROMPT_CHARACTERS = 40


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
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    with open_existing_store(store) as opened:
        if id is None:
            newest = list_history(opened)[:count]
            entries = [{**describe_pair(run, of), "made": format_time(at, whole=True)} for run, of, at in newest]
            if as_json:
                print_json(entries)
            else:
                show_table(_HEADINGS, [_list_cells(entry) for entry in entries])
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


def _list_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    when = entry["made"][:16].replace("T", " ")
    prompt = shorten(entry["prompt"], _PROMPT_CHARACTERS)
    return (entry["id"][:_ID_CHARACTERS], when, entry["first"], entry["second"], entry["words"], entry["judge"], prompt)
