"""What an OpenAI-compatible server is and serves, by what it says of itself. Knows how kinds differ in that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from vrt_lite.backends.http.lower import Kind
from vrt_lite.backends.http.service import Service
from vrt_lite.errors import BackendError, UsageError
from vrt_lite.interfaces import Observe

_NAMES_SHOWN = 8
# What /models calls the owner: vLLM, SGLang, llama-server, llama-cpp-python.
_OWNERS: dict[str, Kind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama", "me": "llama"}
_VERSION = "/version"
# Addresses beside /v1 that only one kind has, and a field of the answer.
_SIGNS: tuple[tuple[str, str, Kind], ...] = (
    (_VERSION, "version", "vllm"),
    ("/model_info", "is_generation", "sglang"),
    ("/props", "default_generation_settings", "llama"),
)
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.\d|$)")


@dataclass(frozen=True, slots=True)
class Served:
    """What a server is, and the model that it serves. `version` is vLLM's, (0, 0) if it does not tell a release."""

    kind: Kind
    model: str
    version: tuple[int, int] = (0, 0)


def served(service: Service, *, observe: Observe) -> Served:
    """The server's kind and model, as it lists them. Raises BackendError, UsageError for a name it lacks."""
    listed = dict(_models(service, observe))
    wanted = service.remote.served_model
    if wanted is None and len(listed) != 1:
        raise UsageError(f"The server serves {_told(list(listed))}: choose with --served-model NAME.")
    if wanted is not None and wanted not in listed:
        raise UsageError(f"The server has no model {wanted!r}; it serves {_told(list(listed))}.")
    model = wanted if wanted is not None else next(iter(listed))
    kind = _kind(service, listed[model])
    return Served(kind, model, _version(service) if kind == "vllm" else (0, 0))


def _models(service: Service, observe: Observe) -> list[tuple[str, str]]:
    """Name and owner of every model that the server lists."""
    answer = service.get(f"{service.remote.url}/models", observe=observe)
    rows = cast(dict[str, Any], answer).get("data") if isinstance(answer, dict) else None
    found: list[tuple[str, str]] = []
    for row in cast(list[Any], rows) if isinstance(rows, list) else []:
        entry = cast(dict[str, Any], row) if isinstance(row, dict) else {}
        if isinstance(name := entry.get("id"), str) and name:
            found.append((name, str(entry.get("owned_by", ""))))
    if not found:
        raise BackendError(f"{service.name} lists no models at /models. Is it an OpenAI-compatible server?")
    return found


def _kind(service: Service, owner: str) -> Kind:
    """How the server takes frames: as asked for, by whom it says to be, or by an address that only one kind has."""
    if service.remote.kind != "auto":
        return service.remote.kind
    if owner in _OWNERS:
        return _OWNERS[owner]
    for path, sign, kind in _SIGNS:
        if sign in _beside(service, path):
            return kind
    return "openai"


def _version(service: Service) -> tuple[int, int]:
    """The first two numbers of vLLM's version. A build between releases calls itself 0.1.dev and tells nothing."""
    told = _NUMBERS.match(str(_beside(service, _VERSION).get("version", "")))
    return (int(told[1]), int(told[2])) if told else (0, 0)


def _beside(service: Service, path: str) -> dict[str, Any]:
    """What a server answers at an address beside /v1; nothing, if that is no table."""
    try:
        answer = service.get(f"{service.remote.url.removesuffix('/v1')}{path}", once=True)
    except BackendError:
        return {}
    return cast(dict[str, Any], answer) if isinstance(answer, dict) else {}


def _told(names: list[str]) -> str:
    shown = ", ".join(repr(name[:200]) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
