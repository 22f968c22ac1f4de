"""Finds a judge's files and says what is wrong with them before an engine sees them.

A judge is a text GGUF, a projector GGUF and, if one lies beside them, a profile; bundled, pulled, or anywhere. Knows
GGUF's header (magic, metadata, tensor extents) as far as it takes to name a broken or mismatched file; the engine alone
reads weights.
The gguf package is not used here: it builds Python objects of a whole vocabulary and trusts every count.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from vrt_lite.errors import ModelError
from vrt_lite.profile import PIXELS_PER_TOKEN, PROFILE_NAME, Profile, default_profile, load_profile
from vrt_lite.recipes import recipes
from vrt_lite.store import find_stored, stored

BUNDLED: Final = "vrt-tiny-0"
_BUNDLE = Path(__file__).parent / "bundled"
_MOST_ENTRIES = 2_000_000
_LONGEST_STRING = 2**26
_PROMPT_TOKENS = 1500
_COMPUTE_BYTES = 300 * 2**20
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SHAPE = ("block_count", "attention.head_count", "attention.head_count_kv", "embedding_length")
Value = str | int | float | bool
Header = dict[str, Value]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A judge's files and how it talks."""

    name: str
    text: Path
    projector: Path
    profile: Profile


def bundled_names() -> tuple[str, ...]:
    """Judges that come with the package."""
    return tuple(sorted(folder.name for folder in _BUNDLE.iterdir() if (folder / PROFILE_NAME).is_file()))


def find(model: str | Path | None = None, *, projector: Path | None = None) -> ModelFiles:
    """The files of a judge: a bundled name, a pulled one, a folder, or a text GGUF (with its projector).

    ModelError if they are not whole. A folder that has a pulled model's name is given as ./NAME.
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
        text, found = _pair_in(path)
        projector = projector or found
    elif path.is_file():
        text = path
        projector = projector or _only(path.parent, "*mmproj*.gguf", "give --projector")
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
    if not projector.is_file():
        raise ModelError(f"Projector file {projector} does not exist.")
    header = _check(text, projector)
    beside = text.parent / PROFILE_NAME
    profile = load_profile(beside) if beside.is_file() else _default_for(header)
    return ModelFiles(path.name if path.is_dir() else text.stem, text, projector, profile)


def memory_needed(files: ModelFiles) -> int:
    """Bytes that judging with the profile's defaults takes, about: weights, projector, F16 cache, compute buffers.

    The engine makes its context for the conversation at hand; this is for clips that are shown at the full size, with
    half of the rounds' replies at their longest.
    """
    header, profile = read_header(files.text), files.profile
    numbers = (header.get(f"qwen2vl.{key}") for key in _SHAPE)
    layers, heads, kv_heads, width = (number if isinstance(number, int) else 0 for number in numbers)
    per_token = 4 * layers * kv_heads * (width // max(heads, 1))
    frames = 2 * profile.first_frames + 2 * profile.frames_per_call * min(profile.window + 1, profile.rounds)
    written = profile.rounds * profile.max_new_tokens // 2
    tokens = _PROMPT_TOKENS + frames // 2 * (profile.max_pixels // PIXELS_PER_TOKEN) + written
    return files.text.stat().st_size + files.projector.stat().st_size + per_token * tokens + _COMPUTE_BYTES


def sha256(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pair_in(folder: Path) -> tuple[Path, Path]:
    projector = _only(folder, "*mmproj*.gguf", "give --projector")
    texts = sorted(p for p in folder.glob("*.gguf") if "mmproj" not in p.name)
    if len(texts) != 1:
        found = ", ".join(p.name for p in texts) or "none"
        raise ModelError(f"Folder {folder} must hold one text GGUF; found {found}. Name the file with --model.")
    return texts[0], projector


def _only(folder: Path, pattern: str, advice: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise ModelError(f"Folder {folder} must hold one projector ({pattern}); found {names}: {advice}.")
    return found[0]


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


def read_header(path: Path) -> Header:
    """A GGUF's scalar and string metadata; ModelError if the file is no whole GGUF. Arrays are passed over."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path).read()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not a whole GGUF file: {error}. Copy, download or convert it again.") from error


class _Reader:
    """A bounded reader: no count or length in the file is believed beyond the file's own size."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._size = path.stat().st_size

    def read(self) -> Header:
        if (magic := self._bytes(4)) != b"GGUF":
            raise ValueError(f"it begins with {magic!r}, not b'GGUF'")
        if (version := self._scalar("I")) not in (2, 3):
            raise ValueError(f"its version is {version}; 2 and 3 are readable")
        tensors, entries = self._count(), self._count()
        values: Header = {}
        for _ in range(entries):
            key = self._string()
            value = self._value(self._scalar("I"))
            if value is not None:
                values[key] = value
        furthest = 0
        for _ in range(tensors):
            self._string()
            dimensions = self._scalar("I")
            if dimensions > 4:
                raise ValueError(f"a tensor has {dimensions} dimensions")
            self._bytes(8 * dimensions + 4)
            furthest = max(furthest, self._scalar("Q"))
        alignment = values.get("general.alignment", 32)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        start = -(-self._file.tell() // step) * step
        if start + furthest >= self._size:
            raise ValueError(f"it ends at byte {self._size}, before its last tensor begins at {start + furthest}")
        return values

    def _value(self, kind: int) -> Value | None:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"a metadata value has the unknown type {kind}")
        item, count = self._scalar("I"), self._count(_LONGEST_STRING)
        if item == _STRING:
            for _ in range(count):
                self._bytes(self._scalar("Q"))
        elif item in _SCALARS:
            self._bytes(count * struct.calcsize(_SCALARS[item]))
        else:
            raise ValueError(f"a metadata array has the unknown type {item}")
        return None

    def _count(self, most: int = _MOST_ENTRIES) -> int:
        count = self._scalar("Q")
        if count > min(most, self._size):
            raise ValueError(f"it claims {count} entries in {self._size} bytes")
        return count

    def _string(self) -> str:
        return self._bytes(self._scalar("Q")).decode(errors="replace")

    def _scalar(self, code: str) -> int:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}")))[0]

    def _bytes(self, count: int) -> bytes:
        if count > _LONGEST_STRING or count > self._size - self._file.tell():
            raise ValueError(f"it ends at byte {self._size}, inside its header")
        return self._file.read(count)
