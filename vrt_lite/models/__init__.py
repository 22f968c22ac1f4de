"""Finds the files of a model by name, folder or path, and checks them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vrt_lite.errors import ModelError
from vrt_lite.machine import SMALL_MODEL_BYTES
from vrt_lite.models.gguf import Header, gguf_bytes, list_pair, parts_of, read_gguf, read_header, whole_name
from vrt_lite.models.gguf_check import PROJECTORS, check_projector, check_text, deep_mergers, projector_kind
from vrt_lite.profile import PROFILE_NAME, Profile, default_profile, load_profile, parse_profile

if TYPE_CHECKING:
    from vrt_lite.models.library import StoredModel


BUNDLED: Final = "vrt-tiny-2"
_BUNDLE = Path(__file__).parents[1] / "bundled"
_TYPES = ("f16", "q8_0", "bf16", "f32", "q6_k", "q5_k", "q4_k")
_TYPE = re.compile(r"[-._](bf16|fp?16|fp?32|q8_0|q[456]_k)(?=[-._])")
_MODEL_KEYS: Final = (
    *("general.architecture", "general.name"),
    *(f"{kind}.{key}" for key in ("block_count", "embedding_length") for kind in PROJECTORS),
)
"""These values are the same in all files of one model."""
_NO_TEXT: Final = ("adapter", "imatrix", "mmproj")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A judge's files and its profile.

    `text` was chosen from `texts`, the same model in several types, if a folder was given; of a split file it is the
    first part. `projector` was chosen from `projectors` if none was named.
    """

    name: str
    text: Path
    projector: Path
    profile: Profile
    projectors: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()

    @property
    def is_small(self) -> bool:
        """Whether a judgement takes about a second."""
        return gguf_bytes(self.text) < SMALL_MODEL_BYTES

    @property
    def choice(self) -> str:
        """A line for the user that names the chosen text file; "" if there was no choice."""
        if len(self.texts) < 2:
            return ""
        count = len(self.texts)
        return f"Using {self.text} (of {count} in the folder; to use another, give that file in place of the folder)"


def bundled_names() -> tuple[str, ...]:
    """Judges that come with the package."""
    return tuple(sorted(folder.name for folder in _BUNDLE.iterdir() if (folder / PROFILE_NAME).is_file()))


def find(
    model: str | Path | None = None, *, projector: Path | None = None, memory_bytes: int | None = None
) -> ModelFiles:
    """The files of a judge: a bundled name, a pulled one, a folder, or a text GGUF (with its projector).

    If a folder has several types of one model, the best is taken that fits this machine, or a machine with
    `memory_bytes` (see `best_quant`). ModelError if files are missing or damaged. A folder that has a pulled model's
    name is given as ./NAME.
    """
    name = str(model or BUNDLED)
    path = Path(name)
    if name in bundled_names():
        path = _BUNDLE / name
    elif not isinstance(model, Path) and (pulled := _find_pulled(name)):
        if pulled.damage:
            raise ModelError(f"Model {name} is damaged: {pulled.damage}. Repair it: vrt-lite pull {name}")
        projector = projector or pulled.path("projector")
        return replace(find(pulled.path("text"), projector=projector), name=pulled.manifest.name)
    if path.is_dir():
        texts = _texts_in(path)
    elif path.is_file():
        texts = (parts_of(path)[0],)
    elif projector or path.suffix == ".gguf":
        raise ModelError(f"Model file {path} does not exist.")
    else:
        raise _not_here(name)
    projectors = () if projector else _projectors_in(path if path.is_dir() else path.parent)
    projector = projector or next(iter(projectors))
    if not projector.is_file():
        raise ModelError(f"Projector file {projector} does not exist.")
    text = texts[0] if len(texts) == 1 else _best_text(texts, projector, memory_bytes)
    header = _check(text, projector)
    own = text.parent / PROFILE_NAME
    profile = load_profile(own) if own.is_file() else _default_for(header)
    name = path.name if path.is_dir() else whole_name(text.stem)
    return ModelFiles(name, text, projector, profile, projectors, texts)


def gguf_sha256(path: Path, digest: Callable[[Path], str]) -> str:
    """The sha256 of a GGUF; of a split one, that of its parts' sha256 in hexadecimal, one after another.

    `digest` gives a file's sha256.
    """
    digests = [digest(part) for part in parts_of(path)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def profile_of(model: str | Path | None) -> Profile:
    """VR-Thinker's profile without a name; else that of a profile file, a folder, a recipe, or a judge that is here.

    Raises ModelError if nothing has that name.
    """
    if model is None:
        return default_profile()
    path = Path(model)
    if path.suffix == ".toml" and path.is_file():
        return load_profile(path)
    if path.is_dir() and (path / PROFILE_NAME).is_file():
        return load_profile(path / PROFILE_NAME)
    from vrt_lite.models.library import recipes  # noqa: PLC0415 - as below

    name = str(model)
    if name in recipes() and name not in bundled_names() and not _find_pulled(name):
        return parse_profile(recipes()[name].profile, f"recipe {name}")
    return find(model).profile


def _best_text(texts: tuple[Path, ...], projector: Path, memory_bytes: int | None) -> Path:
    from vrt_lite.models.quants import best_text  # noqa: PLC0415 - only where there is a choice

    return best_text(texts, projector, memory_bytes=memory_bytes)


def _find_pulled(name: str) -> StoredModel | None:
    from vrt_lite.models.library import find_stored  # noqa: PLC0415 - a bundled judge or a file needs neither

    return find_stored(name)


def _not_here(name: str) -> ModelError:
    """The error for an unknown model, with the ones that there are."""
    from vrt_lite.models.library import recipes, stored_models  # noqa: PLC0415 - as above

    pulled = ", ".join(model.manifest.name for model in stored_models())
    return ModelError(
        f"Model {name!r} is not here. Bundled: {', '.join(bundled_names())}.{f' Pulled: {pulled}.' if pulled else ''} "
        f"{f'Fetch it: vrt-lite pull {name}. ' if name in recipes() else ''}"
        "Or give a folder that holds a text GGUF and its mmproj GGUF, or a text GGUF with --projector. "
        "What can be pulled: vrt-lite models"
    )


def _projectors_in(folder: Path) -> tuple[Path, ...]:
    """The folder's projector in each of its types, the default one first.

    Files are one projector in several types if their names differ only in the type.
    """
    _, projectors = list_pair(folder)
    if len({_TYPE.sub("", p.name.lower()) for p in projectors}) != 1:
        names = ", ".join(p.name for p in projectors) or "none"
        raise ModelError(f"Folder {folder} must hold one projector (*mmproj*.gguf); found {names}: give --projector.")
    return tuple(sorted(projectors, key=_type_rank))


def loses_detail(projector: Path) -> bool:
    """Whether a projector's type, by its name, makes a measurable difference to what the judge sees."""
    return _type_rank(projector) >= _TYPES.index("q6_k")


def _type_rank(projector: Path) -> int:
    kind = _TYPE.search(projector.name.lower())
    return _TYPES.index(kind[1].replace("fp", "f")) if kind else 0


def _default_for(header: Header) -> Profile:
    """VR-Thinker's profile, with the clock's rate that the conversion wrote into the file."""
    profile = default_profile()
    rate = header.get("vrt_lite.tokens_per_second")
    if not isinstance(rate, float) or not 0 < rate <= 1000:
        return profile
    return replace(profile, clock=replace(profile.clock, tokens_per_second=rate))


def _check(text_file: Path, projector_file: Path) -> Header:
    """Check that both files are a judge's and fit each other; returns the text's header. Raises ModelError."""
    text_gguf, projector_gguf = read_gguf(text_file), read_gguf(projector_file)
    text, projector = text_gguf.values, projector_gguf.values
    architecture = text.get("general.architecture")
    if architecture not in PROJECTORS:
        hint = " It looks like a projector." if architecture == "clip" else ""
        needed = " or ".join(map(repr, PROJECTORS))
        raise ModelError(f"{text_file} is of architecture {architecture!r}; a judge needs {needed}.{hint}")
    kind, fitting = projector_kind(projector), PROJECTORS[str(architecture)]
    if projector.get("general.architecture") != "clip" or kind not in fitting:
        raise ModelError(
            f"{projector_file} is no projector for a {architecture} model (architecture "
            f"{projector.get('general.architecture')!r}, projector {kind!r}; needed 'clip', "
            f"{' or '.join(map(repr, fitting))})."
        )
    # What is fed to the first layers besides stands behind the embedding, in one vector.
    deep = len(deep_mergers(tensor.name for tensor in projector_gguf.tensors))
    gives = projector_gguf.number("clip.vision.projection_dim") * (1 + deep)
    width = text_gguf.number(f"{architecture}.embedding_length")
    takes = width * (1 + text_gguf.number(f"{architecture}.n_deepstack_layers"))
    if takes != gives:
        raise ModelError(
            f"{projector_file.name} gives vectors of {gives} values, but {text_file.name} takes {takes}: "
            "they belong to different models."
        )
    check_text(text_file, text_gguf)
    check_projector(projector_file, projector_gguf)
    return text


def _texts_in(folder: Path) -> tuple[Path, ...]:
    """The files of the folder's text model, one in each of its types.

    ModelError if there is none, or more than one model.
    """
    paths, _ = list_pair(folder)
    if len(paths) == 1:
        return tuple(paths)
    headers = {path: header for path in paths if _is_text(header := read_header(path))}
    if not headers:
        raise ModelError(f"Folder {folder} must hold one text GGUF; found none.")
    if len({tuple(header.get(key) for key in _MODEL_KEYS) for header in headers.values()}) > 1:
        names = ", ".join(_describe(path, header) for path, header in headers.items())
        raise ModelError(
            f"Folder {folder} holds text GGUFs of different models: {names}. Give one of these files, not the folder."
        )
    return tuple(headers)


def _is_text(header: Header) -> bool:
    return header.get("general.architecture") != "clip" and header.get("general.type") not in _NO_TEXT


def _describe(path: Path, header: Header) -> str:
    architecture, name = header.get("general.architecture"), header.get("general.name")
    layers, width = (header.get(f"{architecture}.{key}") for key in ("block_count", "embedding_length"))
    return f"{path.name} ({name or architecture!r}, {layers} layers of width {width})"
