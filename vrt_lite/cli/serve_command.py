"""The command that starts the server. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from vrt_lite.advice import install_extra
from vrt_lite.cli.options import jobs_option, judge_options, print_text, store_option, take_judge
from vrt_lite.errors import UsageError
from vrt_lite.stored_settings import Number

STATUS = "Exit status: 2 usage, 4 model missing, corrupt or mismatched, 7 the store cannot be used, 130 interrupted."


@click.command(epilog=STATUS)
@click.option("--port", type=Number(0, 65535), default=8765, help="0 takes a free one. [default: 8765]")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    help="Any other than loopback needs the token. [default: 127.0.0.1]",
)
@click.option(
    "--host-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A name by which a reverse proxy serves this; repeat it for more. Needs the token.",
)
@click.option(
    "--allow",
    "folders",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Clips in this folder may be used and played; repeat it for more. Uploads always may.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
@store_option
@jobs_option
@judge_options
def serve(*, names: tuple[str, ...], **options: Any) -> None:
    """Serve pages and an API to compare, rank and vote.

    \b
    vrt-lite serve --open
    vrt-lite serve --allow renders --model vr-thinker-7b
    curl 127.0.0.1:8765/v1/compare -F a=@a.mp4 -F b=@b.mp4 -F prompt="A fox."

    What is judged is kept in the same store as that of rank. On another address than loopback every request needs a
    token, which is printed, or is taken from VRT_LITE_TOKEN. The API is described at /docs.

    Behind a reverse proxy give the proxy's name: --host-name judge.example.org. The proxy must pass on the Host. The
    token is asked for there too. docs/serve.md has a proxy's settings.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    judge = take_judge(options)
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9.-]{1,253}", name):
            raise UsageError(f"--host-name {name[:80]} is no name: give it without https:// and without a port.")
    try:
        from vrt_lite.web.server import run_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise UsageError(f"vrt-lite serve needs {package}: {install_extra('web')}") from error
    from vrt_lite.modes import WantedJudge  # noqa: PLC0415

    run_server(
        WantedJudge(judge.model, judge.projector, judge.settings, judge.backend, jobs=judge.choose_jobs()),
        names=names,
        say=print_text,
        **options,
    )
