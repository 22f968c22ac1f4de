"""The Hugging Face hub: what a repository lists, and one file of it, resumed. huggingface_hub is used here alone.

Knows the hub's errors and turns each into a ModelError with the next step. Refuses to know which file is wanted, what
it must hash to and where models lie. Files are fetched with the client's own `http_get`, not with `hf_hub_download`:
since its release 2, a download that dies is thrown away, and a model is too large to begin again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from vrt_lite.errors import ModelError

Kind = Literal["model", "dataset"]
_SECONDS: Final = 20.0
_CHUNK_BYTES: Final = 2**20
_IDLE_TRIES: Final = 2
_HTTP_LIBRARIES: Final = ("http", "requests", "urllib3")  # httpx, httpx2, httpcore: by the client's release
_OFFLINE = "HF_HUB_OFFLINE is set, so the hub was not asked. Unset it, or use what `vrt-lite models` shows as here."


class UnreachableError(ModelError):
    """The hub cannot be asked now; what is here already may still do."""


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
    """A repository at one commit. `licence` and `architecture` are "" where the hub does not say."""

    repository: str
    revision: str
    licence: str
    architecture: str
    files: tuple[HubFile, ...]
    kind: Kind = "model"


def endpoint() -> str:
    """The hub's address: HF_ENDPOINT, or the public one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def listing(repository: str, revision: str = "", *, kind: Kind = "model") -> Listing:
    """What a repository holds at a revision (its main branch if ""), with the commit that this is now."""
    with _border(repository):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=endpoint())
        ask = api.model_info if kind == "model" else api.dataset_info
        info = ask(repository, revision=revision or None, files_metadata=True, timeout=_SECONDS)
    files: list[HubFile] = []
    for sibling in info.siblings or ():
        lfs = cast("Any", sibling.lfs)
        files.append(HubFile(sibling.rfilename, int(sibling.size or 0), str(lfs.sha256) if lfs else ""))
    licences = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    gguf: dict[str, Any] = getattr(info, "gguf", None) or {}
    if not info.sha:
        raise ModelError(
            f"{endpoint()} gave no commit for {repository}; it does not seem to be a hub. See HF_ENDPOINT."
        )
    return Listing(repository, info.sha, ", ".join(licences), str(gguf.get("architecture", "")), tuple(files), kind)


def fetch(listed: Listing, file: HubFile, part: Path) -> None:
    """Bring `part` to the file's whole length, from where it is. ModelError if the connection or the disk gives out.

    A connection that breaks off is made again while it brings anything, and once when it does not. The file may still
    be shorter if the source is; that and its digest are the caller's to check.
    """
    idle = 0
    while True:
        before = part.stat().st_size if part.is_file() else 0
        try:
            _fetch(listed, file, part)
            return
        except UnreachableError:
            idle = idle + 1 if part.stat().st_size == before else 0
            if idle == _IDLE_TRIES:
                raise
            time.sleep(1)


def _fetch(listed: Listing, file: HubFile, part: Path) -> None:
    with _border(listed.repository):
        from huggingface_hub import constants, file_download, hf_hub_url, utils

        client = cast("Any", file_download)  # only partly typed
        utils.logging.set_verbosity_error()
        # What a lost connection or a kill takes with it: a mebibyte, not ten.
        setattr(constants, "DOWNLOAD_CHUNK_SIZE", _CHUNK_BYTES)  # noqa: B010 - a constant to the type checker
        if not (sys.stderr and sys.stderr.isatty()):
            utils.disable_progress_bars()
        url = hf_hub_url(
            listed.repository, file.path, repo_type=listed.kind, revision=listed.revision, endpoint=endpoint()
        )
        with part.open("ab") as to:
            try:
                client.http_get(
                    url,
                    to,
                    resume_size=to.tell(),
                    headers=cast("Any", utils).build_hf_headers(),
                    expected_size=file.size,
                    displayed_filename=file.name,
                )
            except OSError as error:
                if type(error) is not OSError or error.errno is not None:
                    raise
                # The client's own consistency check: the source is shorter or longer than it is listed.
            to.flush()
            os.fsync(to.fileno())


@contextlib.contextmanager
def _border(repository: str) -> Generator[None]:
    """Every error of the client, and of the HTTP library below it, as one line with the next step."""
    try:
        yield
    except ModelError:
        raise
    except ImportError as error:
        raise ModelError(
            f"huggingface_hub cannot be used ({error}). Install it: pip install huggingface-hub"
        ) from error
    except Exception as error:
        raise _explained(error, repository) from error


def _explained(error: Exception, repository: str) -> ModelError:
    from huggingface_hub import errors

    page = f"{endpoint()}/{repository}"
    match error:
        case errors.OfflineModeIsEnabled():
            return UnreachableError(_OFFLINE)
        case errors.GatedRepoError():
            return ModelError(
                f"{repository} is gated: accept its licence at {page}, then `hf auth login` and pull again."
            )
        case errors.RevisionNotFoundError():
            return ModelError(
                f"{repository} has no such revision any more. Pull what it has now: vrt-lite pull {repository}"
            )
        case errors.RepositoryNotFoundError():
            return ModelError(
                f"{repository} is not at {endpoint()}, or is private. Check the name; for a private one: hf auth login"
            )
        case errors.HFValidationError():
            return ModelError(f"{repository!r} is no repository name; give owner/repo.")
        case errors.HfHubHTTPError():
            status = error.response.status_code
            if status < 500 and status not in (408, 429):
                return ModelError(
                    f"{endpoint()} answered {status} for {repository}. Check the name, or `hf auth login`."
                )
            return UnreachableError(
                f"{endpoint()} answered {status} for {repository}. Pull again later; it goes on where it stopped."
            )
        case OSError() if error.errno is not None:
            return ModelError(
                f"{error.filename or 'The download'} cannot be written: {error.strerror}. "
                "Free some space, then pull again."
            )
        case _ if type(error).__module__.startswith(_HTTP_LIBRARIES):
            reason = " ".join(str(error).split()) or type(error).__name__
            return UnreachableError(
                f"{endpoint()} cannot be reached, or broke off ({reason}). "
                "Check the connection and pull again; it goes on where it stopped."
            )
        case _:
            reason = " ".join(str(error).split())
            return ModelError(f"{endpoint()} gave no usable answer for {repository}: {type(error).__name__}: {reason}")
