"""The command that says what judging would take here. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import Auto, say_choice
from vrt_lite.errors import OutOfMemoryError

if TYPE_CHECKING:
    from vrt_lite.fitting.fit import Plan, Room
    from vrt_lite.models.files import ModelFiles

STATUS = "Exit status: 0 it fits, 2 usage, 4 model missing, corrupt or mismatched, 5 it does not fit, 130 interrupted."


@click.command(epilog=STATUS)
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF.")
@click.option("--workspace", metavar="N", type=int, help="Frames a video that the judge may ask for.")
@click.option("--first-frames", metavar="N", type=int, help="Frames a video shown first.")
@click.option("--window", metavar="P", type=int, help="Rounds for which asked-for frames stay visible.")
@click.option("--rounds", metavar="N", type=int, help="Rounds at most.")
@click.option("--max-pixels", metavar="N", type=int, help="Pixels a frame at most. [default: the model's, if it fits]")
@click.option("--tool-max-pixels", metavar="N", type=int, help="The same for asked-for frames alone.")
@click.option("--ctx", metavar="AUTO|N", type=Auto(256), help="Context in tokens. [default: auto]")
@click.option("--gpu-layers", metavar="AUTO|N", type=Auto(0), help="Layers on the GPU. [default: auto]")
@click.option("--kv-type", type=click.Choice(["f16", "q8_0"]), help="Keys and values. [default: f16 if it fits]")
@click.option("--repack/--no-repack", default=None, help="A second copy of the weights. [default: as tuned, or none]")
@click.option("--memory", "memory_gb", metavar="GB", type=click.FloatRange(0), help="As on a machine with so much.")
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON.")
def estimate(
    model: str | None,
    *,
    projector: Path | None,
    repack: bool | None,
    memory_gb: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say how much memory judging with MODEL takes, before anything is loaded.

    \b
    vrt-lite estimate
    vrt-lite estimate qwen2.5-vl-7b --max-pixels 100352
    vrt-lite estimate ./vr-thinker-7b --memory 8

    Reads the two files' headers alone. What is not set is chosen as compare chooses it: first what is best, then what
    fits. The frames are taken to be as large as they may be, and all rounds to be used.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite import backends  # noqa: PLC0415
    from vrt_lite.fitting.fit import GB, Room  # noqa: PLC0415
    from vrt_lite.fitting.planning import planned  # noqa: PLC0415
    from vrt_lite.fitting.tuning import with_projector  # noqa: PLC0415
    from vrt_lite.models.files import find  # noqa: PLC0415
    from vrt_lite.settings import Settings  # noqa: PLC0415

    memory = None if memory_gb is None else int(memory_gb * GB)
    files = with_projector(find(model, projector=projector, memory_bytes=memory), backends.this_machine)
    room = backends.this_room()
    if memory is not None:
        room = Room(memory, memory, room.gpus)
    settings = Settings(**options)
    try:
        plan, engine = planned(files, settings, repack=repack, room=room)
        refusal = ""
    except OutOfMemoryError as error:
        # What it would take is shown all the same.
        plan, engine = planned(files, settings, repack=repack, room=Room(2**62, 2**62))
        refusal = str(error)
    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps(_json(files, plan, engine, room, refusal), indent=2))
    else:
        say_choice(files)
        _show(plan, room)
    for note in plan.notes if not as_json else ():
        click.echo(note, err=True)
    if refusal:
        raise OutOfMemoryError(refusal)


def _show(plan: Plan, room: Room) -> None:
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.display.table import show_table  # noqa: PLC0415
    from vrt_lite.fitting.fit import told  # noqa: PLC0415

    said = plan.estimate
    gpus = room.gpus if said.gpu_bytes else ()
    rows = [(term.name, *map(told, (term.cpu, *term.gpus))) for term in said.terms if term.cpu or any(term.gpus)]
    rows.append(("in all", *map(told, (said.cpu_bytes, *said.gpu_bytes))))
    rows.append(("free here", *map(told, (room.free_bytes, *(gpu.free_bytes for gpu in gpus)))))
    show_table(("MEMORY FOR", "PROCESSOR", *(gpu.name for gpu in gpus)), rows)
    chosen = f"context {said.context} tokens, {said.max_pixels} pixels a frame, keys and values {said.settings.kv_type}"
    click.echo(safe(f"for {chosen}, repacked weights {'on' if said.settings.repack else 'off'}"))


def _json(files: ModelFiles, plan: Plan, engine: dict[str, object], room: Room, refusal: str) -> dict[str, object]:
    said = plan.estimate
    terms = [{"name": term.name, "bytes": term.cpu, "gpu_bytes": list(term.gpus)} for term in said.terms]
    there = {
        "free_bytes": room.free_bytes,
        "total_bytes": room.total_bytes,
        "gpus": [{"name": gpu.name, "free_bytes": gpu.free_bytes} for gpu in room.gpus],
    }
    return {
        "model": files.name,
        "fits": not refusal,
        "context": said.context,
        "max_pixels": said.max_pixels,
        "terms": terms,
        "bytes": said.cpu_bytes,
        "gpu_bytes": list(said.gpu_bytes),
        "machine": there,
        "engine": engine,
        "notes": [note for note in (files.choice, *plan.notes, refusal) if note],
    }
