"""The JSON Schema of a judgement, made from its types. `python -m vrt_lite.schema` writes it beside this file."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec

from vrt_lite.reading import describe_types
from vrt_lite.records.judgement import SCHEMA_VERSION, Judgement


def make_schema() -> dict[str, Any]:
    """The JSON Schema of a judgement, as `schema/judgement.schema.json` holds it."""
    made = describe_types([Judgement], ref_template="#/$defs/{name}")
    [reference], parts = json.loads(msgspec.json.encode(made))
    for part in parts.values():
        part["additionalProperties"] = False
        part["description"] = inspect.cleandoc(part.get("description", ""))
    own = parts.pop(reference["$ref"].rpartition("/")[2])
    own["required"] = [*own["required"], "schema_version", "warning_kinds"]
    own["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://vrt-lite.invalid/judgement-{SCHEMA_VERSION}.json",
        "title": "vrt-lite judgement",
    }
    return {**about, **{name: value for name, value in own.items() if name != "title"}, "$defs": parts}
