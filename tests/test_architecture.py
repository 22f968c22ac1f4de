"""Who may import whom, and what is imported when: the rules that keep the layout as it is drawn."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "vrt_lite"
STANDARD = sys.stdlib_module_names

# Module (or package): what of vrt_lite it may import, at any depth of its code. "*" is everything.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": {"api", "backends", "errors", "judgement", "settings"},
    "__main__": {"cli"},
    "errors": set(),
    "protocol": {"protocol"},
    "interfaces": {"protocol"},
    "resize": {"errors"},
    "profile": {"errors", "protocol", "resize"},
    "settings": {"backends", "errors", "profile", "protocol"},
    "models": {"", "errors", "models", "profile"},
    "fitting": {"backends", "errors", "fitting", "judge", "models", "profile", "protocol", "resize", "settings"},
    "video": {"errors", "extent", "picture", "timeline", "tonemap", "video"},
    "judge": {"errors", "interfaces", "profile", "protocol"},
    "sampled": {"profile", "protocol", "video"},
    "embeddings": {"errors", "models"},
    "backends": {
        "backends",
        "embeddings",
        "errors",
        "fitting",
        "interfaces",
        "models",
        "profile",
        "protocol",
        "resize",
        "video",
    },
    "judgement": {"judge", "profile", "protocol", "sampled", "video"},
    "server": {"backends", "errors", "interfaces", "judgement", "profile", "settings"},
    "api": {
        "backends",
        "embeddings",
        "errors",
        "fitting",
        "interfaces",
        "judge",
        "judgement",
        "models",
        "protocol",
        "sampled",
        "server",
        "settings",
        "sheet",
        "video",
    },
    "sheet": {"errors", "interfaces", "judgement", "protocol"},
    "display": {"display", "interfaces", "judgement", "protocol", "ranking"},
    "evaluation": {"api", "display", "errors", "evaluation", "interfaces", "models", "protocol", "runs"},
    "ranking": {"api", "display", "errors", "interfaces", "protocol", "ranking", "runs", "video"},
    "report": {"", "display", "errors", "evaluation", "protocol", "ranking", "report", "runs", "video"},
    "runs": {"api", "errors", "interfaces", "models", "protocol", "runs"},
    "cli": {
        "",
        "api",
        "backends",
        "cli",
        "display",
        "embeddings",
        "errors",
        "evaluation",
        "fitting",
        "judgement",
        "models",
        "profile",
        "protocol",
        "ranking",
        "report",
        "runs",
        "settings",
    },
}
# Third-party packages: the only places that may name them.
HOMES: dict[str, set[str]] = {
    "av": {"video"},
    "httpx": {"backends/http"},
    "llama_cpp": {"backends/llamacpp/engine.py"},
    "psutil": {
        "backends/llamacpp/engine.py",
        "backends/llamacpp/room.py",
        "backends/llamacpp/tune.py",
        "models/choose.py",
        "runs/claims.py",
        "runs/database.py",
    },
    "huggingface_hub": {"models/hub.py"},
    "rich": {"display"},
    "click": {"cli"},
    "pyarrow": {"evaluation/tables.py"},
    "PIL": {"backends/http", "evaluation/plots.py", "report/pictures.py", "video", "sheet"},
    "numpy": {
        "ranking",
        "evaluation/metrics.py",
        "video",
        "backends/llamacpp",
        "sheet",
        "interfaces",
        "sampled",
        "embeddings",
        "report/pictures.py",
    },
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            base = node.module or ""
            names.update(f"{base}.{alias.name}" if base == "vrt_lite" else base for alias in node.names)
    return names


def home(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    allowed = MAY_IMPORT[home(path)]
    relative = path.relative_to(PACKAGE).as_posix()
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "vrt_lite":
            target = rest[0] if rest and not rest[0].startswith("__") else ""
            assert target in allowed, f"{relative} may not import {name}"
        elif top not in STANDARD:
            assert any(relative.startswith(place) for place in HOMES[top]), f"{relative} may not import {name}"


def test_the_protocol_is_standard_library_only() -> None:
    for path in (PACKAGE / "protocol").glob("*.py"):
        assert {name.split(".")[0] for name in imports(path)} <= STANDARD | {"vrt_lite"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_short_and_say_what_they_know(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 350
    tree = ast.parse(source)
    assert ast.get_docstring(tree), f"{path} has no docstring"
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno > 70]
    assert not long, f"{path}: {long}"


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


HEAVY = {"av", "llama_cpp", "numpy", "PIL", "rich", "huggingface_hub", "httpx", "torch"}


def test_importing_does_no_work() -> None:
    assert not loaded_by("import vrt_lite") & (HEAVY | {"click"})
    assert not loaded_by("import vrt_lite.protocol.tags, vrt_lite.judge") & HEAVY


def test_help_stays_light() -> None:
    for command in (
        "compare",
        "rank",
        "pull",
        "models",
        "rm",
        "cache",
        "estimate",
        "tune",
        "eval",
        "runs",
        "show",
        "export",
        "report",
    ):
        assert not loaded_by(f"from vrt_lite.cli import run\nrun(['{command}', '--help'])") & HEAVY


def test_every_public_name_is_there() -> None:
    import vrt_lite

    for name in vrt_lite.__all__:
        assert getattr(vrt_lite, name) is not None
    with pytest.raises(AttributeError):
        _ = vrt_lite.nothing
