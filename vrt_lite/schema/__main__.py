"""Writes `judgement.schema.json`: `python -m vrt_lite.schema`."""

from __future__ import annotations

import json
from pathlib import Path

from vrt_lite.schema import make_schema

if __name__ == "__main__":
    text = json.dumps(make_schema(), indent=2) + "\n"
    (Path(__file__).parent / "judgement.schema.json").write_text(text, encoding="utf-8")
