"""One finding of `vrt-lite doctor`, and the command that installs vrt-lite again."""

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
