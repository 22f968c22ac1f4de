"""Lists the models that are here, that can be pulled by name, and whose pull was begun."""

from __future__ import annotations

from dataclasses import dataclass

from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import estimate_default_bytes, read_shape
from vrt_lite.fitting.pull_options import list_pull_options
from vrt_lite.machine import format_bytes
from vrt_lite.models import bundled_names, find
from vrt_lite.models.library import Recipe, StoredModel, partial_bytes, partial_names, recipes, stored_models
from vrt_lite.models.quants import CONTEXT_BYTES, normalise_quant, quant_of, total_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model that is here, or can be. `memory_bytes` is an estimate.

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


def list_models() -> list[ListedModel]:
    """List what is here, then what can be pulled, then pulls that were begun under other names."""
    known = recipes()
    found = [_bundled_entry(name, known.get(name)) for name in bundled_names()]
    found += [_stored_entry(model, known.get(model.manifest.name)) for model in stored_models()]
    names = {entry.name for entry in found}
    found += [_recipe_entry(recipe) for name, recipe in known.items() if name not in names]
    return found + [_partial_entry(name) for name in partial_names() if name not in {*names, *known}]


def _bundled_entry(name: str, recipe: Recipe | None) -> ListedModel:

    files = find(name)
    return ListedModel(
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


def _stored_entry(model: StoredModel, recipe: Recipe | None) -> ListedModel:

    manifest, damage = model.manifest, model.damage
    memory = model.size_bytes + CONTEXT_BYTES
    if not damage:
        try:
            files = find(manifest.name)
            memory = estimate_default_bytes(read_shape(files), files.profile)
        except ModelError as error:
            damage = str(error)
    return ListedModel(
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


def _recipe_entry(recipe: Recipe) -> ListedModel:

    arrived, offered = partial_bytes(recipe.name), list_pull_options(recipe.name)
    taken = offered.choose(total_memory())
    option = next((option for option in offered.options if option.quant == taken), offered.options[-1])
    return ListedModel(
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


def _partial_entry(name: str) -> ListedModel:

    arrived = partial_bytes(name)
    return ListedModel(
        name=name,
        state="begun",
        disk_bytes=arrived,
        licence="not known yet",
        repository=name,
        note=_how_to_go_on(name, arrived),
    )


def _how_to_go_on(name: str, arrived: int) -> str:
    return f"{format_bytes(arrived)} have arrived. Go on: vrt-lite pull {name}"
