"""Finds out what works here, what costs speed and what is broken, for `vrt-lite doctor`.

It loads no large model and uses no network. The engine runs in a child process, which may crash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from vrt_lite.advice import install

Level = Literal["ok", "note", "problem"]
"""As it should be; costs speed or may surprise; breaks something."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: its kind, for programs, one line of text, and the next command; "" if nothing is to be done."""

    kind: str
    level: Level
    text: str
    next_step: str = ""


def reinstall() -> str:
    """The command that installs vrt-lite again, with all packages that it needs, from where it was installed."""
    try:
        origin = distribution("vrt-lite").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    source = url2pathname(urlsplit(str(json.loads(origin)["url"])).path) if origin else "vrt-lite"
    return install("--force-reinstall", source)


def diagnose() -> dict[str, list[Finding]]:
    """All findings, by group. If a package that vrt-lite needs cannot be loaded, that is the only one."""
    try:
        from vrt_lite.diagnosis.all_checks import run_all_checks  # noqa: PLC0415

        return run_all_checks()
    except ImportError as error:
        text = f"a package that vrt-lite needs cannot be loaded: {error}"
        return {"packages": [Finding("package_unusable", "problem", text, reinstall())]}
