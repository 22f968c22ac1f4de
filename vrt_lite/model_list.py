"""Lists the models that are here, that can be pulled by name, and whose pull was begun."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from vrt_lite.backends import read_memory
from vrt_lite.errors import ModelError, OutOfMemoryError
from vrt_lite.fitting import choose_plan
from vrt_lite.fitting.memory_estimate import estimate_memory, read_shape
from vrt_lite.fitting.pull_options import list_pull_options
from vrt_lite.forecast import predict
from vrt_lite.machine import EngineSettings, format_bytes, total_memory
from vrt_lite.models import ModelFiles, bundled_names, find
from vrt_lite.models.gguf import gguf_bytes, normalise_quant, quant_of
from vrt_lite.models.library import (
    ListedModel,
    Recipe,
    StoredModel,
    find_stored,
    partial_bytes,
    partial_names,
    recipes,
    stored_models,
)
from vrt_lite.settings import Settings
from vrt_lite.tuning import plan_engine

ON_PROCESSOR: Final = EngineSettings(gpu_layers=0)


def list_models() -> list[ListedModel]:
    """List what is here, then what can be pulled, then pulls that were begun under other names."""
    known = recipes()
    found = [_list_bundled(name) for name in bundled_names()]
    found += [_list_stored(model) for model in stored_models()]
    names = {entry.name for entry in found}
    found += [_list_recipe(recipe) for name, recipe in known.items() if name not in names]
    begun = [name for name in partial_names() if name not in {*names, *known}]
    return found + [_list_begun(name) for name in begun]


def list_model(name: str) -> ListedModel:
    """Describe a model that is known by name: as it is here, or as a pull would bring it."""
    stored = find_stored(name)
    return _list_stored(stored) if stored else _list_recipe(recipes()[name])


def _list_bundled(name: str) -> ListedModel:
    files = find(name)
    return ListedModel(
        name=name,
        state="bundled",
        quant=quant_of(files.text.name),
        disk_bytes=gguf_bytes(files.text) + files.projector.stat().st_size,
        folder=str(files.text.parent),
        **_describe_recipe(name) | _estimate_files(files),
    )


def _list_stored(model: StoredModel) -> ListedModel:
    manifest, damage, estimated = model.manifest, model.damage, dict[str, Any]()
    try:
        estimated = {} if damage else _estimate_files(find(manifest.name))
    except ModelError as error:
        damage = str(error)
    about = {name: getattr(manifest, name) for name in ("quant", "licence", "repository", "revision")}
    return ListedModel(
        name=manifest.name,
        state="damaged" if damage else "here",
        disk_bytes=model.size_bytes,
        folder=str(model.folder),
        note=f"{damage}. Repair it: vrt-lite pull {manifest.name}" if damage else "",
        **_describe_recipe(manifest.name) | about | estimated,
    )


def _list_recipe(recipe: Recipe) -> ListedModel:
    begun, offered = _list_begun(recipe.name), list_pull_options(recipe.name)
    taken = offered.choose(total_memory())
    option = next((option for option in offered.options if option.quant == taken), offered.options[-1])
    seconds = None
    with contextlib.suppress(OutOfMemoryError):
        seconds = predict(choose_plan(option.shape, offered.profile, Settings(), read_memory()))
    return ListedModel(
        name=recipe.name,
        state="begun" if begun.disk_bytes else "can be pulled",
        quant=normalise_quant(option.quant),
        disk_bytes=option.stays,
        fetched_bytes=option.fetched,
        memory_bytes=estimate_memory(option.shape, offered.profile, ON_PROCESSOR).cpu_bytes,
        seconds=seconds,
        answers=offered.profile.answers,
        converted=offered.converted,
        repository=recipe.repository,
        revision=recipe.revision,
        note=begun.note if begun.disk_bytes else "",
        **_describe_recipe(recipe.name),
    )


def _list_begun(name: str) -> ListedModel:
    arrived = partial_bytes(name)
    note = f"{format_bytes(arrived)} have arrived. Go on: vrt-lite pull {name}"
    return ListedModel(
        name=name, state="begun", disk_bytes=arrived, licence="not known yet", repository=name, note=note
    )


def _describe_recipe(name: str) -> dict[str, Any]:
    """Whether the project has checked the model's verdicts, and its licence; nothing of a model that has no recipe."""
    recipe = recipes().get(name)
    return {field: getattr(recipe, field) for field in ("verified", "licence", "licence_url")} if recipe else {}


def _estimate_files(files: ModelFiles) -> dict[str, Any]:
    """The memory and the time of a model that is here."""
    seconds = None
    with contextlib.suppress(OutOfMemoryError):
        seconds = predict(plan_engine(files, Settings()))
    memory = estimate_memory(read_shape(files), files.profile, ON_PROCESSOR).cpu_bytes
    return {"memory_bytes": memory, "seconds": seconds, "answers": files.profile.answers}
