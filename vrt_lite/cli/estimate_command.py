"""The command that says what judging would take here. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import print_chosen_file, print_json, print_text, size_options
from vrt_lite.errors import OutOfMemoryError

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.machine import MachineMemory
    from vrt_lite.models import ModelFiles

STATUS = "Exit status: 0 it fits, 2 usage, 4 model missing, corrupt or mismatched, 5 it does not fit, 130 interrupted."


@click.command(epilog=STATUS)
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--projector", metavar="FILE", type=click.Path(path_type=Path), help="The projector (mmproj) GGUF.")
@size_options
@click.option("--repack/--no-repack", default=None, help="A second copy of the weights. [default: as tuned, or none]")
@click.option(
    "--memory", "memory_gb", metavar="GB", type=click.FloatRange(0), help="Assume a machine with this much memory."
)
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
    """Estimate how much memory judging with MODEL takes, before anything is loaded.

    \b
    vrt-lite estimate
    vrt-lite estimate qwen2.5-vl-7b --max-pixels 100352
    vrt-lite estimate ./vr-thinker-7b --memory 8

    Reads only the headers of the two files. What is not set is chosen as compare chooses it: first what is best, then
    what fits. The estimate assumes frames of the largest size, and all rounds.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.backends import describe_machine, read_memory  # noqa: PLC0415
    from vrt_lite.machine import MachineMemory  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.settings import Settings  # noqa: PLC0415
    from vrt_lite.tuning import choose_projector, plan_engine  # noqa: PLC0415

    size = None if memory_gb is None else int(memory_gb * 1e9)
    files = choose_projector(find(model, projector=projector, memory_bytes=size), describe_machine)
    memory = read_memory()
    if size is not None:
        memory = MachineMemory(size, size, memory.gpus)
    settings = Settings(**options)
    try:
        plan = plan_engine(files, settings, repack=repack, memory=memory)
        refusal = ""
    except OutOfMemoryError as error:
        # The estimate is shown all the same.
        plan = plan_engine(files, settings, repack=repack, memory=MachineMemory(2**62, 2**62))
        refusal = str(error)
    if as_json:
        print_json(_to_json(files, plan, memory, refusal))
    else:
        print_chosen_file(files)
        _show(plan, memory)
    for warning in plan.warnings if not as_json else ():
        click.echo(warning.text, err=True)
    if refusal:
        raise OutOfMemoryError(refusal)


def _show(plan: EnginePlan, memory: MachineMemory) -> None:
    from vrt_lite.machine import format_bytes  # noqa: PLC0415
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    estimate = plan.estimate
    gpus = memory.gpus if estimate.gpu_bytes else ()
    sizes = [(term.name, term.cpu, *term.gpus) for term in estimate.terms if term.cpu or any(term.gpus)]
    sizes.append(("in all", estimate.cpu_bytes, *estimate.gpu_bytes))
    sizes.append(("free here", memory.free_bytes, *(gpu.free_bytes for gpu in gpus)))
    rows = [(name, *map(format_bytes, counts)) for name, *counts in sizes]
    show_table(("MEMORY FOR", "PROCESSOR", *(gpu.name for gpu in gpus)), rows)
    print_text(
        f"for context {estimate.context} tokens, {estimate.max_pixels} pixels a frame, keys and values "
        f"{plan.settings.kv_type}, repacked weights {'on' if plan.settings.repack else 'off'}"
    )


def _to_json(files: ModelFiles, plan: EnginePlan, memory: MachineMemory, refusal: str) -> dict[str, object]:
    estimate = plan.estimate
    return {
        "model": files.name,
        "fits": not refusal,
        "context": estimate.context,
        "max_pixels": estimate.max_pixels,
        "terms": [{"name": term.name, "bytes": term.cpu, "gpu_bytes": list(term.gpus)} for term in estimate.terms],
        "bytes": estimate.cpu_bytes,
        "gpu_bytes": list(estimate.gpu_bytes),
        "machine": asdict(memory),
        "engine": asdict(plan.engine_used()),
        "notes": [note for note in (files.choice, *(w.text for w in plan.warnings), refusal) if note],
    }
