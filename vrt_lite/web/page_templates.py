"""Renders the pages: every value is escaped and made visible, as in the report."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from vrt_lite.show.pages.render_templates import load_templates, make_visible


def render_page(template: str, **values: Any) -> str:
    """Render a template of the server's, which may include the report's."""
    return make_visible(_load_templates().get_template(template).render(values))


@cache
def _load_templates() -> Environment:
    loaders = [PackageLoader("vrt_lite.web"), PackageLoader("vrt_lite.show.pages")]
    return load_templates().overlay(loader=ChoiceLoader(loaders))
