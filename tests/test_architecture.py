"""The rules of the layout: who imports whom, what is loaded when, how long a module may be, and what has which name."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TREES: dict[str, set[str]] = {
    "vrt_lite": set(),
    "convert": {"vrt_lite"},
    "bench": {"vrt_lite", "convert"},
    "train": {"vrt_lite", "convert"},
}
"""The four trees, and the other trees that each may import."""
LAYERS: tuple[set[str], ...] = (
    {"errors", "advice"},
    {"disk", "shortage"},
    {"tables", "clip_files"},
    {"protocol", "machine"},
    {"profile", "interfaces"},
    {"withholding", "scheduler", "worker"},
    {"judge", "video", "models"},
    {"settings", "pair_frames", "embeddings", "conversion"},
    {"measures", "stored_settings"},
    {"judgement", "pulling"},
    {"schema"},
    {"fitting"},
    {"backends"},
    {"tuning"},
    {"server_mode"},
    {"modes"},
    {"forecast"},
    {"model_list"},
    {"recording"},
    {"trace_file", "joining"},
    {"comparing"},
    {"judge_worker"},
    {"api"},
    {"runs"},
    {"ranking", "evaluation", "diagnosis"},
    {"run_api"},
    {"show"},
    {"viewer"},
    {"web"},
    {"cli"},
)
"""The top-level modules and packages of vrt_lite, low to high. Each may import itself and lower layers."""
THIRD_PARTY: dict[str, set[str]] = {
    "av": {"video"},
    "click": {"cli"},
    "filelock": {"disk.py"},
    "gguf": {"conversion"},
    "httpx": {"backends/http"},
    "huggingface_hub": {"models/hub.py"},
    "llama_cpp": {"backends/llamacpp/engine.py"},
    "matplotlib": {"show/evaluation_charts.py"},
    "msgspec": {
        "backends/http",
        "conversion",
        "judgement.py",
        "measures",
        "models",
        "runs",
        "evaluation",
        "ranking",
        "schema",
        "tuning",
        "web",
    },
    "numpy": {
        "backends/llamacpp",
        "conversion",
        "diagnosis/judge_checks.py",
        "embeddings.py",
        "evaluation/metrics.py",
        "interfaces.py",
        "measures",
        "pair_frames.py",
        "ranking",
        "show/sheet.py",
        "tuning",
        "video",
        "viewer",
    },
    "PIL": {"backends/http", "measures", "show/sheet.py", "video", "viewer"},
    "psutil": {"backends/llamacpp", "judge_worker.py", "machine.py", "models", "runs", "tuning"},
    "platformdirs": {"disk.py"},
    "pyarrow": {"evaluation"},
    "python_multipart": {"web"},
    "rich": {"show"},
    "starlette": {"web"},
    "tomlkit": {"cli/profile_command.py", "profile.py", "stored_settings.py"},
    "uvicorn": {"web"},
}
"""Packages that are not of the standard library, and the only places in vrt_lite that may import each."""
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
    "show",
    "export",
    "report",
    "serve",
)
MOST_LINES, MOST_FUNCTION_LINES = 600, 60
MOST_MODULES_OF_COMPARE = 67


def modules(*trees: str) -> list[Path]:
    return [path for tree in trees or TREES for path in sorted((ROOT / tree).rglob("*.py"))]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """A file's module; a package's own file is its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def known() -> frozenset[str]:
    return frozenset(dotted(path) for path in modules())


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """All modules that a file imports, at any depth of its code; of ours the very module, `__init__` for a package."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(resolved(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)} imports relatively"
            base = node.module or ""
            found.update(resolved(f"{base}.{alias.name}", base) for alias in node.names)
    return frozenset(found)


def resolved(name: str, base: str | None = None) -> str:
    """The module that a name leads to; `base` is the one that it is imported from, if it may be no module."""
    for candidate in (name, base or name):
        if candidate in known():
            return candidate
        if f"{candidate}.__init__" in known():
            return f"{candidate}.__init__"
    return base or name


def own_imports(path: Path) -> Iterator[str]:
    """What a file imports of the four trees, but for the version and for itself."""
    for name in imports(path):
        if name.split(".")[0] in TREES and name not in ("vrt_lite.__init__", dotted(path)):
            yield name


def classes(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def repeated(places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


@pytest.mark.parametrize("path", modules("vrt_lite"), ids=relative)
def test_imports_lead_to_lower_layers(path: Path) -> None:
    home = path.relative_to(ROOT / "vrt_lite").parts[0].removesuffix(".py")
    if home in ("__init__", "__main__"):
        return
    level = next((number for number, layer in enumerate(LAYERS) if home in layer), None)
    assert level is not None, f"{home} has no layer"
    allowed = {home}.union(*LAYERS[:level])
    upward = {name for name in own_imports(path) if name.split(".")[1] not in allowed}
    assert not upward, f"{relative(path)} may import {home} and what is lower, and imports {sorted(upward)}"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_trees_import_the_trees_below_them(path: Path) -> None:
    tree = relative(path).split("/")[0]
    strangers = {name for name in imports(path) if name.split(".")[0] in TREES.keys() - TREES[tree] - {tree}}
    assert not strangers
    assert not any(name.split(".")[0] == "tests" for name in imports(path))


def packages() -> list[Path]:
    return [path.parent for path in modules() if path.name == "__init__.py"]


@pytest.mark.parametrize("package", packages(), ids=relative)
def test_no_package_has_an_import_cycle(package: Path) -> None:
    """Between the modules and subpackages of a package, each subpackage taken as one."""
    prefix = [*package.relative_to(ROOT).parts]
    graph: dict[str, set[str]] = defaultdict(set)
    for path in sorted(package.rglob("*.py")):
        child = dotted(path).split(".")[len(prefix)]
        for name in own_imports(path):
            parts = name.split(".")
            if parts[: len(prefix)] == prefix and parts[len(prefix)] != child:
                graph[child].add(parts[len(prefix)])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"{relative(package)}: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("path", modules("vrt_lite"), ids=relative)
def test_third_party_packages_are_imported_in_their_places(path: Path) -> None:
    place = path.relative_to(ROOT / "vrt_lite").as_posix()
    for name in imports(path):
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top != "vrt_lite":
            places = THIRD_PARTY[top]
            at_home = any(place == home or place.startswith(f"{home}/") for home in places)
            assert at_home, f"{place} imports {name}, which belongs to {sorted(places)}"


def test_the_protocol_is_standard_library_only() -> None:
    for path in (ROOT / "vrt_lite" / "protocol").glob("*.py"):
        assert {name.split(".")[0] for name in imports(path)} <= sys.stdlib_module_names | {"vrt_lite"}


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_modules_and_functions_stay_short_and_have_a_docstring(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES
    assert ast.get_docstring(parsed(path)), "the module has no docstring"
    functions = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_FUNCTION_LINES} == {}


def test_no_two_modules_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        module = path.parent if path.name == "__init__.py" else path
        if path.name != "__main__.py":
            places[module.stem].append(relative(module))
    assert not repeated(places), repeated(places)
    assert not places.get("case")


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in classes(path):
            places[name].append(relative(path))
    assert not repeated(places), repeated(places)


def loaded_by(code: str) -> list[str]:
    """The modules that a program has loaded at its end."""
    program = f"import sys\n{code}\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.splitlines()[-1].split()


def packages_loaded_by(code: str) -> set[str]:
    return {name.split(".")[0] for name in loaded_by(code)}


def test_importing_does_no_work() -> None:
    assert not packages_loaded_by("import vrt_lite") & (HEAVY | {"click"})
    assert not packages_loaded_by("import vrt_lite.protocol.tags, vrt_lite.judge") & HEAVY


def test_importing_changes_no_environment_variable() -> None:
    program = (
        "import json, os\nbefore = dict(os.environ)\nfrom vrt_lite import Judge, Settings, compare\n"
        "print(json.dumps([before, dict(os.environ)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    before, after = json.loads(done.stdout)
    assert before
    assert sorted(after.items() ^ before.items()) == []


def test_help_stays_light() -> None:
    for command in COMMANDS:
        assert not packages_loaded_by(f"from vrt_lite.cli import run\nrun(['{command}', '--help'])") & HEAVY


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


MAY_HAVE_THREADS: dict[str, set[str]] = {
    "the scheduler's own, and its calls": {"scheduler.py", "shortage.py"},
    "decoding and measuring clips": {"comparing.py", "video", "pair_frames.py", "measures"},
    "digests, the plan and the model, while clips are opened": {"modes.py", "backends/llamacpp/engine.py"},
    "requests to a server": {"backends/http"},
    "the pipe of a process": {"worker.py", "judge_worker.py"},
    "the server": {"web"},
    "the terminal, and ending in time": {"show", "__main__.py"},
    "files: fetched, written and read": {"disk.py", "tables.py", "pulling", "conversion", "ranking"},
    "runs, which several threads may use": {"runs"},
}
"""The only places in vrt_lite that may have a thread, a lock, a condition, a semaphore or a pool of threads."""
OF_THREADS = {"Thread", "Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer", "local"}


@pytest.mark.parametrize("path", modules("vrt_lite"), ids=relative)
def test_threads_and_locks_are_in_their_places(path: Path) -> None:
    place = path.relative_to(ROOT / "vrt_lite").as_posix()
    homes = set[str]().union(*MAY_HAVE_THREADS.values())
    if any(place == home or place.startswith(f"{home}/") for home in homes):
        return
    named = {f"threading.{name}" for name in OF_THREADS}
    found = {name for node in ast.walk(parsed(path)) for name in names_of_threads(node)}
    assert not found & (named | {"concurrent.futures.ThreadPoolExecutor", "vrt_lite.shortage.ThreadPool", "threading"})


def names_of_threads(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
