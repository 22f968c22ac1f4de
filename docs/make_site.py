"""Builds the documentation as a site of plain files in build/docs/site: `make docs`.

The pages are the repository's own Markdown, laid out as they lie in it, so that a link works on GitHub and on the site.
What follows from the code is made of it: commands by click, the record by its types, functions by mkdocstrings. A link
to a file that is not there, or to a heading, ends the build.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import vrt_lite
from vrt_lite.cli import cli
from vrt_lite.schema import make_schema

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", "docs/*.md", "models/*.md", "integrations/*/*.md")
PAGES += ("bench/README.md", "convert/README.md", "train/README.md")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
BADGE = re.compile(r"^\[!\[.*\n", re.MULTILINE)
HIDDEN, SHOWN = ".github/", "github/"
"""The builder leaves out folders whose names begin with a dot."""
FUNCTIONS = ("compare", "rank", "evaluate", "read_ladders", "read_figures")


def main() -> None:
    """Lay out the pages, make the references, build."""
    place = ROOT / "build" / "docs"
    shutil.rmtree(place, ignore_errors=True)
    pages = place / "pages"
    references = {"commands": write_commands(), "python": write_python(), "record": write_record()}
    for name, text in references.items():
        write(pages / "docs" / "reference" / f"{name}.md", text)
    for page in (path for pattern in PAGES for path in sorted(ROOT.glob(pattern))):
        text = BADGE.sub("", page.read_text("utf-8"))  # they are pictures of another host
        for link, _ in LINK.findall(text):
            if "://" not in link:
                take(page, link, pages)
        write(pages / shown(page), text.replace(HIDDEN, SHOWN))
    shutil.copy(ROOT / "docs" / "zensical.toml", place)
    builder = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(place / "zensical.toml")]
    built = subprocess.run(builder, check=False)
    if built.returncode:
        sys.exit("make docs: see above what is wrong with a page.")
    print(f"The documentation is {place / 'site' / 'index.html'}")


def take(page: Path, link: str, pages: Path) -> None:
    """Copy the file that a page links to, unless it is a page itself."""
    file = (page.parent / link).resolve()
    if (pages / "docs" / "reference" / file.name).is_file() and file.parent == ROOT / "docs" / "reference":
        return
    if not file.is_file():
        sys.exit(f"make docs: {page.relative_to(ROOT)} links to {link}, which is not there.")
    if file.suffix != ".md":
        write(pages / shown(file), file.read_bytes())


def shown(file: Path) -> str:
    """Return where the site has a file of the repository."""
    return file.relative_to(ROOT).as_posix().replace(HIDDEN, SHOWN)


def write(path: Path, content: str | bytes) -> None:
    """Write a file, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_commands() -> str:
    """Return the reference of the commands, as click knows them."""
    with click.Context(cli, info_name="vrt-lite") as ctx:
        return "\n\n".join(("# Commands", *describe(cli, ctx)))


def describe(command: click.Command, ctx: click.Context) -> Iterator[str]:
    """Describe a command, and those below it."""
    yield f"## {ctx.command_path}"
    yield f"```text\n{' '.join((ctx.command_path, *command.collect_usage_pieces(ctx)))}\n```"
    for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        lines = part.removeprefix("\b\n")
        yield f"```sh\n{lines}\n```" if lines != part else escape(" ".join(part.split()))
    rows = [record for parameter in command.get_params(ctx) if (record := parameter.get_help_record(ctx))]
    if rows:
        yield "\n".join(("| option | |", "|---|---|", *(f"| `{names}` | {escape(words)} |" for names, words in rows)))
    if command.epilog:
        yield escape(" ".join(command.epilog.split()))
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below
            with click.Context(below, info_name=name, parent=ctx) as inner:
                yield from describe(below, inner)


def escape(text: str) -> str:
    """Return plain text as Markdown that shows it."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def write_python() -> str:
    """Return the page from which mkdocstrings makes the reference of the public names."""
    errors = [name for name in vrt_lite.__all__ if name.endswith("Error")]
    values = [name for name in vrt_lite.__all__ if name not in (*FUNCTIONS, *errors)]
    parts = {"Functions": FUNCTIONS, "Classes": values, "Errors": errors}
    told = (f"## {title}\n\n" + "\n\n".join(f"::: vrt_lite.{name}" for name in names) for title, names in parts.items())
    return "\n\n".join(("# Python", *told))


def write_record() -> str:
    """Return the reference of the record, as its schema has it."""
    schema = make_schema()
    about = (
        "`vrt-lite compare --json`, the API and `export` as JSONL give this record. Its "
        "[JSON Schema](../../vrt_lite/schema/judgement.schema.json) is made from the types too."
    )
    write(
        ROOT / "build/docs/pages/vrt_lite/schema/judgement.schema.json",
        (ROOT / "vrt_lite" / "schema" / "judgement.schema.json").read_bytes(),
    )
    return "\n\n".join(("# Record", about, *describe_type("Judgement", schema, set())))


def describe_type(name: str, schema: dict[str, Any], done: set[str]) -> Iterator[str]:
    """Describe a type of the record, then those that it names, each once."""
    own = schema if name == "Judgement" else schema["$defs"][name]
    done.add(name)
    yield f"## {name}"
    if words := own.get("description"):
        yield " ".join(words.split())  # docstrings are Markdown
    fields: dict[str, Any] = own.get("properties", {})
    rows = [f"| `{field}` | {name_type(value)} |" for field, value in fields.items()]
    if rows:
        yield "\n".join(("| field | type |", "|---|---|", *rows))
    for inner in re.findall(r'"#/\$defs/(\w+)"', str(fields).replace("'", '"')):
        if inner not in done:
            yield from describe_type(inner, schema, done)


def name_type(value: dict[str, Any]) -> str:
    """Name the type of a field in words."""
    if reference := value.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := value.get("anyOf"):
        return ", or ".join(map(name_type, choices))
    if values := value.get("enum"):
        return ", or ".join(f"`{item}`" for item in values)
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        items = value.get("prefixItems")
        inner = ", ".join(map(name_type, items)) if items else name_type(value.get("items") or {})
        return f"list of {inner}" if inner else "list"
    if value.get("type") == "object":
        more = value.get("additionalProperties")
        return f"object of {name_type(more)}" if isinstance(more, dict) and more else "object"
    kind = value.get("type", "")
    return ", or ".join(kind) if isinstance(kind, list) else kind


if __name__ == "__main__":
    main()
