"""What a program loads, and when; that the layout has no fault."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import check_layout
import pytest

HEAVY = {
    "av",
    "gguf",
    "httpx",
    "huggingface_hub",
    "llama_cpp",
    "matplotlib",
    "numpy",
    "PIL",
    "rich",
    "starlette",
    "tomlkit",
    "torch",
    "uvicorn",
}
COMMANDS = (
    "compare",
    "rank",
    "score",
    "pull",
    "models",
    "rm",
    "cache",
    "completion",
    "config",
    "doctor",
    "profile",
    "estimate",
    "convert",
    "tune",
    "eval",
    "runs",
    "history",
    "show",
    "export",
    "report",
    "serve",
)
MOST_MODULES_OF_COMPARE = 80


def test_the_layout_has_no_fault() -> None:
    assert list(check_layout.list_faults()) == []


def loaded_by(code: str) -> list[str]:
    """The modules that a program has loaded at its end."""
    program = f"import sys\n{code}\nprint()\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=check_layout.ROOT, check=True
    )
    return done.stdout.splitlines()[-1].split()


def packages_loaded_by(code: str) -> set[str]:
    return {name.split(".")[0] for name in loaded_by(code)}


def test_importing_does_no_work() -> None:
    assert not packages_loaded_by("import vrt_lite") & (HEAVY | {"click"})
    assert not packages_loaded_by("import vrt_lite.protocol.tags, vrt_lite.judge") & HEAVY


def test_help_stays_light() -> None:
    helps = "\n".join(f"assert run(['{command}', '--help']) == 0" for command in COMMANDS)
    assert not packages_loaded_by(f"from vrt_lite.cli import run\n{helps}") & HEAVY


def test_a_local_compare_loads_few_modules() -> None:
    arguments = ["compare", "examples/star.mp4", "examples/circle.mp4", "--prompt", "A blue star moves up.", "--json"]
    code = f"from vrt_lite.cli import run\nassert run({arguments!r}) == 0"
    own = sorted(name for name in loaded_by(code) if name.startswith("vrt_lite."))
    assert "vrt_lite.judge" in own
    by_package = Counter(name.split(".")[1] for name in own)
    assert len(own) <= MOST_MODULES_OF_COMPARE, f"{len(own)}: {dict(by_package)}\n" + "\n".join(own)


def test_every_public_name_is_there() -> None:
    import vrt_lite

    for name in vrt_lite.__all__:
        assert getattr(vrt_lite, name) is not None
    with pytest.raises(AttributeError):
        _ = vrt_lite.nothing
