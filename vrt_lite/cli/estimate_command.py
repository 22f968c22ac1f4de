"""The command that says what judging would take here. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vrt_lite.cli.options import (
    Real,
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
from vrt_lite.machine import Gpu, MachineMemory, format_bytes, total_memory
from vrt_lite.settings import EFFORTS

if TYPE_CHECKING:
    from vrt_lite.fitting import EnginePlan
    from vrt_lite.fitting.pull_options import PullOption, PullOptions
    from vrt_lite.models import ModelFiles
    from vrt_lite.settings import Settings
    from vrt_lite.show.estimates import Estimated

STATUS = "Exit status: 0 it fits, 2 usage, 4 model missing, corrupt or mismatched, 5 it does not fit, 130 interrupted."
_UNBOUNDED = 2**62
_GB = Real(0, 1_000_000)


@click.command(epilog=STATUS)
@model_argument
@projector_option
@size_options
@click.option("--memory", "memory_gb", metavar="GB", type=_GB, help="Assume a machine with this much memory.")
@click.option("--vram", "vram_gb", metavar="GB", type=_GB, help="Assume one GPU with this much free memory.")
@json_option
def estimate(
    model: str | None,
    *,
    projector: Path | None,
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
    vrt-lite estimate vr-thinker-7b:q4_k_m --vram 8

    Of a model that is here only the headers of its files are read. Of one that can be pulled by name, all quants are
    listed, with what a pull takes of the disk. What is not set is chosen as compare chooses it: first what is best,
    then what fits. The estimate assumes frames of the largest size, and all rounds.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    settings, assumed = take_settings(options), memory_gb is not None or vram_gb is not None
    from vrt_lite.fitting.pull_options import PullOptions  # noqa: PLC0415

    memory = _assume_memory(settings, memory_gb, vram_gb)
    judge = _find_judge(model, projector)

    def estimate_with(settings: Settings) -> list[Estimated]:
        options = judge.options if isinstance(judge, PullOptions) else [None]
        return [_estimate(judge, option, settings, memory, assumed=assumed) for option in options]

    found = estimate_with(settings)
    if isinstance(judge, PullOptions) and ":" not in (model or ""):
        taken = judge.choose(total_memory() if memory_gb is None else memory.total_bytes)
        _print_quants(judge, found, memory, taken, as_json=as_json)
    else:
        efforts = {effort: estimate_with(replace(settings, effort=effort))[0] for effort in EFFORTS}
        _print_parts(found[0], memory, efforts, as_json=as_json)
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


def _find_judge(model: str | None, projector: Path | None) -> ModelFiles | PullOptions:
    """The files of MODEL, or what can be pulled if it is not here, and is the name of a recipe."""
    from vrt_lite.backends import describe_machine  # noqa: PLC0415
    from vrt_lite.models import bundled_names, find  # noqa: PLC0415
    from vrt_lite.models.library import find_stored, recipes  # noqa: PLC0415
    from vrt_lite.tuning import choose_projector  # noqa: PLC0415

    name, _, quant = (model or "").partition(":")
    stored = find_stored(name)
    is_here = stored and quant.upper() in ("", stored.manifest.quant.upper())
    if is_here or name not in recipes() or name in bundled_names() or Path(name).exists():
        return choose_projector(find(model, projector=projector), describe_machine)
    if projector:
        raise UsageError(f"--projector is for a model that is here, and {name} is not: leave it out.")
    from vrt_lite.fitting.pull_options import list_pull_options  # noqa: PLC0415

    return list_pull_options(name, quant)


def _estimate(
    judge: ModelFiles | PullOptions,
    option: PullOption | None,
    settings: Settings,
    memory: MachineMemory,
    *,
    assumed: bool,
) -> Estimated:
    """Estimate a model that is here, or a quant that is not; `assumed` tells that the machine is another one."""
    from vrt_lite.fitting import choose_plan  # noqa: PLC0415
    from vrt_lite.fitting.memory_estimate import read_shape  # noqa: PLC0415
    from vrt_lite.forecast import predict  # noqa: PLC0415
    from vrt_lite.models import ModelFiles  # noqa: PLC0415
    from vrt_lite.show.estimates import Estimated  # noqa: PLC0415
    from vrt_lite.tuning import plan_engine  # noqa: PLC0415

    shape = option.shape if option else read_shape(cast("ModelFiles", judge))

    def plan(memory: MachineMemory) -> EnginePlan:
        if isinstance(judge, ModelFiles) and not assumed:
            return plan_engine(judge, settings, memory=memory)
        return choose_plan(shape, judge.profile, settings, memory)

    try:
        planned, refusal = plan(memory), ""
    except OutOfMemoryError as error:
        # What it takes where it fits. Layers that the user has set stay on the GPU.
        gpu = memory.gpu and Gpu(memory.gpu.name, _UNBOUNDED) if settings.gpu_layers is not None else memory.gpu
        planned, refusal = plan(MachineMemory(_UNBOUNDED, _UNBOUNDED, gpu)), str(error)
    time = None if assumed else predict(planned)  # what another machine takes is not known here
    return Estimated(judge.name, shape.layers, planned, refusal, option, time)


def _print_parts(estimated: Estimated, memory: MachineMemory, efforts: dict[str, Estimated], *, as_json: bool) -> None:
    """Print an estimate by part, and what each effort takes in all."""
    from vrt_lite.show.estimates import describe_settings, show_efforts, show_parts  # noqa: PLC0415

    if as_json:
        listed = [{"effort": effort, **_to_json(of)} for effort, of in efforts.items()]
        print_json(_to_json(estimated) | {"efforts": listed, "machine": memory})
        return
    show_parts(estimated, memory)
    print_text(describe_settings(estimated))
    if estimated.time:
        print_text(f"a pair takes {estimated.shown_time} here, in one order")
    if option := estimated.option:
        fetched, stay, most = map(format_bytes, (option.fetched, option.stays, option.most))
        free = f"{format_bytes(_free_disk())} free in {home()}"
        print_text(f"disk: {fetched} fetched, {stay} stay, at most {most} at once, {free}")
    click.echo()
    show_efforts(efforts)
    for warning in estimated.plan.warnings:
        click.echo(warning.text, err=True)


def _print_quants(
    offered: PullOptions, found: Sequence[Estimated], memory: MachineMemory, taken: str, *, as_json: bool
) -> None:
    """Print what each quant takes, and which one a pull would take."""
    if as_json:
        print_json(
            {
                "model": offered.name,
                "fits": any(not estimated.refusal for estimated in found),
                "converted": offered.converted,
                "pull": taken or None,
                "free_disk_bytes": _free_disk(),
                "machine": memory,
                "quants": [_to_json(estimated) for estimated in found],
            }
        )
        return
    from vrt_lite.show.estimates import show_quants  # noqa: PLC0415

    show_quants(found, free_disk_bytes=_free_disk())
    way = "as a checkpoint and converted here" if offered.converted else "as GGUF"
    print_text(f"fetched {way}; {format_bytes(_free_disk())} are free in {home()}")
    command = f"vrt-lite pull {offered.name}"
    print_text(f"{command} takes {taken or 'none of them'}; to choose one: {command}:QUANT")


def _free_disk() -> int:
    """Free bytes where models are kept."""
    folder = home().absolute()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free


def _to_json(estimated: Estimated) -> dict[str, object]:
    plan, option = estimated.plan, estimated.option
    estimate, notes = plan.estimate, (*(warning.text for warning in plan.warnings), estimated.refusal)
    limits = ("max_pixels", "tool_max_pixels", "first_frames", "rounds", "max_new_tokens")
    return {
        "model": estimated.name,
        "quant": option and option.quant,
        "fits": not estimated.refusal,
        "context": estimate.context,
        **{name: getattr(estimate.profile, name) for name in limits},
        "terms": [{"name": name, "bytes": cpu, "gpu_bytes": gpu} for name, (cpu, gpu) in estimate.terms.items()],
        "bytes": estimate.cpu_bytes,
        "gpu_bytes": estimate.gpu_bytes,
        "disk": option and {"fetched": option.fetched, "stays": option.stays, "most": option.most},
        "engine": plan.engine_used(),
        "seconds": estimated.time,
        "notes": [note for note in notes if note],
    }
