"""Counts the words of each sentence in the README, the documentation and the help texts: `python docs/count_words.py`.

It knows nothing of style. A sentence ends with a full stop, a question mark or an exclamation mark, and where a
paragraph, a list's item or a table's cell ends. Code blocks, headings and pictures have no sentences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import click

ROOT = Path(__file__).parent.parent
MOST_WORDS, MOST_ON_AVERAGE = 35, 20
MOST_README_LINES, MOST_README_WORDS = 150, 1_400
_LEFT_OUT = re.compile(r"^```.*?^```|<!--.*?-->|^#.*?$|!\[[^\]]*\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_PART = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\|")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?![a-z])")


def list_sentences(markdown: str) -> list[str]:
    """List the sentences of a Markdown text, each in one line."""
    parts = _PART.split(_LINK.sub(r"\1", _LEFT_OUT.sub("", markdown)))
    found = (" ".join(sentence.split()) for part in parts for sentence in _END.split(part))
    return [sentence for sentence in found if count_words(sentence)]


def count_words(sentence: str) -> int:
    """Count what holds a letter or a digit between spaces."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def list_helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """List the help texts of a command and all that is below it: where each stands, and its text."""
    # What follows \b keeps its lines: examples and lists.
    text = re.sub(
        r"\x08\n.*?(?:\n\s*\n|\Z)", "\n\n", f"{command.help or ''}\n\n{command.epilog or ''}", flags=re.DOTALL
    )
    yield f"{name} --help", text
    yield from ((f"{name} {p.opts[0]}", p.help) for p in command.params if isinstance(p, click.Option) and p.help)
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for verb in command.list_commands(ctx):
                found = command.get_command(ctx, verb)
                assert found
                yield from list_helps(found, f"{name} {verb}")


def find_faults() -> list[str]:
    """Find what is too long; a line for each."""
    from vrt_lite.cli import cli  # noqa: PLC0415 - not needed to count a text

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "integrations" / "comfyui" / "README.md"]
    texts = [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in pages]
    faults: list[str] = []
    for place, text in [*texts, *list_helps(cli, "vrt-lite")]:
        counts = {sentence: count_words(sentence) for sentence in list_sentences(text)}
        faults += [f"{place}: {n} words: {sentence}" for sentence, n in counts.items() if n > MOST_WORDS]
        if place.endswith(".md") and (average := mean(counts.values())) > MOST_ON_AVERAGE:
            faults.append(f"{place}: {average:.1f} words a sentence")
    readme = texts[0][1]
    if (lines := len(readme.splitlines())) > MOST_README_LINES:
        faults.append(f"README.md: {lines} lines")
    if (words := len(readme.split())) > MOST_README_WORDS:
        faults.append(f"README.md: {words} words")
    return faults


if __name__ == "__main__":
    for line in (found := find_faults()):
        print(line, file=sys.stderr)
    sys.exit(bool(found))
