"""What an OpenAI-compatible server is and serves, by what it says of itself. Knows how kinds differ in that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from vrt_lite.backends.http.lower import Kind
from vrt_lite.backends.http.service import Service
from vrt_lite.errors import BackendError, UsageError

_NAMES_SHOWN = 8
# What /models calls the owner: vLLM, llama-server, llama-cpp-python.
_OWNERS: dict[str, Kind] = {"vllm": "vllm", "llamacpp": "llama", "me": "llama"}
# Addresses beside /v1 that only one kind has, and a field of the answer.
_SIGNS: tuple[tuple[str, str, Kind], ...] = (
    ("/version", "version", "vllm"),
    ("/props", "default_generation_settings", "llama"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """What a server is, and the model that it serves."""

    kind: Kind
    model: str


def served(service: Service) -> Served:
    """The server's kind and model, as it lists them. Raises BackendError, UsageError for a name it lacks."""
    listed = dict(_models(service))
    wanted = service.remote.served_model
    if wanted is None and len(listed) != 1:
        raise UsageError(f"The server serves {_told(list(listed))}: choose with --served-model NAME.")
    if wanted is not None and wanted not in listed:
        raise UsageError(f"The server has no model {wanted!r}; it serves {_told(list(listed))}.")
    model = wanted if wanted is not None else next(iter(listed))
    return Served(_kind(service, listed[model]), model)


def _models(service: Service) -> list[tuple[str, str]]:
    """Name and owner of every model that the server lists."""
    answer = service.get(f"{service.remote.url}/models")
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
        try:
            answer = service.get(f"{service.remote.url.removesuffix('/v1')}{path}", once=True)
        except BackendError:
            continue
        if isinstance(answer, dict) and sign in answer:
            return kind
    return "openai"


def _told(names: list[str]) -> str:
    shown = ", ".join(repr(name[:200]) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
