"""The Hugging Face hub: what a repository lists, and its files, fetched, resumed and checked.

Only this module uses huggingface_hub. Each of its errors becomes a ModelError with the next step. Files are downloaded
with the client's `http_get`, not with `hf_hub_download`: since release 2 that deletes a download that was interrupted,
and a model is too large to begin again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast
from urllib.parse import quote

from vrt_lite.disk import HOME_VARIABLE, file_sha256
from vrt_lite.errors import ModelError
from vrt_lite.machine import explain_full_disk, format_bytes
from vrt_lite.models.bounded_file import Advance, BoundedFile, OversizedError

Kind = Literal["model", "dataset"]
_MOST_DESCRIPTION_BYTES: Final = 64 * 2**20
_CHUNK_BYTES: Final = 2**20
_IDLE_TRIES: Final = 2
_HTTP_LIBRARIES: Final = ("http", "requests", "urllib3")  # httpx, httpx2, httpcore: by the client's release
_OFFLINE = "HF_HUB_OFFLINE is set, so the hub was not asked. Unset it, or use what `vrt-lite models` shows as here."
Report = Callable[[str], None]
"""Called with a line for the user at each stage."""


class Progress(Protocol):
    """Shows a user how a long download goes."""

    def say(self, line: str) -> None:
        """Show a line."""
        ...

    def begin(self, words: str, total: int) -> None:
        """Show from now on how much of the work is done: `total` is its size, in bytes."""
        ...

    def advance(self, count: int) -> None:
        """Add to the work that is done. Any thread may call it."""
        ...


class UnreachableError(ModelError):
    """The hub cannot be reached now. A model that is here already may be enough."""


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
    """A repository at one commit. `licence`, `architecture` and `base_model` are "" where the hub does not say.

    `base_model` is the repository of the model that this one was made from.
    """

    repository: str
    revision: str
    licence: str
    architecture: str
    files: tuple[HubFile, ...]
    kind: Kind = "model"
    base_model: str = ""


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, or the public one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def list_repository(repository: str, revision: str = "", *, kind: Kind = "model") -> Listing:
    """List a repository at a revision (its main branch if ""), with the commit that this is now."""
    with _hub_errors(repository):
        from huggingface_hub import DatasetInfo, ModelInfo

        described = _read_description(repository, revision, kind)
        info = ModelInfo(**described) if kind == "model" else DatasetInfo(**described)
    files: list[HubFile] = []
    for sibling in info.siblings or ():
        lfs = cast("Any", sibling.lfs)
        files.append(HubFile(sibling.rfilename, int(sibling.size or 0), str(lfs.sha256) if lfs else ""))
    licences = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    bases = [tag.rpartition(":")[2] for tag in info.tags or () if tag.startswith("base_model:")]
    gguf: dict[str, Any] = getattr(info, "gguf", None) or {}
    if not info.sha:
        raise ModelError(
            f"{endpoint()} gave no commit for {repository}; it does not seem to be a hub. See HF_ENDPOINT."
        )
    architecture, base = str(gguf.get("architecture", "")), next(iter(bases), "")
    return Listing(repository, info.sha, ", ".join(licences), architecture, tuple(files), kind, base)


def _read_description(repository: str, revision: str, kind: Kind) -> dict[str, Any]:
    """Return what the hub says of a repository. OversizedError if it is too much, which the client does not notice."""
    from huggingface_hub import file_download, utils

    client, tools = cast("Any", file_download), cast("Any", utils)
    tools.validate_repo_id(repository)
    tools.logging.set_verbosity_error()
    tools.disable_progress_bars()
    at = f"/revision/{quote(revision, safe='')}" if revision else ""
    with tempfile.TemporaryDirectory() as folder:
        with BoundedFile(path := Path(folder) / "description", _MOST_DESCRIPTION_BYTES, lambda _: None) as to:
            url = f"{endpoint()}/api/{kind}s/{repository}{at}?blobs=true"
            client.http_get(url, to, headers=tools.build_hf_headers(), _nb_retries=0)
        return json.loads(path.read_bytes())


def fetch(listed: Listing, file: HubFile, part: Path, advance: Advance | None = None) -> None:
    """Download the rest of a file to `part`. ModelError if the connection or the disk fails.

    It reconnects as long as each connection brings data, and once after one that brought none. The file may still be
    too short, or a byte too long, if the source is: the caller checks size and digest. Without `advance` the client
    shows a progress bar of its own.
    """
    idle = 0
    while True:
        before = part.stat().st_size if part.is_file() else 0
        try:
            _fetch(listed, file, part, advance)
            return
        except UnreachableError:
            idle = idle + 1 if held_bytes(part) == before else 0
            if idle == _IDLE_TRIES:
                raise
            time.sleep(1)


def _fetch(listed: Listing, file: HubFile, part: Path, advance: Advance | None) -> None:
    with _hub_errors(listed.repository):
        from huggingface_hub import constants, file_download, hf_hub_url, utils

        client = cast("Any", file_download)  # only partly typed
        utils.logging.set_verbosity_error()
        # An interruption loses at most one chunk: one mebibyte instead of ten.
        setattr(constants, "DOWNLOAD_CHUNK_SIZE", _CHUNK_BYTES)  # noqa: B010 - a constant to the type checker
        shown = not advance and sys.stderr and sys.stderr.isatty()
        utils.enable_progress_bars() if shown else utils.disable_progress_bars()
        url = hf_hub_url(
            listed.repository, file.path, repo_type=listed.kind, revision=listed.revision, endpoint=endpoint()
        )
        # A compressed answer could not be resumed, and says nothing about its length.
        headers = {**cast("Any", utils).build_hf_headers(), "Accept-Encoding": "identity"}
        with BoundedFile(part, file.size, advance or (lambda _: None)) as to:
            try:
                client.http_get(
                    url,
                    to,
                    resume_size=to.tell(),
                    headers=headers,
                    expected_size=file.size,
                    displayed_filename=file.name,
                )
            except OversizedError:
                pass
            except OSError as error:
                if type(error) is not OSError or error.errno is not None:
                    raise
                # The client's own consistency check: the source is shorter than it is listed.
            to.flush()
            os.fsync(to.fileno())


@contextlib.contextmanager
def _hub_errors(repository: str) -> Generator[None]:
    """Turn any error of the client, or of its HTTP library, into a ModelError: one line with the next step."""
    try:
        yield
    except ModelError:
        raise
    except ImportError as error:
        raise ModelError(
            f"huggingface_hub cannot be used ({error}). Install it: pip install huggingface-hub"
        ) from error
    except Exception as error:
        raise _explain(error, repository) from error


def _explain(error: Exception, repository: str) -> ModelError:
    from huggingface_hub import errors

    hub = endpoint()
    reason = " ".join(str(error).split()) or type(error).__name__
    match error:
        case errors.OfflineModeIsEnabled():
            return UnreachableError(_OFFLINE)
        case OversizedError():
            text = (
                f"{hub} describes {repository} in more than {format_bytes(_MOST_DESCRIPTION_BYTES)}. See HF_ENDPOINT."
            )
        case errors.GatedRepoError():
            text = f"{repository} is gated: accept its licence at {hub}/{repository}, then `hf auth login` and pull it."
        case errors.RevisionNotFoundError():
            text = f"{repository} has no such revision any more. Pull what it has now: vrt-lite pull {repository}"
        case errors.RepositoryNotFoundError():
            text = f"{repository} is not at {hub}, or is private. Check the name; for a private one: hf auth login"
        case errors.HFValidationError():
            text = f"{repository!r} is no repository name; give owner/repo."
        case errors.HfHubHTTPError():
            status = error.response.status_code
            text = f"{hub} answered {status} for {repository}."
            if status >= 500 or status in (408, 429):
                return UnreachableError(f"{text} Pull again later; it goes on where it stopped.")
            text = f"{text} Check the name, or `hf auth login`."
        case OSError() if error.errno is not None:
            file = error.filename or "The download"
            text = f"{file} cannot be written: {error.strerror}. Free some space, then pull again."
        case _ if type(error).__module__.startswith(_HTTP_LIBRARIES):
            return UnreachableError(
                f"{hub} cannot be reached, or closed the connection ({reason}). "
                "Check the connection and pull again; it goes on where it stopped."
            )
        case _:
            text = f"{hub} gave no usable answer for {repository}: {type(error).__name__}: {reason}"
    return ModelError(text)


def download(
    listed: Listing, file: HubFile, to: Path, *, sha256: str, report: Report, advance: Advance | None = None
) -> bool:
    """Download a file to `to`, from where an earlier download stopped. `sha256` is "" where it is not known.

    Until size and digest are right it is next to `to`, under the digest's name. Returns whether the first download was
    damaged; ModelError if the second is damaged too.
    """
    part = part_of(to, sha256)
    damage = ""
    for _ in range(2):
        held = held_bytes(part)
        if part.is_symlink() or held > file.size:
            part.unlink()
        elif held:
            report(f"{file.name}: going on at {format_bytes(held)} of {format_bytes(file.size)}")
        fetch(listed, file, part, advance)
        if is_whole(part, file.size, sha256):
            part.replace(to)
            return bool(damage)
        held = part.stat().st_size
        damage = f"it has {held} bytes, not {file.size}" if held != file.size else f"its sha256 is not {sha256[:12]}…"
        if held > file.size:
            damage = f"it goes on after its {file.size} bytes"
        part.unlink()
        if advance:
            advance(-held)
        report(f"{file.name}: arrived damaged ({damage}) and was deleted")
    raise ModelError(
        f"{file.name} of {listed.repository} arrived damaged twice ({damage}); it was deleted. "
        "Pull again later, or from another network; if it stays so, the source is damaged."
    )


def part_of(to: Path, sha256: str) -> Path:
    """Where a file is while it arrives. The digest in its name keeps versions apart."""
    return to.with_name(f"{sha256 or to.name}.part")


def is_whole(path: Path, size: int, sha256: str) -> bool:
    """Whether a regular file, not a link, is there with this size and this digest ("" for any)."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        return False
    return not sha256 or file_sha256(path) == sha256


def held_bytes(path: Path) -> int:
    """The size of a file; 0 if it is not there."""
    return path.stat().st_size if path.is_file() else 0


def check_free_space(folder: Path, needed_bytes: int) -> None:
    """Check that a folder's disk has room for `needed_bytes`; ModelError if it has not."""
    if reason := explain_full_disk(folder, needed_bytes):
        raise ModelError(f"{reason} Free some, remove a model (vrt-lite rm), or set {HOME_VARIABLE} to another disk.")
