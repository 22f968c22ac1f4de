"""The command that lists what was compared. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import json_option, open_existing_store, print_json, print_text, store_option
from vrt_lite.cli.runs_command import STATUS, format_time
from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.records.pairs import JudgedPair
    from vrt_lite.runs.run import Run

_HEADINGS = ("ID", "JUDGED", "CLIPS", "RESULT", "JUDGE", "PROMPT")
_ID_CHARACTERS = 8
_PROMPT_CHARACTERS = 40


@click.command(epilog=STATUS)
@click.argument("id", metavar="[ID]", required=False)
@click.option("-n", "count", metavar="N", type=click.IntRange(1), default=20, help="List the newest N. [default: 20]")
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
    from vrt_lite.runs.history import find_compared, id_of, list_history  # noqa: PLC0415
    from vrt_lite.show import show_verdict  # noqa: PLC0415
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    with open_existing_store(store) as opened:
        if id is None:
            entries = [_describe(*entry) for entry in list_history(opened)[:count]]
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
            print_text(f"comparison {id_of(pair)[:_ID_CHARACTERS]} is deleted")
        elif (judgement := run.read_pair(pair)) is None:
            raise UsageError(f"Comparison {id!r} has no verdict: {pair.errors[0]}")
        elif as_json:
            print_json(judgement.to_json())
        else:
            show_verdict(judgement)
            print_text(f"judged {format_time(made)}")


def _describe(run: Run, pair: JudgedPair, made: float) -> dict[str, Any]:
    """Describe a comparison as plain data: `result` says it in words, `overall` is null without a verdict."""
    from vrt_lite.show.words import write_headline  # noqa: PLC0415

    judgement = run.read_pair(pair)
    named = (judgement.inputs[0].name, judgement.inputs[1].name) if judgement else (pair.first[:12], pair.second[:12])
    return {
        "id": pair.results[0].key,
        "made": format_time(made, whole=True),
        "clips": [clip.path for clip in judgement.inputs] if judgement else [None, None],
        "sha256": [pair.first, pair.second],
        "prompt": pair.prompt,
        "overall": judgement and judgement.to_json()["verdict"]["overall"],
        "result": write_headline(judgement.verdict, named) if judgement else f"No verdict: {pair.errors[0]}",
        "judge": judgement.model.name if judgement else str(run.about.get("model", "")),
        "orders": len(judgement.orders) if judgement else 0,
        "run": run.name,
    }


def _list_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    when = entry["made"][:16].replace("T", " ")
    names = " and ".join(Path(clip).name if clip else "?" for clip in entry["clips"])
    prompt = " ".join(entry["prompt"].split())
    shown = prompt if len(prompt) <= _PROMPT_CHARACTERS else f"{prompt[: _PROMPT_CHARACTERS - 1]}…"
    return (entry["id"][:_ID_CHARACTERS], when, names, entry["result"], entry["judge"], shown)
