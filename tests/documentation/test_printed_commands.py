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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import av
import click
import psutil
import pytest
import sharded_checkpoint
from pull_commands import isolate_client

from bench.__main__ import cli as bench
from bench.loopback_hub import serve_folder
from convert.__main__ import convert
from train.__main__ import train
from vrt_lite.cli import cli, run
from vrt_lite.errors import ModelError

ROOT = Path(__file__).parents[2]
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


def commands_not_run() -> Iterator[str]:
    blocks = (block for page in PAGES for block in blocks_of(page) if block.kind == "sh")
    return (command for block in blocks if block.mark.startswith("not run: ") for command in block.commands)


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


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's examples, and files by the names that the pages use."""
    folder = tmp_path_factory.mktemp("furnished") / "here"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    a, b = (folder / "examples" / name for name in ("a.mp4", "b.mp4"))
    for copy in ("a.mp4", "take.mp4", "renders/one.mp4", "takes/first/one.mp4"):
        (folder / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(a, folder / copy)
    for copy in ("b.mp4", "renders/two.mp4", "takes/second/two.mp4"):
        (folder / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(b, folder / copy)
    for name in ("prompt.txt", "fox.txt"):
        (folder / name).write_text("A fox runs through snow.\n", "utf-8")
    (folder / "clips.csv").write_text("clip,prompt,group\na.mp4,A fox.,one\nb.mp4,A fox.,one\n", "utf-8")
    (folder / "pairs.csv").write_text("a,b,prompt,overall\na.mp4,b.mp4,A fox.,A\n", "utf-8")
    write_pictures(b, folder / "frames", folder / "a.gif")
    shutil.copytree(ROOT / "vrt_lite" / "bundled" / "vrt-tiny-0", folder / "my-judge")
    sharded_checkpoint.make(folder / "my-checkpoint", shards=2)
    return folder


def write_pictures(clip: Path, folder: Path, animation: Path) -> None:
    with av.open(str(clip)) as file:
        pictures = [frame.to_image() for frame in file.decode(video=0)]
    folder.mkdir()
    for number, picture in enumerate(pictures, 1):
        picture.save(folder / f"{number:04d}.png")
    pictures[0].save(animation, save_all=True, append_images=pictures[1:], duration=125)


@dataclass
class Reader:
    """Someone who follows a page in `folder`, which is the current one. What ends by itself runs in this process."""

    folder: Path

    def follow(self, command: str) -> None:
        program, *words = shlex.split(command)
        if program in ("make", "source", "pip"):  # they make the environment that all else runs in
            parse(command)
        elif program == "cp":
            shutil.copy(self.folder / words[0], self.folder / words[1])
        elif program == "curl" or "api_client.py" in command:
            with self.serving():
                self.done(command, self.start(program, words))
        elif "serve" in words or "--watch" in words:
            self.interrupt(command, self.start(program, words), "serves at" if "serve" in words else "1 of ")
        elif program == "vrt-lite":
            assert run(words) == 0, command
        else:
            self.done(command, self.start(program, words))

    def start(self, program: str, words: Sequence[str]) -> subprocess.Popen[str]:
        begin = {"vrt-lite": [sys.executable, "-m", "vrt_lite"], "python": [sys.executable]}.get(program, [program])
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        # Not the terminal's: Ctrl-C here is for the tests.
        own: dict[str, Any] = (
            {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
            if sys.platform == "win32"
            else {"start_new_session": True}
        )
        return subprocess.Popen([*begin, *words], **pipes, **own)

    def done(self, command: str, process: subprocess.Popen[str]) -> None:
        with ended(process):
            told, _ = process.communicate(timeout=MOST_SECONDS)
        assert process.returncode == 0, f"{command}: {told}"

    def interrupt(self, command: str, process: subprocess.Popen[str], sign: str) -> None:
        """Press Ctrl-C once it is seen to work."""
        with ended(process):
            assert process.stdout
            seen = "".join(iter_until(process.stdout, sign))
            process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGINT)
            told, _ = process.communicate(timeout=MOST_SECONDS)
        assert process.returncode in (0, 130), f"{command}: {seen}{told}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Have the server that the reader has started by now."""
        process = self.start("vrt-lite", ["serve"])
        with ended(process):
            assert process.stdout
            first = process.stdout.readline()
            assert SERVER in first, first
            yield


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no process behind: end it, and what it has begun, if it still runs."""
    with process:
        try:
            yield
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()


def iter_until(stream: IO[str], sign: str) -> Iterator[str]:
    """The lines of a program up to the first that holds the sign."""
    for line in stream:
        yield line
        if sign in line:
            return


@pytest.fixture
def reader(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader of one page, whose hub is a folder on loopback."""
    folder = shutil.copytree(furnished, tmp_path / "here")
    monkeypatch.chdir(folder)
    isolate_client(tmp_path / "hf", monkeypatch)
    with serve_folder(furnished / "my-checkpoint", HUB_NAME) as hub:
        for name, value in {"HF_ENDPOINT": hub, "BROWSER": "true", "PYTHONPATH": str(ROOT)}.items():
            monkeypatch.setenv(name, value)
        yield Reader(folder)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_prints_works(page: str, reader: Reader) -> None:
    for block in blocks_of(page):
        if block.mark.startswith("file: "):
            (reader.folder / block.mark.removeprefix("file: ")).write_text(block.text, "utf-8")
        elif block.kind == "sh" and not block.mark.startswith("not run: "):
            for command in block.commands:
                reader.follow(command)


def test_what_is_not_run_is_understood() -> None:
    for command in commands_not_run():
        parse(command)


def test_commands_in_sentences_and_helps_are_understood() -> None:
    named = {command for page in PAGES for command in INLINE.findall((ROOT / page).read_text("utf-8"))}
    with click.Context(cli) as ctx:
        helps = [verb.help or "" for name in cli.list_commands(ctx) if (verb := cli.get_command(ctx, name))]
    examples = [part for text in helps for part in re.findall(r"\x08\n(.*?)(?:\n\s*\n|\Z)", text, re.DOTALL)]
    named |= {line.strip() for part in examples for line in part.splitlines() if line.strip().startswith("vrt-lite ")}
    assert len(named) > 40
    for command in named:
        parse(re.sub(r"\b(N|P)\b", "1", command))
