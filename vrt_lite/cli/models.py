"""The commands that look after models: pull, models, rm. Parse, call, print; heavy modules are imported when needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from vrt_lite.errors import ModelError

if TYPE_CHECKING:
    from vrt_lite.models.recipes import Recipe
    from vrt_lite.models.store import Stored

HEADINGS = ("NAME", "STATE", "QUANT", "ON DISK", "MEMORY", "VERIFIED", "LICENCE")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, damaged, refused or out of reach, 130 interrupted."


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of `models`. `memory_bytes` is an estimate; `disk_bytes` of what is not here is what a pull brings."""

    name: str
    state: str
    quant: str
    disk_bytes: int
    memory_bytes: int
    verified: bool
    licence: str
    licence_url: str
    repository: str
    revision: str
    folder: str
    note: str


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME|OWNER/REPO[:QUANT]")
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
def pull(model: str, *, quiet: bool) -> None:
    """Fetch a model from the Hugging Face hub, resumed and checked.

    \b
    vrt-lite pull qwen2.5-vl-3b
    vrt-lite pull ggml-org/Qwen2.5-VL-7B-Instruct-GGUF:Q4_K_M

    Without a quant, the largest from Q4_K_M to Q8_0 that fits this machine's memory is taken. An interrupted pull goes
    on where it stopped. The model is then found by its name: vrt-lite compare a.mp4 b.mp4 --model NAME
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.models.choose import memory_here  # noqa: PLC0415
    from vrt_lite.models.files import bundled_names  # noqa: PLC0415
    from vrt_lite.models.pull import pull as bring  # noqa: PLC0415

    def say(line: str) -> None:
        if not quiet:
            click.echo(safe(line), err=True)

    if model in bundled_names():
        say(f"{model} comes with vrt-lite; there is nothing to pull.")
        return
    here = bring(model, memory_bytes=memory_here(), say=say)
    say(f"ready: vrt-lite compare a.mp4 b.mp4 --model {here.manifest.name}")
    if not quiet:
        click.echo(str(here.folder))


@click.command(epilog=STATUS)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def models(*, as_json: bool) -> None:
    """Show what is here and what can be pulled by name.

    MEMORY is about what judging takes: weights, projector, and the context that the model's profile asks for.
    VERIFIED says whether this project has checked the model's verdicts.
    """
    found = _entries()
    if as_json:
        import json  # noqa: PLC0415

        click.echo(json.dumps([asdict(entry) for entry in found], indent=2))
        return
    from vrt_lite.display.table import show_table  # noqa: PLC0415

    show_table(HEADINGS, [_row(entry) for entry in found])
    for entry in found:
        if entry.note:
            click.echo(f"{entry.name}: {entry.note}", err=True)


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME")
def rm(model: str) -> None:
    """Delete a pulled model, or what an unfinished pull has left."""
    from vrt_lite.models import store  # noqa: PLC0415
    from vrt_lite.models.files import bundled_names  # noqa: PLC0415

    if model in bundled_names():
        raise ModelError(f"{model} comes with vrt-lite and is not deleted.")
    name = model.partition(":")[0]
    if not name or not store.is_plain(name.replace("/", "--")):
        raise ModelError(f"Model {model!r} is not here. See: vrt-lite models")
    with store.disk_errors(), store.locked(name):
        here = store.find_stored(model)
        unfinished = store.begun(name)
        if not here and not unfinished:
            raise ModelError(f"Model {model!r} is not here. See: vrt-lite models")
        freed = store.discard(store.partial_folder(name))
        if here:
            freed += store.discard(here.folder)
    click.echo(f"{name} is deleted, {freed / 1e6:.1f} MB")


def _entries() -> list[Entry]:
    """What is here first, then what can be pulled."""
    from vrt_lite.models.files import bundled_names  # noqa: PLC0415
    from vrt_lite.models.recipes import recipes  # noqa: PLC0415
    from vrt_lite.models.store import stored, unfinished  # noqa: PLC0415

    known = recipes()
    found = [_bundled_entry(name, known.get(name)) for name in bundled_names()]
    found += [_stored_entry(model, known.get(model.manifest.name)) for model in stored()]
    names = {entry.name for entry in found}
    found += [_recipe_entry(recipe) for name, recipe in known.items() if name not in names]
    return found + [_begun_entry(name) for name in unfinished() if name not in {*names, *known}]


def _bundled_entry(name: str, recipe: Recipe | None) -> Entry:
    from vrt_lite.fitting.memory import memory_needed  # noqa: PLC0415
    from vrt_lite.models.choose import quant_of  # noqa: PLC0415
    from vrt_lite.models.files import find  # noqa: PLC0415

    files = find(name)
    return Entry(
        name,
        state="bundled",
        quant=quant_of(files.text.name),
        disk_bytes=files.text.stat().st_size + files.projector.stat().st_size,
        memory_bytes=memory_needed(files),
        verified=bool(recipe and recipe.verified),
        licence=recipe.licence if recipe else "",
        licence_url=recipe.licence_url if recipe else "",
        repository="",
        revision="",
        folder=str(files.text.parent),
        note="",
    )


def _stored_entry(model: Stored, recipe: Recipe | None) -> Entry:
    from vrt_lite.fitting.memory import memory_needed  # noqa: PLC0415
    from vrt_lite.models.choose import CONTEXT_BYTES  # noqa: PLC0415
    from vrt_lite.models.files import find  # noqa: PLC0415

    damage = model.damage
    memory = model.size_bytes + CONTEXT_BYTES
    if not damage:
        try:
            memory = memory_needed(find(model.manifest.name))
        except ModelError as error:
            damage = str(error)
    return Entry(
        model.manifest.name,
        state="damaged" if damage else "here",
        quant=model.manifest.quant,
        disk_bytes=model.size_bytes,
        memory_bytes=memory,
        verified=model.manifest.verified,
        licence=model.manifest.licence,
        licence_url=recipe.licence_url if recipe else "",
        repository=model.manifest.repository,
        revision=model.manifest.revision,
        folder=str(model.folder),
        note=f"{damage}. Repair it: vrt-lite pull {model.manifest.name}" if damage else "",
    )


def _recipe_entry(recipe: Recipe) -> Entry:
    from vrt_lite.models.choose import CONTEXT_BYTES  # noqa: PLC0415
    from vrt_lite.models.store import begun  # noqa: PLC0415

    held = begun(recipe.name)
    return Entry(
        recipe.name,
        state="begun" if held else "convert" if recipe.convert else "can be pulled",
        quant=recipe.quant,
        disk_bytes=recipe.size_bytes,
        memory_bytes=recipe.size_bytes + CONTEXT_BYTES,
        verified=recipe.verified,
        licence=recipe.licence,
        licence_url=recipe.licence_url,
        repository=recipe.repository,
        revision=recipe.revision,
        folder="",
        note=f"{held / 1e6:.1f} MB have arrived. Go on: vrt-lite pull {recipe.name}" if held else "",
    )


def _begun_entry(name: str) -> Entry:
    from vrt_lite.models.store import begun  # noqa: PLC0415

    held = begun(name)
    return Entry(
        name,
        state="begun",
        quant="",
        disk_bytes=held,
        memory_bytes=0,
        verified=False,
        licence="not known yet",
        licence_url="",
        repository=name,
        revision="",
        folder="",
        note=f"{held / 1e6:.1f} MB have arrived. Go on: vrt-lite pull {name}",
    )


def _row(entry: Entry) -> tuple[str, ...]:
    about = "" if entry.state in ("bundled", "here", "damaged") else "~"
    return (
        entry.name,
        entry.state,
        entry.quant or "-",
        f"{about}{entry.disk_bytes / 1e9:.2f} GB",
        f"~{entry.memory_bytes / 1e9:.1f} GB" if entry.memory_bytes else "-",
        "yes" if entry.verified else "no",
        entry.licence,
    )
