"""A page as plain values: elements and text, written as HTML or as compact JSON that the page's script grows.

The one place that escapes. Every text and every attribute passes `safe`: control characters, bidirectional
marks and lone surrogates become visible. Refuses to know what a report says.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from vrt_lite.display.escape import safe

_VOID = frozenset({"br", "img", "input", "meta", "hr", "col", "rect", "circle", "line", "path", "stop"})
_CLOSED = frozenset({"rect", "circle", "line", "path", "stop"})  # of SVG, where a slash ends an element

_ODD = re.compile(r"[^\n -~\u00a0-\u00ac\u00ae-\u02ff\u2010-\u2027]")
"""Not among the letters and signs that are known to be harmless."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element: its name, its attributes as text, and what is in it."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Node, ...]


Node = str | Element
Content = Node | None | Iterable["Content"]


def h(tag: str, *children: Content, **attributes: str | int | float | bool | None) -> Element:
    """An element. `class_` is class, `aria_label` is aria-label; True is an empty attribute, False and None none."""
    kept = [
        (name.rstrip("_").replace("_", "-"), "" if value is True else str(value))
        for name, value in attributes.items()
        if value is not None and value is not False
    ]
    return Element(tag, tuple(kept), tuple(_gather(children, [])))


def said(text: str, **attributes: str | int | bool | None) -> Element:
    """Text that a model, a file name or a caption brought: isolated, so that its direction stays its own."""
    return h("bdi", text, **attributes)


def to_html(node: Node) -> str:
    """The node as HTML text."""
    return "".join(_html(node))


def to_json(node: Node) -> Any:
    """The node as plain data: a text, or [name, {attributes}, child, ...]."""
    if isinstance(node, str):
        return _plain(node)
    attributes = {name: _plain(value) for name, value in node.attributes} if node.attributes else {}
    return [node.tag, attributes, *[to_json(child) for child in node.children]]


def _plain(text: str) -> str:
    """The text, harmless. Most of it is, and quickly known to be."""
    return safe(text, lines=True) if _ODD.search(text) else text


def _gather(children: Iterable[Content], found: list[Node]) -> list[Node]:
    for child in children:
        if isinstance(child, str | Element):
            found.append(child)
        elif child is not None:
            _gather(child, found)
    return found


def _html(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield html.escape(_plain(node))
        return
    attributes = "".join(f' {name}="{html.escape(_plain(value))}"' for name, value in node.attributes)
    yield f"<{node.tag}{attributes}{'/' if node.tag in _CLOSED else ''}>"
    for child in node.children:
        yield from _html(child)
    if node.tag not in _VOID:
        yield f"</{node.tag}>"
