"""Renders the templates in `templates/`. Jinja2 escapes every value, and `render` makes every character visible.

So no template can forget it: text from a model, a file or a caption stays text, in its own direction.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vrt_lite.protocol.verdict import describe
from vrt_lite.show.efforts import describe_effort, describe_skipped_order
from vrt_lite.show.words import (
    OUTCOMES,
    capitalize_first,
    describe_frame_sizes,
    describe_warnings,
    format_moment,
    percent,
    safe,
)

_UNUSUAL = re.compile(r"[^\n -~\u00a0-\u00ac\u00ae-\u02ff\u2010-\u2027]+")
"""Characters outside the ranges that are known to be harmless."""
_LONG_WORD, _JOINT = re.compile(r"\S{24,}"), re.compile(r"(?<=[/\\_.-])(?=[^/\\_.-])")
_SHORT_NAME, _NAME_END = 20, 10
_NO_PICTURE = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def render(template: str, **values: Any) -> str:
    """Render a template of this package. Returns HTML without control characters, bidi marks and lone surrogates."""
    return make_visible(load_templates().get_template(template).render(values))


def make_visible(text: str) -> str:
    """Replace characters that cannot be seen or that change the direction of text by visible escapes."""
    return _UNUSUAL.sub(lambda found: safe(found[0], lines=True), text)


def split_name(name: str) -> tuple[str, str]:
    """Split a name in two; where there is no room a page shortens the first part. A short name has no second part."""
    if len(name) <= _SHORT_NAME:
        return name, ""
    at = len(name) - _NAME_END
    while at and unicodedata.combining(name[at]):
        at -= 1
    return name[:at], name[at:]


@cache
def load_templates() -> Environment:
    """Load the templates with their filters. A name that a template does not get is an error."""
    environment: Any = Environment(
        loader=PackageLoader("vrt_lite.show.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {"NO_PICTURE": _NO_PICTURE, "OUTCOMES": OUTCOMES, "SIDES": ("tie", "one", "two")}
    environment.filters |= {
        "describe": describe,
        "describe_effort": describe_effort,
        "describe_skipped_order": describe_skipped_order,
        "frame_sizes": describe_frame_sizes,
        "warnings": describe_warnings,
        "capitalize_first": capitalize_first,
        "percent": format_percent,
        "moment": _format_moment,
        "signed": format_signed,
        "x": format_position,
        "tidy": _tidy_json,
        "split_name": split_name,
        "split_paths": _split_paths,
    }
    return environment


def format_percent(share: float) -> str:
    """Format a share as a percentage, with a space at which no line breaks."""
    return percent(share).replace("%", "\u00a0%")


def format_signed(number: float) -> str:
    """Format a number with two digits and its sign; the minus is as wide as the plus."""
    return f"{number:+.2f}".replace("-", "−")


def format_position(share: float) -> str:
    """Format a share of a drawing's width for SVG: drawings stretch, and no script lays them out."""
    return f"{100 * min(max(share, 0.0), 1.0):.3f}".rstrip("0").rstrip(".") + "%"


def _format_moment(seconds: float) -> str:
    """Format a moment of a clip, with a space at which no line breaks."""
    return format_moment(seconds).replace(" ", "\u00a0")


def _split_paths(text: str) -> list[str]:
    """Split a text where a path or another long word in it may break: after its slashes, dots and dashes."""
    parts, start = list[str](), 0
    for word in _LONG_WORD.finditer(text):
        for joint in _JOINT.finditer(text, word.start(), word.end()):
            parts.append(text[start : joint.start()])
            start = joint.start()
    return [*parts, text[start:]]


def _tidy_json(text: str) -> str:
    """Put JSON on one line; any other text stays as it is."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text.strip()
