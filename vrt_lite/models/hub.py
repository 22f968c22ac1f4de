"""The Hugging Face hub: what a repository lists, and its files, fetched and checked.

Only this module uses huggingface_hub, and of it the public functions. Each of its errors becomes a ModelError with the
next step. The client resumes a connection that is cut; a file whose download ends is fetched again as a whole.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from vrt_lite.disk import HOME_VARIABLE
from vrt_lite.errors import ModelError
from vrt_lite.machine import SPARE_BYTES, format_bytes
from vrt_lite.models.library import delete, is_whole

Kind = Literal["model", "dataset"]
Advance = Callable[[int], None]
"""Called with bytes that arrived. What it raises ends the download."""


class Transfer(Protocol):
    """Shows a user how fetching and converting go."""

    def say(self, line: str) -> None:
        """Show a line."""

    def begin(self, words: str, total: int) -> None:
        """Show from now on how much of the work is done: `total` is its size, in bytes."""

    def advance(self, count: int) -> None:
        """Add to the work that is done. Any thread may call it."""


class Unseen(Transfer):
    """Shows nothing."""


class UnreachableError(ModelError):
    """The hub does not give what it is asked for. A model that is here already may be enough."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub lists it; `sha256` is "" where the hub keeps none (small text files)."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit. `licence` is "" where the hub does not say.

    `base` is the listing of the model that this one was made from, where files are taken from both.
    """

    repository: str
    revision: str
    licence: str
    files: tuple[HubFile, ...]
    kind: Kind = "model"
    base: Listing | None = None

    @property
    def commits(self) -> str:
        """The commit, and behind a plus sign that of the base."""
        return f"{self.revision}+{self.base.revision}" if self.base else self.revision


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, or the public one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def list_repository(repository: str, revision: str = "", *, kind: Kind = "model") -> Listing:
    """List a repository at a revision (its main branch if ""), with the commit that this is now."""
    with _hub_errors(repository):
        from huggingface_hub import HfApi

        info: Any = HfApi(endpoint()).repo_info(
            repository, repo_type=kind, revision=revision or None, files_metadata=True
        )
    if not re.fullmatch("[0-9a-f]{40}", info.sha or ""):  # it becomes a folder's name
        raise ModelError(
            f"{endpoint()} gave no commit for {repository}; it does not seem to be a hub. See HF_ENDPOINT."
        )
    licences = (tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:"))
    return Listing(
        repository,
        info.sha,
        licence=next(licences, ""),
        files=tuple(HubFile(f.rfilename, f.size or 0, f.lfs.sha256 if f.lfs else "") for f in info.siblings or ()),
        kind=kind,
    )


def download(listed: Listing, file: HubFile, to: Path, advance: Advance) -> None:
    """Download a file to `to`, which is there only once size and digest are those that are listed; one there is kept.

    Until then it is in a folder beside it, one file at a time. ModelError if it arrives damaged, or the connection or
    the disk fails.
    """
    if is_whole(to, file.size, file.sha256):
        return advance(file.size)
    folder = to.parent / ".arriving"
    delete(folder)  # what a killed process left
    try:
        with _hub_errors(listed.repository):
            _fetch(listed, file, folder, advance)
        arrived = folder / file.path
        if not is_whole(arrived, file.size, file.sha256):
            raise _damaged(listed, file)
        arrived.replace(to)
    finally:
        delete(folder)


def _damaged(listed: Listing, file: HubFile) -> ModelError:
    return ModelError(
        f"{file.name} of {listed.repository} arrived damaged: it is not what the hub lists. It was deleted. Pull "
        "again; if it stays so, use another network, or the source is damaged."
    )


def _fetch(listed: Listing, file: HubFile, folder: Path, advance: Advance) -> None:
    import huggingface_hub

    client, counted = cast("Any", huggingface_hub), 0  # only partly typed

    class Bar(client.utils.tqdm):
        """Counts in place of the client's bar, of which there may be several for a file."""

        n: int

        def update(self, n: int = 1) -> None:
            """Count bytes once each, also if the client begins again, and no more than the hub lists."""
            nonlocal counted
            self.n += n
            if self.n > file.size:
                raise _damaged(listed, file)
            if self.n > counted:
                new, counted = self.n - counted, self.n
                advance(new)

    client.utils.logging.set_verbosity_error()
    client.utils.disable_progress_bars()
    fetch = client.hf_hub_download
    # Releases below 1, which transformers 4.57 needs, tell nothing.
    more: dict[str, Any] = {"tqdm_class": Bar} if "tqdm_class" in inspect.signature(fetch).parameters else {}
    more |= {"repo_type": listed.kind, "revision": listed.revision, "endpoint": endpoint(), "local_dir": folder}
    fetch(listed.repository, file.path, **more)
    advance(file.size - counted)


@contextlib.contextmanager
def _hub_errors(repository: str) -> Generator[None]:
    """Turn any error of the client, or of its HTTP library, into a ModelError: one line with the next step.

    Raises OSError if the disk cannot be written.
    """
    from huggingface_hub import errors

    try:
        yield
    except ModelError:
        raise
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repository} is gated: accept its licence at {endpoint()}/{repository}, then `hf auth login` and pull it."
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        response = getattr(error, "response", None)
        reason = f"status {response.status_code}" if response is not None else " ".join(str(error).split())
        told = f"gave nothing usable for {repository}"
        step = "Check the connection and pull again; what has arrived whole is kept."
        if response is not None and response.status_code in (401, 403, 404):  # missing or private
            told = f"has no {repository}, or not all of its files, or wants a login"
            step = "Check the name; for what is private: `hf auth login`."
        raise UnreachableError(f"{endpoint()} {told} ({reason or type(error).__name__}). {step}") from error


def check_free_space(folder: Path, needed_bytes: int) -> None:
    """Check that a folder's disk has room for `needed_bytes`, with `SPARE_BYTES` left; ModelError if it has not."""
    free = shutil.disk_usage(folder).free
    if needed_bytes + SPARE_BYTES > free:
        raise ModelError(
            f"{format_bytes(needed_bytes)} are still to come and {folder} has {format_bytes(free)} free; "
            f"{format_bytes(SPARE_BYTES)} stay free. Free some, remove a model (vrt-lite rm), or set {HOME_VARIABLE} "
            "to another disk."
        )
