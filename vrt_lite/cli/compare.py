"""The main command: judge two clips. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import judging, open_judge_of, prompt_of, prompted, settings_of
from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from vrt_lite.backends.settings import Remote
    from vrt_lite.judgement import Judgement

STATUS = """\b
Exit status: 0 a verdict, 2 usage, 3 bad video, 4 model missing, corrupt or mismatched,
5 out of memory, 6 no verdict from the model, 8 back end's server failed, 130 interrupted."""


@click.command(epilog=STATUS)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@prompted
@judging
@click.option("--both-orders", is_flag=True, help="Judge twice, exchanged, and average; opposite winners: undecided.")
@click.option("--json", "as_json", is_flag=True, help="Print the judgement as JSON.")
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a JSON line a round, as it happens.",
)
@click.option("--sheet", metavar="FILE.png", type=click.Path(path_type=Path), help="Draw the frames the judge saw.")
@click.option("-q", "--quiet", is_flag=True, help="Only the verdict.")
@click.option("-v", "--verbose", count=True, help="-v shows the reasoning, -vv the engine's log.")
def compare(
    a: str,
    b: str,
    *,
    prompt: str | None,
    prompt_file: Path | None,
    model: str | None,
    projector: Path | None,
    backend: Remote | None,
    as_json: bool,
    trace: Path | None,
    sheet: Path | None,
    quiet: bool,
    verbose: int,
    **options: Any,
) -> None:
    """Judge two clips, A and B, made from one prompt.

    \b
    vrt-lite compare a.mp4 b.mp4 --prompt "A fox runs through snow."
    vrt-lite compare a.mp4 b.mp4 --model ./vr-thinker-7b --both-orders --json
    vrt-lite compare a.mp4 b.mp4 --backend http://127.0.0.1:8000/v1

    A file name that begins with "-" is given as ./-name.mp4. Nothing is ever fetched from the network; with --backend
    frames and prompt go to that server, and --model names the profile alone. A key is read from VRT_LITE_API_KEY, else
    OPENAI_API_KEY.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    caption = prompt_of(prompt, prompt_file)
    for output in (trace, sheet):
        _refuse_inputs(output, (a, b))
    settings = settings_of(options)

    from vrt_lite import display  # noqa: PLC0415

    with (
        open_judge_of(model, projector, backend, settings, verbose > 1, quiet=quiet or as_json) as judge,
        display.view(quiet=quiet or as_json, verbose=verbose > 0, live=verbose < 2) as view,
    ):
        judgement = judge.compare(a, b, prompt=caption, trace=trace, sheet=sheet, observe=view.observe)
    _print(judgement, as_json=as_json)


def _print(judgement: Judgement, *, as_json: bool) -> None:
    from vrt_lite import display  # noqa: PLC0415

    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(judgement.to_json(), indent=2))
    else:
        display.show_verdict(judgement)


def _refuse_inputs(output: Path | None, inputs: Sequence[str]) -> None:
    """An output must not replace a clip."""
    if output and any(_same_file(output, Path(path)) for path in inputs):
        raise UsageError(f"{output} is one of the clips; write to another file.")


def _same_file(a: Path, b: Path) -> bool:
    try:
        return a.exists() and b.exists() and a.samefile(b)
    except (OSError, ValueError):
        return False
