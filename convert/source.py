"""Finds what a verb works on: a checkpoint, here or on the hub, or the GGUF files of a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gguf import LlamaFileType

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models import PROJECTORS
from vrt_lite.models.gguf import Header, list_pair, read_gguf
from vrt_lite.pulling.pull_source import SMALL_FILES

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
PATTERNS = (*SMALL_FILES, "model*.safetensors")
UNQUANTIZED = (0, 1, 32)  # F32, F16, BF16, by general.file_type


@dataclass(frozen=True)
class Source:
    """A checkpoint folder. `name` is set if the folder's name is not the model's, as in the hub's cache."""

    folder: Path
    name: str | None = None


def locate(source: str, *, revision: str | None = None, show_progress: bool = False) -> Source:
    """Find a checkpoint: an existing folder, or else the repository OWNER/NAME, downloaded into the hub's cache.

    Raises UsageError for a revision of a folder, ModelError with the reason if there is no such repository.
    """
    if Path(source).exists() or not REPOSITORY.fullmatch(source):
        if revision:
            raise UsageError(f"--revision is {revision!r}, but {source} is no repository: leave it out")
        return Source(Path(source))
    # Slow to import, and not needed for a folder.
    from huggingface_hub import snapshot_download, utils  # noqa: PLC0415

    was_off = utils.are_progress_bars_disabled()
    if not show_progress:
        utils.disable_progress_bars()
    try:
        folder = snapshot_download(source, revision=revision, allow_patterns=list(PATTERNS))
    except Exception as error:  # errors of the hub, of two HTTP clients, and of the file system
        raise ModelError(f"{source} is no folder here, and {_reason(error, revision)}") from error
    finally:
        if not was_off:
            utils.enable_progress_bars()
    return Source(Path(folder), source.partition("/")[2])


def _reason(error: Exception, revision: str | None) -> str:
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    match error:
        case errors.GatedRepoError():
            return "the hub's repository is gated: accept its terms there and run `hf auth login`"
        case errors.RepositoryNotFoundError():
            return "the hub has no such repository, or none that you may read: check the name, or `hf auth login`"
        case errors.RevisionNotFoundError():
            return f"the hub's repository has no revision {revision!r}: check --revision"
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError():
            return "the hub cannot be reached and its cache does not hold it: go online, or give a folder"
    return f"it cannot be had from the hub: {error}"


def find_exact(source: Path, role: Literal["text model", "projector"], *, or_only: bool = False) -> Path:
    """Find the one GGUF of this role that is not quantised, in a folder, or the file itself.

    With `or_only` the only one may be quantised. Raises ModelError.
    """
    wanted = tuple(PROJECTORS) if role == "text model" else ("clip",)
    if not source.exists():
        raise ModelError(f"{source} is neither a folder nor a file: give the folder that `export` wrote")
    paths = list_pair(source)[role == "projector"] if source.is_dir() else [source]
    read = {path: read_gguf(path).values for path in paths}
    headers = {path: header for path, header in read.items() if header.get("general.architecture") in wanted}
    whole = [path for path, header in headers.items() if header.get("general.file_type") in UNQUANTIZED]
    found = whole or (list(headers) if or_only else [])
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f"{source} holds {', '.join(p.name for p in found)}: give one of these files, not the folder")
    if headers:
        types = ", ".join(f"{path.name} ({_type_name(header)})" for path, header in headers.items())
        raise ModelError(
            f"{source} holds the {role} only as {types}: a file quantised twice is worse than one quantised"
            " once; export with --type f16, bf16 or f32 and quantise that"
        )
    raise ModelError(
        f"{source} holds no {role} ({' or '.join(wanted)}) as GGUF: make one with `python -m convert export`"
    )


def _type_name(header: Header) -> str:
    try:
        return LlamaFileType(header.get("general.file_type")).name.removeprefix("MOSTLY_")
    except ValueError:
        return "of no known type"


def projector_beside(text: Path) -> Path | None:
    """Return the projector with the name of a text GGUF, or else the largest in its folder, which is the most exact."""
    projectors = list_pair(text.parent)[1]
    own = text.with_name(f"mmproj-{text.name}")
    return own if own in projectors else max(projectors, key=lambda path: path.stat().st_size, default=None)
