"""Sentences are short, and what is said of the project in several files agrees."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import vrt_lite

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("count_words", ROOT / "docs" / "count_words.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_is_too_long(counting: ModuleType) -> None:
    assert counting.find_faults() == []


def test_sentences_are_found_and_counted(counting: ModuleType) -> None:
    text = """# A heading of many words is no sentence

One `two three` [four](five.md). Six of 3.5 GB!
It takes 3 to
5 minutes: once.

```sh
not a word
```

- an item
- another, with a name (e.g. this)

| a cell | another cell |
|---|---|
"""
    assert [counting.count_words(sentence) for sentence in counting.list_sentences(text)] == [4, 4, 7, 2, 6, 2, 2]


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited
    assert {project["version"], vrt_lite.__version__} == {cited[1]}


def test_contributing_is_short() -> None:
    assert len((ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8").splitlines()) <= 120


def test_how_it_works_names_what_is_there() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    files = re.findall(r"`([\w/]+\.py)`", page)
    assert len(files) > 10
    assert [file for file in files if not any((ROOT / place / file).is_file() for place in (".", "vrt_lite"))] == []
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "vrt_lite").rglob("*.py"))
    names = re.findall(r"`(?:[a-z_]+\.)?([A-Z]\w*[a-z]\w*)(?:[.(][^`]*)?`", page)
    assert len(names) > 10
    assert [name for name in names if not re.search(rf"\b{name}\b", source)] == []
