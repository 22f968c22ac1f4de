"""Every command that README and the documentation print is run as printed, in a folder that has what they name.

A comment before a block, `<!-- not run: WHY -->`, names what is not at hand: weights, a published set, a GPU. Its
commands are parsed by the program itself. So are those in the middle of a sentence, and those in the help texts.
A block after `<!-- file: NAME -->` is a file that the reader writes.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
import sharded_checkpoint
from pull_commands import isolate_client
from web.conftest import ROOT, write_animation, write_pictures

from bench.__main__ import cli as bench
from bench.loopback_hub import serve_folder
from convert.__main__ import convert
from train.__main__ import train
from vrt_lite.cli import cli, run
from vrt_lite.errors import ModelError

PAGES = ["README.md", "bench/README.md", "integrations/comfyui/README.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:vrt-lite|python -m \w+) [^`]+)`")
GROUPS: dict[str, click.Group] = {"vrt-lite": cli, "convert": convert, "bench": bench, "train": train}
FOREIGN = {"source", "vllm", "comfy", "git", "pip", "cp", "curl"}
"""Programs that are not ours."""
SERVER = "127.0.0.1:8765"
HUB_NAME = "qunwang13/vr-thinker"
MOST_SECONDS = 120


@dataclass(frozen=True)
class Block:
    """A code block of a page: its language, the comment before it, and its text."""

    kind: str
    mark: str
    text: str

    @property
    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines()
        return [command for line in lines if (command := re.sub(r"\s+#.*", "", line).strip())]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    return [Block(found["kind"], found["mark"] or "", found["text"]) for found in BLOCK.finditer(text)]


def parse(command: str) -> None:
    """Let the program that a command names parse it, up to where it would begin to work."""
    words = shlex.split(command.partition(" | ")[0].partition(" > ")[0])
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    if words[0] in GROUPS:
        group = GROUPS[words[0]]
        with click.Context(group, info_name=words[0]) as ctx, understood():
            if words[1].startswith("-"):
                group.make_context(words[0], words[1:])
            while isinstance(group, click.Group):
                name, verb, words = group.resolve_command(ctx, words[1:])
                assert verb
                if not isinstance(verb, click.Group) or not words:
                    if words:  # else only its name is named
                        verb.make_context(name, words, parent=ctx)
                    return
                group, words = verb, ["", *words]
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), command
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), command
    else:
        assert words[0] in FOREIGN, command
    if extras := re.search(r"\.\[([\w,]+)\]", command):
        known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        assert set(extras[1].split(",")) <= set(known), command


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Accept that a command asks for help, and that a file is not there that an earlier command would have written."""
    try:
        with contextlib.suppress(click.exceptions.Exit):
            yield
    except (click.BadParameter, ModelError) as error:
        if not str(error).endswith(("does not exist.", "No such file or directory.")):
            raise


@dataclass
class Reader:
    """Someone who follows the pages in `folder`, which is the current one. What ends by itself runs in this process."""

    folder: Path
    hub: str
    followed: set[str] = field(default_factory=set)

    def read(self, block: Block) -> None:
        if block.mark.startswith("file: "):
            (self.folder / block.mark.removeprefix("file: ")).write_text(block.text, "utf-8")
        elif block.kind == "sh" and not block.mark.startswith("not run: "):
            with self.serving() if block.mark == "server" else contextlib.nullcontext():
                for command in block.commands:
                    if command not in self.followed:  # on another page
                        self.follow(command)
                        self.followed.add(command)

    def follow(self, command: str) -> None:
        program, *words = shlex.split(command)
        if program in ("make", "source", "pip"):  # they make the environment that all else runs in
            parse(command)
        elif program == "cp":
            shutil.copy(self.folder / words[0], self.folder / words[1])
        elif "serve" in words or "--watch" in words:
            self.interrupt(command, self.start(program, words), "serves at" if "serve" in words else "1 of ")
        elif program == "vrt-lite":
            assert run(words) == 0, command
        else:
            with ended(self.start(program, words)) as process:
                told, _ = process.communicate(timeout=MOST_SECONDS)
            assert process.returncode == 0, f"{command}: {told}"

    def start(self, program: str, words: Sequence[str]) -> subprocess.Popen[str]:
        begin = {"vrt-lite": [sys.executable, "-m", "vrt_lite"], "python": [sys.executable]}.get(program, [program])
        # Not the terminal's: Ctrl-C here is for the tests.
        own: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            own = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        return subprocess.Popen([*begin, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **own)

    def interrupt(self, command: str, process: subprocess.Popen[str], sign: str) -> None:
        """Press Ctrl-C once it is seen to work."""
        with ended(process):
            seen = read_until(process, sign)
            process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGINT)
            told, _ = process.communicate(timeout=MOST_SECONDS)
        assert process.returncode in (0, 130), f"{command}: {seen}{told}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Have the server that the reader has started by now."""
        with ended(self.start("vrt-lite", ["serve"])) as process:
            assert SERVER in read_until(process, SERVER)
            yield


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Leave no process behind: end it, and what it has begun, if it still runs."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()


def read_until(process: subprocess.Popen[str], sign: str) -> str:
    """Read the lines of a program up to the first that holds the sign."""
    seen = ""
    assert process.stdout
    while sign not in seen and (line := process.stdout.readline()):
        seen += line
    return seen


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader who has a checkout's examples, files by the names that the pages use, and a hub on loopback."""
    folder = tmp_path_factory.mktemp("furnished") / "here"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    a, b = (folder / "examples" / name for name in ("a.mp4", "b.mp4"))
    for clip, copies in (
        (a, "a.mp4 take.mp4 renders/one.mp4 takes/first/one.mp4"),
        (b, "b.mp4 renders/two.mp4 takes/second/two.mp4"),
    ):
        for copy in copies.split():
            (folder / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(clip, folder / copy)
    for name in ("prompt.txt", "fox.txt"):
        (folder / name).write_text("A fox runs through snow.\n", "utf-8")
    (folder / "clips.csv").write_text("clip,prompt,group\na.mp4,A fox.,one\nb.mp4,A fox.,one\n", "utf-8")
    (folder / "pairs.csv").write_text("a,b,prompt,overall\na.mp4,b.mp4,A fox.,A\n", "utf-8")
    write_pictures(str(b), folder / "frames")
    write_animation(str(b), folder / "a.gif")
    shutil.copytree(ROOT / "vrt_lite" / "bundled" / "vrt-tiny-0", folder / "my-judge")
    sharded_checkpoint.make(folder / "my-checkpoint", shards=2)
    with serve_folder(folder / "my-checkpoint", HUB_NAME) as hub:
        yield Reader(folder, hub)


@pytest.fixture
def reader(furnished: Reader, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(furnished.folder)
    isolate_client(furnished.folder.parent / "hf", monkeypatch)
    home = str(furnished.folder.parent / "home")
    own = {"HF_ENDPOINT": furnished.hub, "BROWSER": "true", "PYTHONPATH": str(ROOT), "VRT_LITE_HOME": home}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return furnished


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_prints_works(page: str, reader: Reader) -> None:
    for block in blocks_of(page):
        reader.read(block)


def test_what_is_not_run_is_understood() -> None:
    """Nor what stands in the middle of a sentence, or in a help."""
    blocks = [block for page in PAGES for block in blocks_of(page) if block.kind == "sh"]
    named = {command for page in PAGES for command in INLINE.findall((ROOT / page).read_text("utf-8"))}
    with click.Context(cli) as ctx:
        helps = [verb.help or "" for name in cli.list_commands(ctx) if (verb := cli.get_command(ctx, name))]
    examples = [part for text in helps for part in re.findall(r"\x08\n(.*?)(?:\n\s*\n|\Z)", text, re.DOTALL)]
    lines = [line.strip() for part in examples for line in part.splitlines()]
    named |= {line for line in lines if line.startswith("vrt-lite ")}
    assert len(named) > 40
    not_run = [command for block in blocks if block.mark.startswith("not run: ") for command in block.commands]
    for command in (*not_run, *named):
        parse(re.sub(r"\b(N|P)\b", "1", command))
    # The one request in a help is one that a page prints, but for its prompt.
    [request] = [line for line in lines if line.startswith("curl ")]
    printed = [shlex.split(command)[:-1] for block in blocks if block.mark == "server" for command in block.commands]
    assert shlex.split(request)[:-1] in printed
