"""The commands that manage models: pull, models, rm. Heavy modules are imported when they are needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from vrt_lite.cli import find_kept
from vrt_lite.cli.options import print_json, print_text
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes

if TYPE_CHECKING:
    from vrt_lite.models.library import Recipe, StoredModel

HEADINGS = ("NAME", "STATE", "QUANT", "ON DISK", "MEMORY", "VERIFIED", "LICENCE")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, damaged, refused or out of reach, 130 interrupted."
_CACHE_STATUS = "Exit status: 0 done, 2 usage, 4 the folder cannot be changed, 130 interrupted."


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of `models`. `memory_bytes` is an estimate.

    Of what is not here, `quant` is the one that a pull takes on this machine, `disk_bytes` is what stays of it, and
    `fetched_bytes` is what the pull fetches: a checkpoint if the model is `converted` here, else the files that stay.
    """

    name: str
    state: str
    quant: str = ""
    disk_bytes: int
    fetched_bytes: int = 0
    memory_bytes: int = 0
    converted: bool = False
    verified: bool = False
    licence: str = ""
    licence_url: str = ""
    repository: str = ""
    revision: str = ""
    folder: str = ""
    note: str = ""

    @property
    def way_here(self) -> str:
        """How the model gets here, in a line; "" if it is here."""
        if not self.fetched_bytes:
            return ""
        fetched, stay = format_bytes(self.fetched_bytes), format_bytes(self.disk_bytes)
        way = f"as a checkpoint and converted here, {stay} stay" if self.converted else "as GGUF, all of it stays"
        return f"{self.name}: vrt-lite pull {self.name} ({fetched} fetched {way})"


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME|OWNER/REPO[:QUANT]")
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
def pull(model: str, *, quiet: bool) -> None:
    """Fetch a model from the Hugging Face hub, resumed and checked.

    \b
    vrt-lite pull vr-thinker-7b
    vrt-lite pull ggml-org/Qwen2.5-VL-7B-Instruct-GGUF:Q4_K_M

    GGUF files are taken as they are. A Qwen2.5-VL checkpoint (safetensors) is converted while it arrives: the disk
    holds the result and at most two of its files. Without a quant, the largest from Q4_K_M to Q8_0 that fits this
    machine's memory is taken. An interrupted pull goes on where it stopped. The model is then found by its name:
    vrt-lite compare a.mp4 b.mp4 --model NAME
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.quants import total_memory  # noqa: PLC0415
    from vrt_lite.pulling import pull as pull_model  # noqa: PLC0415
    from vrt_lite.show.transfer import open_transfer  # noqa: PLC0415

    with open_transfer(quiet=quiet) as progress:
        if model in bundled_names():
            progress.say(f"{model} comes with vrt-lite; there is nothing to pull.")
            return
        pulled = pull_model(model, memory_bytes=total_memory(), progress=progress)
        progress.say(f"ready: vrt-lite compare a.mp4 b.mp4 --model {pulled.manifest.name}")
    if not quiet:
        click.echo(str(pulled.folder))


@click.command(epilog=STATUS)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def models(*, as_json: bool) -> None:
    """Show what is here, what can be pulled by name, and how.

    Of what can be pulled, QUANT is the one that a pull takes on this machine.
    MEMORY is about what judging takes: weights, projector, and the context that the model's profile asks for.
    VERIFIED says whether this project has checked the model's verdicts.
    """
    found = _entries()
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    from vrt_lite.show.table import show_table  # noqa: PLC0415

    show_table(HEADINGS, [_row(entry) for entry in found])
    for way in filter(None, (entry.way_here for entry in found)):
        print_text(way)
    for entry in found:
        if entry.note:
            print_text(f"{entry.name}: {entry.note}", err=True)


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME")
def rm(model: str) -> None:
    """Delete a pulled model, or what an unfinished pull has left."""
    from vrt_lite.disk import disk_errors, is_plain_name, locked  # noqa: PLC0415
    from vrt_lite.models import bundled_names, library  # noqa: PLC0415

    if model in bundled_names():
        raise ModelError(f"{model} comes with vrt-lite and is not deleted.")
    name = model.partition(":")[0]
    if not name or not is_plain_name(name.replace("/", "--")):
        raise ModelError(f"Model {model!r} is not here. See: vrt-lite models")
    with disk_errors(), locked(name):
        here = library.find_stored(model)
        unfinished = library.partial_folder(name).is_dir()
        if not here and not unfinished:
            raise ModelError(f"Model {model!r} is not here. See: vrt-lite models")
        freed = library.remove_folder(library.partial_folder(name))
        if here:
            freed += library.remove_folder(here.folder)
    print_text(f"{name} is deleted, {format_bytes(freed)}")


def _entries() -> list[Entry]:
    """List what is here, then what can be pulled, then pulls that were begun under other names."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import partial_names, recipes, stored_models  # noqa: PLC0415

    known = recipes()
    found = [_bundled_entry(name, known.get(name)) for name in bundled_names()]
    found += [_stored_entry(model, known.get(model.manifest.name)) for model in stored_models()]
    names = {entry.name for entry in found}
    found += [_recipe_entry(recipe) for name, recipe in known.items() if name not in names]
    return found + [_partial_entry(name) for name in partial_names() if name not in {*names, *known}]


def _bundled_entry(name: str, recipe: Recipe | None) -> Entry:
    from vrt_lite.fitting.memory_estimate import estimate_default_bytes, read_shape  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.models.quants import quant_of  # noqa: PLC0415

    files = find(name)
    return Entry(
        name=name,
        state="bundled",
        quant=quant_of(files.text.name),
        disk_bytes=files.text.stat().st_size + files.projector.stat().st_size,
        memory_bytes=estimate_default_bytes(read_shape(files), files.profile),
        verified=bool(recipe and recipe.verified),
        licence=recipe.licence if recipe else "",
        licence_url=recipe.licence_url if recipe else "",
        folder=str(files.text.parent),
    )


def _stored_entry(model: StoredModel, recipe: Recipe | None) -> Entry:
    from vrt_lite.fitting.memory_estimate import estimate_default_bytes, read_shape  # noqa: PLC0415
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.models.quants import CONTEXT_BYTES  # noqa: PLC0415

    manifest, damage = model.manifest, model.damage
    memory = model.size_bytes + CONTEXT_BYTES
    if not damage:
        try:
            files = find(manifest.name)
            memory = estimate_default_bytes(read_shape(files), files.profile)
        except ModelError as error:
            damage = str(error)
    return Entry(
        name=manifest.name,
        state="damaged" if damage else "here",
        quant=manifest.quant,
        disk_bytes=model.size_bytes,
        memory_bytes=memory,
        verified=manifest.verified,
        licence=manifest.licence,
        licence_url=recipe.licence_url if recipe else "",
        repository=manifest.repository,
        revision=manifest.revision,
        folder=str(model.folder),
        note=f"{damage}. Repair it: vrt-lite pull {manifest.name}" if damage else "",
    )


def _recipe_entry(recipe: Recipe) -> Entry:
    from vrt_lite.fitting.memory_estimate import estimate_default_bytes  # noqa: PLC0415
    from vrt_lite.fitting.pull_options import list_pull_options  # noqa: PLC0415
    from vrt_lite.models.library import partial_bytes  # noqa: PLC0415
    from vrt_lite.models.quants import normalise_quant, total_memory  # noqa: PLC0415

    arrived, offered = partial_bytes(recipe.name), list_pull_options(recipe.name)
    taken = offered.choose(total_memory())
    option = next((option for option in offered.options if option.quant == taken), offered.options[-1])
    return Entry(
        name=recipe.name,
        state="begun" if arrived else "can be pulled",
        quant=normalise_quant(option.quant),
        disk_bytes=option.disk.stays,
        fetched_bytes=option.disk.fetched,
        memory_bytes=estimate_default_bytes(option.shape, offered.profile),
        converted=offered.converted,
        verified=recipe.verified,
        licence=recipe.licence,
        licence_url=recipe.licence_url,
        repository=recipe.repository,
        revision=recipe.revision,
        note=_how_to_go_on(recipe.name, arrived) if arrived else "",
    )


def _partial_entry(name: str) -> Entry:
    from vrt_lite.models.library import partial_bytes  # noqa: PLC0415

    arrived = partial_bytes(name)
    return Entry(
        name=name,
        state="begun",
        disk_bytes=arrived,
        licence="not known yet",
        repository=name,
        note=_how_to_go_on(name, arrived),
    )


def _how_to_go_on(name: str, arrived: int) -> str:
    return f"{format_bytes(arrived)} have arrived. Go on: vrt-lite pull {name}"


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


@click.command(epilog=_CACHE_STATUS)
@click.option("--clear", is_flag=True, help="Delete them.")
def cache(*, clear: bool) -> None:
    """Show the encoded frames (embeddings) that are kept on disk so that no frame is encoded twice.

    Beyond 2000 megabytes the least recently used are deleted; another limit, or 0 to keep none:
    vrt-lite config set cache-mb N. Deleting them costs time, never a verdict.
    """
    from vrt_lite import embeddings  # noqa: PLC0415
    from vrt_lite.disk import disk_errors  # noqa: PLC0415

    kept = find_kept().get("cache-mb")
    disk, folder = embeddings.users_disk(int(kept.value) if kept else None), embeddings.cache_folder()
    entries, size_bytes = embeddings.usage(folder)
    if clear:
        with disk_errors():
            embeddings.clear(folder)
        click.echo(f"{entries} embeddings are deleted, {format_bytes(size_bytes)}")
        return
    print_text(str(folder))
    bound = f"at most {disk.most_bytes / 1e6:.0f} MB" if disk else "off: cache-mb is 0"
    click.echo(f"{entries} embeddings, {format_bytes(size_bytes)} ({bound})")
