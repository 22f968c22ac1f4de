"""The command that says what judging would take here. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    json_option,
    model_argument,
    print_json,
    print_text,
    projector_option,
    size_options,
    take_settings,
)
from vrt_lite.disk import home
from vrt_lite.errors import OutOfMemoryError, UsageError
from vrt_lite.machine import Gpu, MachineMemory, format_bytes

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.fitting.pull_options import PullOption, PullOptions
    from vrt_lite.settings import Settings
    from vrt_lite.show.estimates import Estimated

STATUS = "Exit status: 0 it fits, 2 usage, 4 model missing, corrupt or mismatched, 5 it does not fit, 130 interrupted."
_UNBOUNDED = 2**62


@click.command(epilog=STATUS)
@model_argument
@projector_option
@click.option("--quant", metavar="QUANT", default="", help="Of a model that is not here: this quant alone, by part.")
@size_options
@click.option(
    "--memory", "memory_gb", metavar="GB", type=click.FloatRange(0), help="Assume a machine with this much memory."
)
@click.option(
    "--vram", "vram_gb", metavar="GB", type=click.FloatRange(0), help="Assume one GPU with this much free memory."
)
@json_option
def estimate(
    model: str | None,
    *,
    projector: Path | None,
    quant: str,
    memory_gb: float | None,
    vram_gb: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Estimate the memory and time that judging with MODEL takes.

    \b
    vrt-lite estimate
    vrt-lite estimate ./vr-thinker-7b --memory 8
    vrt-lite estimate vr-thinker-7b --memory 16 --vram 8
    vrt-lite estimate vr-thinker-7b --quant q4_k_m --vram 8

    Of a model that is here only the headers of its files are read. Of one that can be pulled by name, all quants are
    listed, with what a pull takes of the disk. What is not set is chosen as compare chooses it: first what is best,
    then what fits. The estimate assumes frames of the largest size, and all rounds.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    settings = take_settings(options)
    memory = _assume_memory(settings, memory_gb, vram_gb)
    size = None if memory_gb is None else memory.total_bytes
    offered = _find_offered(model, quant, projector)

    def estimate_with(settings: Settings) -> list[Estimated]:
        if offered:
            timed = size is None
            return [_estimate_option(offered, option, settings, memory, timed=timed) for option in offered.options]
        return [_estimate_files(model, projector, size, settings, memory, tuned=vram_gb is None)]

    found = estimate_with(settings)
    if offered is None or quant or ":" in (model or ""):
        efforts = _estimate_efforts(lambda settings: estimate_with(settings)[0], settings)
        _print_parts(found[0], memory, efforts, as_json=as_json)
    else:
        _print_quants(offered, found, memory, size, as_json=as_json)
    if all(estimated.refusal for estimated in found):
        raise OutOfMemoryError(found[-1].refusal)


def _assume_memory(settings: Settings, memory_gb: float | None, vram_gb: float | None) -> MachineMemory:
    """This machine's memory, or what the options assume in its place."""
    from vrt_lite.backends import read_memory  # noqa: PLC0415
    from vrt_lite.tuning import refuse_impossible  # noqa: PLC0415

    memory = read_memory()
    if memory_gb is not None:
        memory = replace(memory, free_bytes=int(memory_gb * 1e9), total_bytes=int(memory_gb * 1e9))
    if vram_gb is not None:
        return replace(memory, gpu=Gpu("GPU", int(vram_gb * 1e9)))
    refuse_impossible(settings)
    return memory


def _estimate_efforts(estimate_with: Callable[[Settings], Estimated], settings: Settings) -> dict[str, Estimated]:
    """Estimate each effort, with all other settings as they are."""
    from vrt_lite.settings import EFFORTS  # noqa: PLC0415

    return {effort: estimate_with(replace(settings, effort=effort)) for effort in EFFORTS}


def _find_offered(model: str | None, quant: str, projector: Path | None) -> PullOptions | None:
    """What can be pulled as MODEL; None if it is here, or is no name of a recipe."""
    from vrt_lite.fitting.pull_options import list_pull_options  # noqa: PLC0415
    from vrt_lite.models import BUNDLED, bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import find_stored, recipes  # noqa: PLC0415

    name, _, named = (model or "").partition(":")
    if model is None or name in bundled_names() or Path(model).exists():
        if quant:
            raise UsageError(f"--quant is for a model that can be pulled; {model or BUNDLED} is here, so leave it out.")
        return None
    if quant and named and quant.lower() != named.lower():
        raise UsageError(f"{model} names a quant, and --quant {quant} another: leave one out.")
    wanted, stored = quant or named, find_stored(name)
    if stored and wanted.upper() in ("", stored.manifest.quant.upper()):
        return None
    if name not in recipes():
        return None
    if projector:
        raise UsageError(f"--projector is for a model that is here, and {name} is not: leave it out.")
    return list_pull_options(name, wanted)


def _estimate_files(
    model: str | None,
    projector: Path | None,
    size: int | None,
    settings: Settings,
    memory: MachineMemory,
    *,
    tuned: bool,
) -> Estimated:
    """Estimate a model that is here. `tuned` applies what was found for this machine."""
    from vrt_lite.backends import describe_machine  # noqa: PLC0415
    from vrt_lite.fitting import choose_plan  # noqa: PLC0415
    from vrt_lite.fitting.memory_estimate import read_shape  # noqa: PLC0415
    from vrt_lite.forecast import predict  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.show.estimates import Estimated  # noqa: PLC0415
    from vrt_lite.tuning import choose_projector, plan_engine  # noqa: PLC0415

    files = choose_projector(find(model, projector=projector), describe_machine)

    def plan(memory: MachineMemory) -> EnginePlan:
        if tuned:
            return plan_engine(files, settings, memory=memory)
        return choose_plan(read_shape(files), files.profile, settings, memory)

    planned, refusal = _plan_anyway(plan, memory, settings)
    # What another machine takes is not known here.
    time = predict(planned) if tuned and size is None else None
    return Estimated(files.name, planned.estimate.shape.layers, planned, refusal, time=time)


def _estimate_option(
    offered: PullOptions,
    option: PullOption,
    settings: Settings,
    memory: MachineMemory,
    *,
    timed: bool,
) -> Estimated:
    """Estimate a quant that is not here; `timed` tells whether it is for this machine."""
    from vrt_lite.fitting import choose_plan  # noqa: PLC0415
    from vrt_lite.forecast import predict  # noqa: PLC0415
    from vrt_lite.show.estimates import Estimated  # noqa: PLC0415

    def plan(memory: MachineMemory) -> EnginePlan:
        return choose_plan(option.shape, offered.profile, settings, memory)

    planned, refusal = _plan_anyway(plan, memory, settings)
    time = predict(planned) if timed else None
    return Estimated(offered.name, option.shape.layers, planned, refusal, option, time)


def _plan_anyway(
    plan: Callable[[MachineMemory], EnginePlan], memory: MachineMemory, settings: Settings
) -> tuple[EnginePlan, str]:
    """The plan, and ""; if nothing fits, the plan on a machine where it does, and why it does not fit here."""
    try:
        return plan(memory), ""
    except OutOfMemoryError as error:
        # Layers that the user has set stay on the GPU.
        gpu = memory.gpu and Gpu(memory.gpu.name, _UNBOUNDED) if settings.gpu_layers is not None else memory.gpu
        return plan(MachineMemory(_UNBOUNDED, _UNBOUNDED, gpu)), str(error)


def _print_parts(
    estimated: Estimated, memory: MachineMemory, efforts: Mapping[str, Estimated], *, as_json: bool
) -> None:
    """Print an estimate by part, and what each effort takes in all."""
    from vrt_lite.show.estimates import describe_settings, effort_to_json, show_efforts, show_parts  # noqa: PLC0415

    if as_json:
        listed = [effort_to_json(*of) for of in efforts.items()]
        print_json(_to_json(estimated) | {"efforts": listed, "machine": asdict(memory)})
        return
    show_parts(estimated, memory)
    print_text(describe_settings(estimated))
    if estimated.time:
        print_text(f"a pair takes {estimated.shown_time} here, in one order")
    if option := estimated.option:
        print_text(
            f"disk: {format_bytes(option.fetched)} fetched, {format_bytes(option.stays)} stay, at most "
            f"{format_bytes(option.most)} at once, {format_bytes(_free_disk())} free in {home()}"
        )
    click.echo()
    show_efforts(efforts)
    for warning in estimated.plan.warnings:
        click.echo(warning.text, err=True)


def _print_quants(
    offered: PullOptions, found: Sequence[Estimated], memory: MachineMemory, size: int | None, *, as_json: bool
) -> None:
    """Print what each quant takes, and which one a pull would take."""
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415

    taken = offered.choose(total_memory() if size is None else size)
    if as_json:
        print_json(
            {
                "model": offered.name,
                "fits": any(not estimated.refusal for estimated in found),
                "converted": offered.converted,
                "pull": taken or None,
                "free_disk_bytes": _free_disk(),
                "machine": asdict(memory),
                "quants": [_to_json(estimated) for estimated in found],
            }
        )
        return
    from vrt_lite.show.estimates import show_quants  # noqa: PLC0415

    show_quants(found, memory, free_disk_bytes=_free_disk())
    way = "as a checkpoint and converted here" if offered.converted else "as GGUF"
    print_text(f"fetched {way}; {format_bytes(_free_disk())} are free in {home()}")
    command = f"vrt-lite pull {offered.name}"
    print_text(f"{command} takes {taken or 'none of them'}; to choose one: {command}:QUANT")


def _free_disk() -> int:
    """Free bytes where models are kept."""
    folder = home().absolute()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free


def _to_json(estimated: Estimated) -> dict[str, object]:
    estimate, option = estimated.plan.estimate, estimated.option
    return {
        "model": estimated.name,
        "quant": option and option.quant,
        "fits": not estimated.refusal,
        "context": estimate.context,
        "max_pixels": estimate.profile.max_pixels,
        "terms": [{"name": term.name, "bytes": term.cpu, "gpu_bytes": term.gpu} for term in estimate.terms],
        "bytes": estimate.cpu_bytes,
        "gpu_bytes": estimate.gpu_bytes,
        "disk": option and {"fetched": option.fetched, "stays": option.stays, "most": option.most},
        "engine": asdict(estimated.plan.engine_used()),
        "seconds": estimated.time and asdict(estimated.time),
        "notes": estimated.notes,
    }
