"""What a program loads, and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_layout
import pytest

import vrt_lite
from vrt_lite.backends.llamacpp.engine import _import_bindings
from vrt_lite.cli import _COMMANDS

ENGINE = "vrt_lite.backends.llamacpp.engine"  # alone imports llama_cpp
HEAVY = f"av gguf httpx huggingface_hub matplotlib numpy PIL rich starlette tomlkit torch uvicorn {ENGINE}"
MOST_MODULES_OF_COMPARE = 80
JUDGE_OFFLINE = """
import contextlib, io
from vrt_lite.cli import run
def refuse(event, given):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(refuse)
with contextlib.redirect_stdout(io.StringIO()):
    assert run([*{compare}, "--json"]) == 0
own = [name for name in sys.modules if name.startswith("vrt_lite.")]
assert run([*{compare}, "-q"]) == 0
print(*own)
"""


def lines_of(code: str, **environment: str) -> list[str]:
    """What a program prints, and in a last line the modules that it has loaded at its end; its messages are printed."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint()\nprint(*sys.modules)"]
    options: Any = {"cwd": check_layout.ROOT, "env": {**os.environ, **environment}, "text": True}
    return subprocess.check_output(command, stderr=subprocess.STDOUT, **options).splitlines()


@pytest.mark.parametrize(
    ("code", "light"),
    [
        ("import vrt_lite", f"{HEAVY} click"),
        ("import vrt_lite.protocol.tags, vrt_lite.judge", HEAVY),
        (
            f"from vrt_lite.cli import run\nassert not any(run([name, '--help']) for name in {[*_COMMANDS]})",
            f"{HEAVY} email",
        ),
        ("from vrt_lite.api import Judge\nwith Judge() as judge:\n    judge.key()", f"{ENGINE} av numpy"),
        ("import vrt_lite.show, vrt_lite.show.judge_view  # for pipes and errors", "rich"),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str, light: str) -> None:
    loaded = lines_of(code)[-1].split()
    assert not {*loaded, *(name.split(".")[0] for name in loaded)} & set(light.split())


def test_a_local_compare_loads_few_modules_touches_no_network_and_shows_names_escaped(tmp_path: Path) -> None:
    name, shown = "a\x1b[31m\u202e[bold]é.mp4", r"a\x1b[31m\u202e[bold]\xe9.mp4"
    if sys.platform == "win32":
        name = shown = "star.mp4"
    clip = str(shutil.copy(check_layout.ROOT / "examples" / "star.mp4", tmp_path / name))
    compare = ["compare", clip, "examples/circle.mp4", "--prompt", "A blue star moves up."]
    first, *_, own, _, _ = lines_of(JUDGE_OFFLINE.format(compare=compare), PYTHONIOENCODING="ascii")
    assert first.startswith(f"overall: video 1 ({shown}) ")
    assert "vrt_lite.judge" in own
    assert len(own.split()) <= MOST_MODULES_OF_COMPARE, own


def test_the_engine_is_loaded_while_another_thread_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(str):
        """A module's name that, when it is looked at, loads one more."""

        def partition(self, sep: str, /) -> tuple[str, str, str]:
            sys.modules[f"{self}.{len(sys.modules)}"] = sys
            return super().partition(sep)

    monkeypatch.setattr(sys, "modules", {Loaded("loaded"): sys, **sys.modules})
    assert len(list(_import_bindings())) == 2


def test_every_public_name_is_there() -> None:
    for name in vrt_lite.__all__:
        assert getattr(vrt_lite, name) is not None
    with pytest.raises(AttributeError):
        _ = vrt_lite.nothing
