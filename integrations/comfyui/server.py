"""Asks a running `vrt-lite serve`, with nothing but Python. Whatever goes wrong is one line.

ComfyUI is told how far a job is, and a job is cancelled where ComfyUI is.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote

DEFAULT_ADDRESS: Final = os.environ.get("VRT_LITE_SERVER", "http://127.0.0.1:8765")
DEFAULT_JUDGE: Final = "the server's default"
_LOOK_SECONDS: Final = 0.2
_SHORT_SECONDS, _LONG_SECONDS = 15.0, 60.0
"""How long an answer may take: a list, for which a menu waits, and anything else."""
_LIST_SECONDS: Final = 10
"""How long a list of judges holds: ComfyUI asks for it with every input."""


@dataclass(frozen=True)
class Server:
    """A server, by the address that it prints. Where it needs a token, that is in VRT_LITE_TOKEN."""

    address: str

    def upload(self, clip: bytes, name: str) -> str:
        """Send a clip; return the id by which requests name it."""
        headers = {"content-type": "application/octet-stream"}
        return json.loads(self.ask("POST", f"/v1/clips?name={quote(name)}", clip, headers))["clip"]

    def work(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Begin a job and wait for its end; return it. It is cancelled where ComfyUI's work is interrupted."""
        from comfy.model_management import throw_exception_if_processing_interrupted  # noqa: PLC0415
        from comfy.utils import ProgressBar  # noqa: PLC0415

        headers = {"content-type": "application/json"}
        job = json.loads(self.ask("POST", path, json.dumps({**body, "wait": False}).encode(), headers))
        place, bar = f"/v1/jobs/{job['id']}", ProgressBar(1)
        try:
            while job["state"] not in ("done", "failed", "cancelled"):
                throw_exception_if_processing_interrupted()
                time.sleep(_LOOK_SECONDS)
                job = json.loads(self.ask("GET", place))
                if progress := job["progress"]:
                    bar.update_absolute(progress["done"], max(progress["most"], 1))
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self.ask("DELETE", place)
            raise
        if job["state"] != "done":
            raise RuntimeError(f"vrt-lite: {job['error']['message'] if job['error'] else 'The job was cancelled.'}")
        return job

    def ask(self, method: str, path: str, data: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        """Send a request; return the answer's bytes. A busy server is asked again when it says; RuntimeError else."""
        token = os.environ.get("VRT_LITE_TOKEN")
        signed = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token else {})}
        # Not through a proxy: the server is on this machine, or near.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        seconds = _SHORT_SECONDS if path == "/v1/models" else _LONG_SECONDS
        while True:
            try:
                request = urllib.request.Request(self.address.rstrip("/") + path, data, signed, method=method)
                with opener.open(request, timeout=seconds) as answer:
                    return answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise RuntimeError(f"vrt-lite: {_read_refusal(error)}") from None
                time.sleep(int(error.headers["retry-after"]))
            except (OSError, HTTPException, ValueError) as error:
                why = getattr(error, "reason", error)
                raise RuntimeError(
                    f"vrt-lite: no server answers at {self.address} ({why}). Start one with: vrt-lite serve. "
                    "What it has judged is kept."
                ) from None


def _read_refusal(error: urllib.error.HTTPError) -> str:
    """Return the line of a refusal; that of HTTP where something else than vrt-lite answers."""
    try:
        return json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"{error.url} answers {error.code} {error.reason}: is it the address that vrt-lite serve printed?"


def list_judges() -> list[str]:
    """List the judges of the default server; of one that does not answer, only its default."""
    return _list_judges(int(time.monotonic() // _LIST_SECONDS))


@functools.lru_cache(maxsize=1)
def _list_judges(now: int) -> list[str]:
    try:
        found = json.loads(Server(DEFAULT_ADDRESS).ask("GET", "/v1/models"))["models"]
    except RuntimeError:
        found = []
    return [DEFAULT_JUDGE, *(model["name"] for model in found if model["state"] in ("bundled", "here"))]
