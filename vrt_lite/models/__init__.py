"""Finds the files of a model by name, folder or path, and checks that they may be a judge's.

What the engine trusts in a file is not checked: a file that ends its process ends no other (see `worker`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import (
    Header,
    list_pair,
    parts_of,
    projector_rank,
    read_gguf,
    whole_name,
    without_quant,
)
from vrt_lite.models.library import find_stored, recipes, stored_models
from vrt_lite.profile import BUNDLED, CELLS, PROFILE_NAME, Clock, Profile, default_profile, load_profile, parse_profile

PROJECTORS: Final = {
    "qwen2vl": ("qwen2vl_merger", "qwen2.5vl_merger"),
    "qwen3vl": ("qwen3vl_merger",),
}
"""The kinds of projectors that a text model of each architecture has."""
_BUNDLE = Path(__file__).parents[1] / "bundled"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A judge's files and its profile.

    `text` is the first part of a split file. `projector` was chosen from `projectors`, one in several types, if none
    was named. A model without a profile is given VR-Thinker's: `has_profile` is False.
    """

    name: str
    text: Path
    projector: Path
    profile: Profile
    projectors: tuple[Path, ...] = ()
    has_profile: bool = True


def bundled_names() -> tuple[str, ...]:
    """Judges that come with the package."""
    return tuple(sorted(folder.name for folder in _BUNDLE.iterdir() if (folder / PROFILE_NAME).is_file()))


def find(model: str | Path | None = None, *, projector: Path | None = None) -> ModelFiles:
    """The files of a judge: a bundled name, a pulled one, a folder, or a text GGUF (with its projector).

    ModelError if files are missing or damaged. A folder that has a pulled model's name is given as ./NAME.
    """
    name = str(model or BUNDLED)
    path = Path(name)
    if name in bundled_names():
        path = _BUNDLE / name
    elif not isinstance(model, Path) and (pulled := find_stored(name)):
        if pulled.damage:
            raise ModelError(f"Model {name} is damaged: {pulled.damage}. Repair it: vrt-lite pull {name}")
        projector = projector or pulled.path("projector")
        return replace(find(pulled.path("text"), projector=projector), name=pulled.manifest.name)
    if not path.exists():
        raise _not_here(path)
    texts, projectors = list_pair(path) if path.is_dir() else (parts_of(path)[:1], list_pair(path.parent)[1])
    projectors = [projector] if projector else sorted(projectors, key=lambda path: projector_rank(path.name))
    # Projectors whose names differ only in the type are one.
    kinds = {without_quant(path.name): path for path in projectors}
    for what, found in (("text GGUF", texts), ("projector (*mmproj*.gguf)", [*kinds.values()])):
        if len(found) != 1:
            names = ", ".join(path.name for path in found) or "none"
            raise ModelError(
                f"{path} needs one {what} in its folder; found {names}. Give the text GGUF, not the folder, and the "
                "other file with --projector."
            )
    text, projector = texts[0], projectors[0]
    header = _check(text, projector)
    own = text.parent / PROFILE_NAME
    profile = load_profile(own) if own.is_file() else _default_for(header)
    profile = replace(profile, cell=CELLS[str(header["general.architecture"])])
    name = path.name if path.is_dir() else whole_name(text.stem)
    return ModelFiles(name, text, projector, profile, tuple(projectors), own.is_file())


def profile_of(model: str | Path | None) -> Profile:
    """VR-Thinker's profile without a name; else that of a profile file, a folder, a recipe, or a judge that is here.

    Raises ModelError if nothing has that name.
    """
    if model is None:
        return default_profile()
    name, path = str(model), Path(model)
    if (path / PROFILE_NAME).is_file():
        path /= PROFILE_NAME
    if path.suffix == ".toml" and path.is_file():
        return load_profile(path)
    if (recipe := recipes().get(name)) and recipe.profile and not find_stored(name):
        return parse_profile(recipe.profile, f"recipe {name}")
    return find(model).profile


def _not_here(path: Path) -> ModelError:
    """The error for an unknown model, with the way to get it, or with the models that there are."""
    here = [*bundled_names(), *(model.manifest.name for model in stored_models())]
    if path.name in here:
        step = f"A model of that name is: use it with --model {path.name}"
    elif path.name in recipes():
        step = f"Fetch the model of that name with vrt-lite pull {path.name}, and use it with --model {path.name}"
    else:
        step = (
            f"Here are: {', '.join(here)}. Or give a folder that holds a text GGUF and its mmproj GGUF, or a text GGUF "
            "with --projector. What can be pulled: vrt-lite models"
        )
    return ModelError(f"Model {str(path)!r} is not here. {step}")


def _default_for(header: Header) -> Profile:
    """VR-Thinker's profile, with the clock's rate that the conversion wrote into the file; Qwen3-VL tells it in words.

    Its frames have as many visual tokens, which are larger.
    """
    profile = default_profile()
    if (cell := CELLS[str(header["general.architecture"])]) != profile.cell:
        bounds = ("min_pixels", "max_pixels", "tool_min_pixels", "tool_max_pixels")
        larger = {name: getattr(profile, name) // profile.pixels_per_token * cell**2 for name in bounds}
        return replace(profile, clock=Clock("text"), **larger)
    rate = header.get("vrt_lite.tokens_per_second")
    if isinstance(rate, float) and 0 < rate <= 1000:
        profile = replace(profile, clock=replace(profile.clock, tokens_per_second=rate))
    return profile


def _check(text_file: Path, projector_file: Path) -> Header:
    """Check that both files are a judge's and fit each other; returns the text's header. Raises ModelError."""
    text, projector = read_gguf(text_file), read_gguf(projector_file)
    architecture = str(text.values.get("general.architecture"))
    if architecture not in PROJECTORS:
        needed = " or ".join(map(repr, PROJECTORS))
        raise ModelError(
            f"{text_file} is of architecture {architecture!r}; a judge needs {needed}, a projector 'clip'."
        )
    kind = projector.values.get("clip.projector_type", projector.values.get("clip.vision.projector_type"))
    if kind not in PROJECTORS[architecture]:
        needed = " or ".join(map(repr, PROJECTORS[architecture]))
        raise ModelError(
            f"{projector_file} is no projector for a {architecture} model: its kind is {kind!r}, not {needed}."
        )
    for path, gguf, prefix in ((text_file, text, architecture), (projector_file, projector, "clip.vision")):
        for key in (f"{prefix}.block_count", f"{prefix}.embedding_length", f"{prefix}.attention.head_count"):
            if not 0 < (number := gguf.number(key)) < 2**16:  # no judge has more layers, or values of a vector
                raise ModelError(f"{path} cannot be a judge: its {key} is {number}. Copy or download it again.")
    if "token_embd.weight" not in {tensor.name for tensor in text.tensors}:
        raise ModelError(f"{text_file} has no tensor token_embd.weight. Copy or download it again.")
    # What is fed to the first layers besides stands behind the embedding, in one vector.
    deep = sum(t.name.startswith("v.deepstack.") and t.name.endswith(".fc1.weight") for t in projector.tensors)
    gives = projector.number("clip.vision.projection_dim") * (1 + deep)
    takes = text.number(f"{architecture}.embedding_length") * (1 + text.number(f"{architecture}.n_deepstack_layers"))
    if takes != gives:
        raise ModelError(
            f"{projector_file.name} gives vectors of {gives} values, but {text_file.name} takes {takes}: "
            "they belong to different models."
        )
    return text.values
