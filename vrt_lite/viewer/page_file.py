"""The viewer's page: its style and its modules, with a policy that lets nothing else run, around the data it draws.

The data are elements that no browser runs, and nothing in them can end its element. A report is such a page in a file,
written part by part to a draft beside the target, which then takes its place: it is there whole or not at all.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Generator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final, TextIO

from vrt_lite import __version__
from vrt_lite.disk import draft_of
from vrt_lite.errors import UsageError
from vrt_lite.show.words import safe

PlainTable = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A caption, headings and rows."""
_MODULES: Final = ("dom", "players", "pair", "pairs", "results", "api", "jobs", "forms", "lists", "vote", "app")
"""The viewer's modules, each after those that it imports: in a page they are one."""
_JOINT: Final = re.compile(r"^import .*\n|^export (?=const|function|async)", re.MULTILINE)
_BESIDE: Final = "img-src data: 'self' file:; media-src 'self' file:"
_EMBEDDED: Final = "img-src data:; media-src data:"
_ESCAPES: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})
_SERVED: Final = "img-src 'self' data: blob:; media-src 'self' blob:; connect-src 'self'"


@contextlib.contextmanager
def write_page(path: Path, title: str, table: PlainTable, *, embedded: bool = False) -> Generator[TextIO]:
    """Open a report for the data that the viewer draws. Without a script it shows the `table`.

    Clips are files beside the page, or `embedded`: then it fetches nothing at all.
    UsageError if the file cannot be written. After any error there is no new file at `path`.
    """
    begin, end, _ = _fill_page(title, make_table(*table), _EMBEDDED if embedded else _BESIDE)
    try:
        # A lone surrogate, as in a file name that is not UTF-8, becomes an escape.
        with draft_of(path) as draft, draft.open("w", -1, "utf-8", "backslashreplace", "\n") as file:
            file.write(begin)
            yield file
            file.write(end)
    except OSError as error:
        raise UsageError(f"The report {str(path)!r} cannot be written: {error.strerror or error}.") from error


def make_served_page(record: Any) -> tuple[str, str]:
    """Make the page that a server sends for every address. Returns its HTML and its policy."""
    begin, end, policy = _fill_page("vrt-lite", "The pages of this server are drawn by a script.", _SERVED)
    return f"{begin}{_make_element('record', _dump(record), kind='application/json')}{end}", policy


def make_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a plain table for a browser without scripts; every text in it is escaped and visible."""

    def join(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}>{escape(safe(cell, lines=True))}</{tag}>" for cell in cells)

    lines = "".join(f"<tr>{join('td', row)}</tr>\n" for row in rows)
    return f"<table><caption>{escape(safe(caption))}</caption>\n<tr>{join('th', head)}</tr>\n{lines}</table>"


def write_json(file: TextIO, name: str, data: Any) -> None:
    """Write data that the viewer reads."""
    file.write(_make_element(name, _dump(data), kind="application/json"))


def write_packed(file: TextIO, name: str, data: Any) -> None:
    """Write larger data, compressed; base64 has no character that means anything to a page."""
    write_data(file, name, base64.b64encode(zlib.compress(_dump(data).encode(), 6)).decode())


def write_data(file: TextIO, name: str, text: str) -> None:
    """Write what is in base64: also a picture or a clip as a data URI, which the viewer puts where it is shown."""
    file.write(_make_element(name, text, kind="text/plain"))


def _make_element(name: str, text: str, *, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>\n'


def _dump(data: Any) -> str:
    """Return JSON in which nothing means anything to a page."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def _fill_page(title: str, table: str, sources: str) -> tuple[str, str, str]:
    """Fill the shell. Returns what stands before the data and after them, and the page's policy.

    It runs the viewer, named by its digest, and loads from the `sources` alone.
    """
    viewer = _read_viewer()
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in viewer)
    own = f"style-src 'sha256-{style}'; script-src 'sha256-{script}'"
    policy = f"default-src 'none'; {sources}; {own}; base-uri 'none'; form-action 'none'"
    shell = (files("vrt_lite.viewer") / "page.html").read_text(encoding="utf-8")
    filled = {"policy": escape(policy), "version": __version__, "title": escape(safe(title)), "table": table}
    begin, end = (Template(part) for part in shell.split("$record\n"))
    return begin.substitute(filled, style=viewer[0]), end.substitute(script=viewer[1]), policy


@cache
def _read_viewer() -> tuple[str, str]:
    """Read the viewer: its style, and its modules as one."""
    folder = files("vrt_lite.viewer")
    texts = ((folder / f"{name}.js").read_text(encoding="utf-8") for name in _MODULES)
    return (folder / "app.css").read_text(encoding="utf-8"), _JOINT.sub("", "\n".join(texts))
