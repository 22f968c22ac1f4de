"""The one place that renders: markup, attributes, controls and directions stay text, whatever a template does."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader, UndefinedError

from vrt_lite.show.pages.render_templates import format_position, format_signed, load_templates, make_visible, render


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


@pytest.fixture(scope="module", autouse=True)
def own_templates() -> None:
    """Templates for these tests beside the package's own."""
    own = {
        "text.html": '<p title="{{ title }}"><bdi>{{ text }}</bdi></p>',
        "escaped.html": "{{ text|e }}{{ '<b>'|safe ~ text }}",
        "unknown.html": "{{ nothing }}",
    }
    load_templates().loader = DictLoader(own)
    yield
    load_templates.cache_clear()


@given(st.text(), st.text())
def test_no_text_becomes_markup(text: str, title: str) -> None:
    reader = Reader()
    reader.feed(render("text.html", text=text, title=title))
    reader.close()
    assert [tag for tag, _ in reader.elements] == ["p", "bdi"]
    assert reader.elements[0][1] == {"title": make_visible(title)}
    assert reader.text == make_visible(text)
    assert all(c.isprintable() or c in "\n\u00a0\u3000\u200c\u200d" for c in reader.text)


def test_what_cannot_be_seen_is_made_visible() -> None:
    shown = render("text.html", text="a\u202eb\x00c\u2028d\ud800e\x9b\nf\u00adg", title="\u2066")
    assert shown == '<p title="\\u2066"><bdi>a\\u202eb\\x00c\\u2028d\\ud800e\\x9b\nf\\xadg</bdi></p>'


def test_text_that_a_template_has_already_escaped_is_made_visible_too() -> None:
    assert render("escaped.html", text="\u202e<") == "\\u202e&lt;<b>\\u202e&lt;"


def test_a_name_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="nothing"):
        render("unknown.html")


def test_positions_stay_within_a_drawing() -> None:
    assert [format_position(share) for share in (-1, 0, 1 / 3, 0.5, 2)] == ["0%", "0%", "33.333%", "50%", "100%"]
    assert [format_signed(number) for number in (0.5, -1.234)] == ["+0.50", "−1.23"]
