"""What train/README.md names is there: verbs and their options, recipe keys, modules' functions, files, extras."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import click
import pytest

from convert.__main__ import convert
from train.__main__ import train
from train.recipe import TrainingRecipe
from train.tiny.__main__ import tiny
from vrt_lite.cli import cli
from vrt_lite.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "train" / "README.md").read_text("utf-8")
PROGRAMS: Mapping[str, click.Group] = {"train": train, "train.tiny": tiny, "convert": convert, "vrt-lite": cli}
TABLES = {
    name: kind for name, kind in get_type_hints(TrainingRecipe).items() if is_dataclass(kind) and kind is not Profile
}
KEYS = {f"{name}.{f.name}" for name, table in TABLES.items() for f in fields(table)}


def test_what_is_named_is_there() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    named = [re.sub(r"\s+", " ", text) for text in re.findall(r"`([^`]+)`", prose)]
    assert len(lines) > 8
    assert len(named) > 20
    assert {text: why for text in [*lines, *named] if (why := missing(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "train.rendering.segments",
        "train.policy.rendering.segment",
        "vrt_lite.judgment",
        "grpo.klx",
        "grope.kl",
        "groups/lost",
        "train/nowhere.py",
        "nowhere.toml",
        "RUN/STAGE/nothing.jsonl",
        "unheard",
        "--hours 9",
        "python -m train warm-start train/configs/tiny-cpu.toml run",
        "python -m train grpo train/configs/huge.toml run",
        "python -m train evaluate train/configs/tiny-cpu.toml run --hours 9",
        "torchrun --nproc_per_node N -m train.grpo STAGE RECIPE RUN",
        "vrt-lite judge FOLDER",
        'pip install -e ".[training]"',
    ],
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert missing(text)


def missing(text: str) -> str:
    """What of a command, a name, a key or a path is not there; empty if all is."""
    words = text.split()
    if extra := re.search(r'"\.\[([\w,]+)\]"', text):
        known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        return ", ".join(set(extra[1].split(",")) - set(known))
    if text.startswith(("{", "..")):
        return ""  # a line of JSON; a link
    if "-m" in words or words[0] in PROGRAMS:
        place = words.index("-m") + 1 if "-m" in words else 0
        files = [word for word in words if "/" in word and word.endswith((".toml", ".yaml"))]
        return _command(words[place:]) or next((file for file in files if not (ROOT / file).is_file()), "")
    if text.startswith("--"):
        return "" if any(words[0] in _options(verb) for verb in train.commands.values()) else words[0]
    if len(words) > 1:
        return text
    return "" if _path(text) or _key(text) or _name(text) or text in train.commands else text


def _command(words: list[str]) -> str:
    """A program, its verb and its options. A verb in capitals stands for any."""
    group = PROGRAMS.get(words[0])
    if group is None:
        return words[0]
    if len(words) == 1 or words[1].isupper():
        return ""
    verb = group.get_command(click.Context(group), words[1])
    if verb is None:
        return words[1]
    return next((word for word in words[2:] if word.startswith("--") and word not in _options(verb)), "")


def _options(verb: click.Command) -> set[str]:
    return {name for parameter in verb.params for name in parameter.opts}


def _path(text: str) -> bool:
    """Whether it is a file or folder here, or what a run writes: then the code has its name as a text."""
    if any((folder / text).exists() for folder in (ROOT, ROOT / "train", ROOT / "train" / "configs")):
        return True
    name = Path(text).name
    if ("/" not in text and "." not in text) or name.endswith((".toml", ".py")):
        return False
    made = name.removesuffix("N") if text.startswith("RUN/") else text
    return any(f'"{made}"' in path.read_text("utf-8") for path in (ROOT / "train").rglob("*.py"))


def _key(text: str) -> bool:
    """Whether a recipe has this key, with or without its table."""
    return any(text in (key, key.partition(".")[2]) for key in KEYS)


def _name(text: str) -> bool:
    """Whether it is a module, or what a module defines at its top."""
    parts = text.split(".")
    for count in range(len(parts), max(len(parts) - 2, 0), -1):
        place = ROOT.joinpath(*parts[:count])
        source = next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)
        if source and (count == len(parts) or parts[-1] in _defined(source)):
            return True
    return False


def _defined(source: Path) -> set[str]:
    body = ast.parse(source.read_text("utf-8")).body
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    return named | {target.id for target in targets if isinstance(target, ast.Name)}
