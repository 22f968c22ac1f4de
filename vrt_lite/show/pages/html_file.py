"""Writes one self-contained HTML file: head, content, data, style and script, with the policy that keeps it offline.

The file is written part by part to a draft beside the target, which then takes its place: it is there whole or not at
all. What runs is the style and the script of this package, named by their digests; nothing else can run or be fetched.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import zlib
from collections.abc import Generator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

from vrt_lite import __version__
from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.show.pages.render_templates import render


@contextlib.contextmanager
def write_page(path: Path, title: str, *, embedded: bool = False) -> Generator[TextIO]:
    """Open a page for its content; its end, with the script, is written when the block ends.

    Clips are files beside the page, or `embedded`: then it fetches nothing at all.
    UsageError if the file cannot be written. After any error there is no new file at `path`.
    """
    media = "data:" if embedded else "'self' file:"
    beside = "" if embedded else f" {media}"
    policy = (
        f"default-src 'none'; img-src data:{beside}; media-src {media}; style-src '{_digest('report.css')}'; "
        f"script-src '{_digest('report.js')}'; base-uri 'none'; form-action 'none'"
    )
    try:
        with draft_of(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(render("head.html", title=title, policy=policy, version=__version__))
            # Not through a template: an escape would change the digest.
            file.write(f"<style>{_read('report.css')}</style></head>\n<body>\n{render('top.html')}")
            yield file
            file.write(f"<script>{_read('report.js')}</script>\n</body>\n</html>\n")
    except OSError as error:
        raise UsageError(f"The report {str(path)!r} cannot be written: {error.strerror or error}.") from error


def write_json(file: TextIO, name: str, data: Any) -> None:
    """Write data that the script reads; nothing in it can end its element."""
    text = _compact(data)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    file.write(f'<script type="application/json" id="{name}">{text}</script>\n')


def write_packed(file: TextIO, name: str, data: Any) -> None:
    """Write larger data, compressed; base64 has no character that means anything to a page."""
    packed = base64.b64encode(zlib.compress(_compact(data).encode(), 6)).decode()
    file.write(f'<script type="text/plain" id="{name}">{packed}</script>\n')


def write_data(file: TextIO, name: str, uri: str) -> None:
    """Write a picture or a clip that the script puts where it is shown."""
    file.write(f'<script type="text/plain" id="{name}">{uri}</script>\n')


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


@cache
def _read(name: str) -> str:
    return (files("vrt_lite.show.pages") / name).read_text(encoding="utf-8")


def _digest(name: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(_read(name).encode()).digest()).decode()}"
