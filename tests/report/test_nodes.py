"""The one place that escapes: markup, attributes, controls and directions stay text, as HTML and as data."""

from __future__ import annotations

import html
import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from vrt_lite.report.nodes import h, said, to_html, to_json


class Reader(HTMLParser):
    """What a browser would read: the elements, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.text())
def test_no_text_becomes_markup(text: str, attribute: str) -> None:
    reader = Reader()
    reader.feed(to_html(h("p", said(text), title=attribute)))
    reader.close()
    assert [tag for tag, _ in reader.elements] == ["p", "bdi"]
    tag, attributes, [_, _, *said_] = to_json(h("p", said(text), title=attribute))
    assert (tag, attributes["title"]) == ("p", reader.elements[0][1]["title"])
    assert "".join(said_) == reader.text
    assert all(c.isprintable() or c in "\n\u00a0\u3000\u200c\u200d" for c in reader.text)


def test_what_cannot_be_seen_is_made_visible() -> None:
    shown = to_html(h("p", "a\u202eb\x00c\u2028d\ud800e\x9b\nf\u00adg", title="\u2066"))
    assert shown == '<p title="\\u2066">a\\u202eb\\x00c\\u2028d\\ud800e\\x9b\nf\\xadg</p>'


def test_attributes_and_empty_elements() -> None:
    node = h("img", alt='a "b" <c>', hidden=True, data_frame=3, id=None, controls=False)
    assert to_html(node) == '<img alt="a &quot;b&quot; &lt;c&gt;" hidden="" data-frame="3">'
    assert to_html(h("svg", h("rect", x="1%", class_="one"))) == '<svg><rect x="1%" class="one"/></svg>'
    assert to_json(h("p", None, ["a", [h("b", "c")]])) == ["p", {}, "a", ["b", {}, "c"]]
    assert html.unescape(to_html(h("p", "…&'"))) == "<p>…&'</p>"
    assert json.loads(json.dumps(to_json(h("p", "é")))) == ["p", {}, "é"]
