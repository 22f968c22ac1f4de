"""CONTRIBUTING's ten steps name functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEP = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Top-level functions and classes, and methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def test_each_step_names_a_function_that_exists() -> None:
    steps = STEP.findall((ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _, _ in steps] == list(range(1, 11))
    for number, file, name in steps:
        assert name in names_in(ROOT / file), f"step {number}: {file} has no {name}"
