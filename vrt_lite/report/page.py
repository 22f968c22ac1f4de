"""Writes one self-contained HTML file: head, content, data, style and script. Knows the policy that keeps it offline.

Written part by part to a draft beside the target, which then takes its place: the file is there whole or not at all.
What runs is the style and the script of this package, named by their digests; nothing else can run or be fetched.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import zlib
from collections.abc import Generator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

from vrt_lite import __version__
from vrt_lite.errors import UsageError
from vrt_lite.report.nodes import Content, h, to_html


@contextlib.contextmanager
def draft_of(path: Path) -> Generator[TextIO]:
    """A file that becomes `path` when the block ends well, and is gone if it does not."""
    draft = path.parent / f".{secrets.token_hex(8)}.html"
    try:
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            draft.replace(path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"The report {str(path)!r} cannot be written: {error.strerror or error}.") from error


def write_head(file: TextIO, title: str) -> None:
    """All before the content. `title` is any text."""
    policy = (
        f"default-src 'none'; img-src data:; media-src 'self' file:; style-src '{_digest('report.css')}'; "
        f"script-src '{_digest('report.js')}'; base-uri 'none'; form-action 'none'"
    )
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=policy),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("meta", name="referrer", content="no-referrer"),
        h("meta", name="generator", content=f"vrt-lite {__version__}"),
        h("title", title),
    )
    # The style is not escaped: it is this package's own, and an escape would change its digest.
    markup = to_html(head).removesuffix("</head>")
    file.write(f'<!doctype html>\n<html lang="en">{markup}<style>{_own("report.css")}</style></head>\n<body>\n')
    file.write(to_html(h("a", "Skip to the result", class_="skip", href="#main")))
    file.write(to_html(h("header", h("b", "vrt-lite"), h("span", "report"), class_="top")))
    file.write('\n<main id="main" tabindex="-1">\n')


def write_content(file: TextIO, content: Content) -> None:
    """Some of what is read."""
    for child in h("main", content).children:
        file.write(to_html(child) + "\n")


def write_foot(file: TextIO) -> None:
    """The end of the content, before data."""
    words = "Made by vrt-lite. This page is one file; it fetches nothing but the clips, from where they lie."
    file.write(f"</main>\n{to_html(h('footer', h('p', words), class_='foot'))}\n")


def write_end(file: TextIO) -> None:
    """The script, and the end."""
    file.write(f"<script>{_own('report.js')}</script>\n</body>\n</html>\n")


def write_json(file: TextIO, name: str, data: Any) -> None:
    """Data that the script reads; nothing in it can end its element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    file.write(f'<script type="application/json" id="{name}">{text}</script>\n')


def write_packed(file: TextIO, name: str, data: Any) -> None:
    """Larger data, compressed; base64 has no character that means anything to a page."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
    file.write(f'<script type="text/plain" id="{name}">{packed}</script>\n')


def write_picture(file: TextIO, name: str, uri: str) -> None:
    """A picture that the script puts where it is shown."""
    file.write(f'<script type="text/plain" id="{name}">{uri}</script>\n')


@cache
def _own(name: str) -> str:
    return (files("vrt_lite.report") / name).read_text(encoding="utf-8")


def _digest(name: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(_own(name).encode()).digest()).decode()}"
