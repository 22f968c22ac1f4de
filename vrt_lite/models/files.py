"""Finds a judge's files and says what is wrong with them before an engine sees them.

A judge is a text GGUF, a projector GGUF and, if one lies beside them, a profile; bundled, pulled, or anywhere. Knows
what in a GGUF's header names a broken or mismatched file; the engine alone reads weights.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.folder import best_text, texts_in
from vrt_lite.models.gguf import Header, read_header
from vrt_lite.models.recipes import recipes
from vrt_lite.models.store import find_stored, stored
from vrt_lite.profile import PROFILE_NAME, Profile, default_profile, load_profile

BUNDLED: Final = "vrt-tiny-1"
_BUNDLE = Path(__file__).parents[1] / "bundled"
_TYPES = ("f16", "q8_0", "bf16", "f32")
_TYPE = re.compile(r"[-._](bf16|fp?16|fp?32|q8_0)(?=[-._])")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A judge's files and how it talks.

    `texts` and `projectors` are what `text` and `projector` were chosen from: the same model in several types, where a
    folder was given, and the same projector, where none was named.
    """

    name: str
    text: Path
    projector: Path
    profile: Profile
    projectors: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()

    @property
    def choice(self) -> str:
        """A line that says which text file was chosen; "" if there was no choice."""
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

    Of several types of one model in a folder the best is taken that fits this machine, or one of `memory_bytes` (see
    `best_quant`). ModelError if they are not whole. A folder that has a pulled model's name is given as ./NAME.
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
    if path.is_dir():
        texts = texts_in(path)
    elif path.is_file():
        texts = {path: ""}
    elif projector or path.suffix == ".gguf":
        raise ModelError(f"Model file {path} does not exist.")
    else:
        here = ", ".join(model.manifest.name for model in stored())
        raise ModelError(
            f"Model {name!r} is not here. Bundled: {', '.join(bundled_names())}.{f' Pulled: {here}.' if here else ''} "
            f"{f'Fetch it: vrt-lite pull {name}. ' if name in recipes() else ''}"
            "Or give a folder that holds a text GGUF and its mmproj GGUF, or a text GGUF with --projector. "
            "What can be pulled: vrt-lite models"
        )
    beside = () if projector else _projectors_in(path if path.is_dir() else path.parent)
    projector = projector or next(iter(beside))
    if not projector.is_file():
        raise ModelError(f"Projector file {projector} does not exist.")
    text = best_text(texts, projector, memory_bytes=memory_bytes)
    header = _check(text, projector)
    own = text.parent / PROFILE_NAME
    profile = load_profile(own) if own.is_file() else _default_for(header)
    name = path.name if path.is_dir() else text.stem
    return ModelFiles(name, text, projector, profile, beside, tuple(texts))


def sha256(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _projectors_in(folder: Path) -> tuple[Path, ...]:
    """The folder's projector, in the types that lie there: the one to take if nothing more is known comes first.

    Files are one projector in several types if their names differ by the type alone.
    """
    found = sorted(folder.glob("*mmproj*.gguf"))
    if len({_TYPE.sub("", p.name.lower()) for p in found}) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise ModelError(f"Folder {folder} must hold one projector (*mmproj*.gguf); found {names}: give --projector.")
    return tuple(sorted(found, key=_type_rank))


def _type_rank(projector: Path) -> int:
    kind = _TYPE.search(projector.name.lower())
    return _TYPES.index(kind[1].replace("fp", "f")) if kind else 0


def _default_for(header: Header) -> Profile:
    """VR-Thinker's profile, with the clock's rate that the conversion carried along."""
    profile = default_profile()
    rate = header.get("vrt_lite.tokens_per_second")
    if not isinstance(rate, float) or not 0 < rate <= 1000:
        return profile
    return replace(profile, clock=replace(profile.clock, tokens_per_second=rate))


def _check(text_file: Path, projector_file: Path) -> Header:
    """Refuse, by name and reason, what the engine would refuse without one or take wrongly; the text's header."""
    text, projector = read_header(text_file), read_header(projector_file)
    architecture = text.get("general.architecture")
    if architecture != "qwen2vl":
        hint = " It looks like a projector." if architecture == "clip" else ""
        raise ModelError(f"{text_file} is of architecture {architecture!r}; a judge needs 'qwen2vl'.{hint}")
    kind = projector.get("clip.projector_type", projector.get("clip.vision.projector_type"))
    if projector.get("general.architecture") != "clip" or kind != "qwen2.5vl_merger":
        raise ModelError(
            f"{projector_file} is no Qwen2.5-VL projector (architecture "
            f"{projector.get('general.architecture')!r}, projector {kind!r}; needed 'clip', 'qwen2.5vl_merger')."
        )
    width, gives = text.get("qwen2vl.embedding_length"), projector.get("clip.vision.projection_dim")
    if width != gives:
        raise ModelError(
            f"{projector_file.name} gives vectors of {gives} values, but {text_file.name} takes {width}: "
            "they belong to different models."
        )
    return text
