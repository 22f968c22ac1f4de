"""Finds what a server is and what it serves, and decides in which form it gets a video.

Only vLLM from 0.31 on reads the clock of a video, which `make vllm` tests. To every other server a video is images.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from vrt_lite.advice import install
from vrt_lite.backends.http.sse import read_as
from vrt_lite.errors import BackendError, UsageError, Warned
from vrt_lite.settings import FormName, Remote, ServerKind
from vrt_lite.video.encoding import can_write_lossless

_NAMES_SHOWN = 8
# The owner in the answer of /models, for vLLM, SGLang, llama-server and llama-cpp-python.
_OWNERS: dict[str, ServerKind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama", "me": "llama"}
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.\d|$)")
_READS_CLOCKS = (0, 31)


class _Model(msgspec.Struct):
    id: str
    owned_by: Any = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _About(msgspec.Struct):
    version: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server is, the model that it serves, and the form in which it gets a video.

    `warning` is what a reader of a verdict must know about that form.
    """

    kind: ServerKind
    model: str
    form: FormName
    warning: Warned | None


def find_server(remote: Remote, ask: Callable[[str], object]) -> ServerInfo:
    """Ask for the server's kind and model. Raises BackendError, UsageError for a name it lacks.

    `ask` gets the JSON at a URL, or raises BackendError.
    """
    owners = _list_models(remote, ask)
    chosen = remote.served_model
    if chosen is None and len(owners) != 1:
        raise UsageError(f"The server serves {_join(list(owners))}: choose with --served-model NAME.")
    model = next(iter(owners)) if chosen is None else chosen
    if model not in owners:
        raise UsageError(f"The server has no model {model!r}; it serves {_join(list(owners))}.")
    kind = remote.kind if remote.kind != "auto" else _OWNERS.get(str(owners[model]), "openai")
    why = _find_lack(kind, _ask_version(remote, ask) if kind == "vllm" else "")
    if why is None:
        return ServerInfo(kind, model, "lossless video file", None)
    text = f"Frames are sent as single images, on which the judge was not trained: {why}. Verdicts may differ."
    return ServerInfo(kind, model, "single images", Warned("single_images", text))


def _find_lack(kind: ServerKind, version: str) -> str | None:
    """Why the server cannot get a video as a file on its own clock, and what can be done; None if it can."""
    if kind != "vllm":
        return "of the servers only vLLM 0.31 and newer read a video's clock (is it one? --backend-kind vllm)"
    release = _RELEASE.match(version)
    if release is None:
        told = f"calls itself {version[:40]!r}" if version.isprintable() and version else "does not tell its version"
        return f"this vLLM {told}, and one before 0.31 reads no video's clock; serve with a release of 0.31 or newer"
    if (int(release[1]), int(release[2])) < _READS_CLOCKS:
        return f"this vLLM is {release[1]}.{release[2]}, and reads no video's clock; update it to 0.31 or newer"
    if not can_write_lossless():
        return (
            f"PyAV was built without the encoder libx264rgb here; install the one of the package index: {install('av')}"
        )
    return None


def _ask_version(remote: Remote, ask: Callable[[str], object]) -> str:
    """The version of a vLLM, "" if it does not tell it."""
    try:
        answer = ask(f"{remote.url.removesuffix('/v1')}/version")
    except BackendError:
        return ""
    return found.version if (found := read_as(answer, _About)) else ""


def _list_models(remote: Remote, ask: Callable[[str], object]) -> dict[str, Any]:
    """The owner of every model that the server lists, by name."""
    listed = read_as(ask(f"{remote.url}/models"), _Models)
    owners = {model.id: model.owned_by for model in listed.data if model.id} if listed else {}
    if not owners:
        raise BackendError(f"The back end {remote.url} lists no models at /models. Is it an OpenAI-compatible server?")
    return owners


def _join(names: list[str]) -> str:
    shown = ", ".join(repr(name[:200]) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
