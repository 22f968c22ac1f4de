"""Finds a checkpoint: a folder here, or a repository on the hub, which is downloaded first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.pulling.checkpoint_files import SMALL_FILES
from vrt_lite.pulling.pull_source import SHARDS

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
PATTERNS = (*SMALL_FILES, SHARDS)


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
