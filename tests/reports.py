"""What a report holds, read without a browser: its data, its pictures, and the table for those without scripts."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Reader(HTMLParser):
    """What a browser would read: the elements, and the text of each one that is no script by its tag."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.texts.append((self.elements[-1][0], data))


class Report:
    """The report in a file: the record, or the overview of a run, the pairs, and where each clip is, by its sha256."""

    def __init__(self, path: Path) -> None:
        self.html = path.read_text(encoding="utf-8")
        self.data = dict(re.findall(r'<script type="(?:application/json|text/plain)" id="(\w+)">([^<]*)<', self.html))
        self.record: Any = json.loads(self.data["record"])
        packed = {name: self._unpack(name) for name in self.data if re.fullmatch(r"index|media|b\d+", name)}
        blocks = [packed[f"b{number}"] for number in range(len(packed.keys() - {"index", "media"}))]
        self.pairs: list[Any] = [pair for block in blocks for pair in block] or [self.record]
        self.index: list[list[Any]] = packed.get("index", [])
        self.media: dict[str, Any] = packed.get("media") or self.record.get("media", {})
        self.pictures = [text for text in self.data.values() if text.startswith("data:image/jpeg;base64,")]
        self.copies = [text for text in self.data.values() if text.startswith("data:video/mp4;base64,")]

    def _unpack(self, name: str) -> Any:
        return json.loads(zlib.decompress(base64.b64decode(self.data[name])))

    @property
    def policy(self) -> str:
        found = re.search(r'Content-Security-Policy" content="([^"]+)"', self.html)
        assert found
        return found[1]

    @property
    def words(self) -> str:
        """All that is said of the whole, a line for each text and each row."""
        return "\n".join(list_lines(self.record)).replace("\u00a0", " ")

    @property
    def table(self) -> list[list[str]]:
        """The rows of the table for browsers without scripts, its headings first."""
        inner = self.html.partition("<noscript>")[2].partition("</noscript>")[0]
        reader = Reader()
        reader.feed(inner)
        assert {tag for tag, _ in reader.elements} <= {"table", "caption", "tr", "th", "td"}
        rows: list[list[str]] = []
        for row in re.findall(r"<tr>(.*?)</tr>", inner, re.DOTALL):
            cells = Reader()
            cells.feed(row)
            rows.append([text for tag, text in cells.texts if tag in ("th", "td")])
        return rows


def list_lines(data: Any) -> Iterator[str]:
    """Yield the texts in plain data; those of a row are one line, with | between them."""
    if isinstance(data, str):
        yield data
        return
    if isinstance(data, list) and data and all(isinstance(value, str) for value in data):
        yield "|".join(data)
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from list_lines(value)
