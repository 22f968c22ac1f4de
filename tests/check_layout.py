"""The rules of the layout, a line for each fault: who imports whom, how long things may be, and what has which name.

python tests/check_layout.py
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
TREES = {
    "vrt_lite": set[str](),
    "convert": {"vrt_lite"},
    "bench": {"vrt_lite", "convert", "train"},
    "train": {"vrt_lite", "convert"},
}
"""The four trees, and the other trees that each may import."""
LAYERS = """
    errors advice reading < shortage < disk < tables clip_files < protocol machine < profile interfaces
    < withholding scheduler worker < judge video models < settings pair_frames embeddings conversion
    < measures stored_settings < records pulling < schema decoder < fitting < backends < tuning
    < server_mode < modes < forecast < model_list < recording < trace_file < comparing < judge_worker < api
    < runs < ranking evaluation diagnosis < run_api < show < viewer < web < cli
"""
"""The top-level modules and packages of vrt_lite, low to high. Each may import itself and lower layers."""
THIRD_PARTY = {
    "anyio": "web",
    "av": "video",
    "click": "cli stored_settings.py",
    "filelock": "disk.py",
    "gguf": "conversion",
    "httpx": "backends/http",
    "huggingface_hub": "models/hub.py",
    "llama_cpp": "backends/llamacpp/engine.py",
    "matplotlib": "show/evaluation_sections.py",
    "msgspec": "backends/http cli/options.py conversion evaluation measures models ranking reading.py "
    "records runs schema tuning web",
    "numpy": "backends/llamacpp conversion decoder.py diagnosis/judge_checks.py embeddings.py evaluation/metrics.py "
    "interfaces.py measures pair_frames.py ranking show/sheet.py tuning video viewer",
    "PIL": "backends/http decoder.py diagnosis/judge_checks.py measures ranking/entries.py show/sheet.py video",
    "platformdirs": "disk.py",
    "psutil": "backends/llamacpp judge_worker.py machine.py models runs tuning",
    "pyarrow": "evaluation",
    "python_multipart": "web",
    "rich": "show",
    "starlette": "web",
    "tomlkit": "cli/profile_command.py profile.py stored_settings.py",
    "uvicorn": "web",
}
"""Packages that are not of the standard library, and the only places in vrt_lite that may import each."""
MAY_HAVE_THREADS = {
    "the scheduler's own, and its calls": "scheduler.py shortage.py",
    "decoding and measuring clips": "comparing.py video pair_frames.py measures",
    "digests, the plan and the model, while clips are opened": "modes.py backends/llamacpp/engine.py",
    "requests to a server": "backends/http",
    "the pipe of a process": "worker.py judge_worker.py",
    "the server": "web",
    "the terminal, and ending in time": "show __main__.py",
    "files: fetched, written and read": "disk.py tables.py pulling conversion ranking",
    "runs and types, which several threads may use": "runs reading.py",
}
"""The only places in vrt_lite that may have a thread, a lock, a condition, a semaphore or a pool of threads."""
OF_THREADING = "Barrier BoundedSemaphore Condition Lock RLock Semaphore Thread Timer local"
OF_THREADS = {
    "concurrent.futures.ThreadPoolExecutor",
    "threading",
    "vrt_lite.shortage.ThreadPool",
    *(f"threading.{name}" for name in OF_THREADING.split()),
}
MOST_LINES, MOST_FUNCTION_LINES = 600, 60
STEP = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
"""A line of CONTRIBUTING's table of what happens in a comparison: its number, a file, and a function in it."""


def modules(tree: str) -> list[Path]:
    return sorted((ROOT / tree).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """A file's module; a package's own file is its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a file's code, at any depth; the module comes first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def known() -> frozenset[str]:
    return frozenset(dotted(path) for tree in TREES for path in modules(tree))


@functools.cache
def imported_names(path: Path) -> dict[str, str]:
    """All that a file imports, at any depth of its code, and the module that each name is imported from."""
    found: dict[str, str] = {}
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found.update({alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            found.update({f"{node.module}.{alias.name}": node.module or "" for alias in node.names})
    return found


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports; of ours the very module, `__init__` for a package."""
    return frozenset(resolved(name, base) for name, base in imported_names(path).items())


def resolved(name: str, base: str) -> str:
    """The module that a name leads to; `base` is the one that it is imported from."""
    candidates = (name, f"{name}.__init__", base, f"{base}.__init__")
    return next((candidate for candidate in candidates if candidate in known()), base or name)


def own_imports(path: Path) -> set[str]:
    """What a file imports of the four trees, but for the version and for itself."""
    own = {name for name in imports(path) if name.split(".")[0] in TREES}
    return own - {"vrt_lite.__init__", dotted(path)}


def is_at_home(path: Path, homes: str) -> bool:
    place = relative(path).removeprefix("vrt_lite/")
    return any(place == home or place.startswith(f"{home}/") for home in homes.split())


def upward_imports(path: Path) -> Iterator[str]:
    levels = {home: level for level, layer in enumerate(LAYERS.split("<")) for home in layer.split()}
    home = relative(path).split("/")[1].removesuffix(".py")
    if home in levels:
        for name in own_imports(path):
            other = name.split(".")[1]
            if other != home and levels.get(other, len(levels)) >= levels[home]:
                yield f"imports {name}, and may import {home} and lower layers"
    elif home not in ("__init__", "__main__"):
        yield f"{home} has no layer"


def misplaced_imports(path: Path) -> Iterator[str]:
    """Imports of another tree, and in vrt_lite packages outside of their places."""
    tree = relative(path).split("/")[0]
    for name in imports(path):
        top = name.split(".")[0]
        homes = THIRD_PARTY.get(top, "")
        if top in {*TREES, "tests"} - TREES[tree] - {tree}:
            yield f"imports {name}, another tree"
        elif tree == "vrt_lite" and top not in sys.stdlib_module_names | TREES.keys() and not is_at_home(path, homes):
            yield f"imports {name}, whose places are {homes or 'none'}"


def misplaced_threads(path: Path) -> Iterator[str]:
    if not is_at_home(path, " ".join(MAY_HAVE_THREADS.values())):
        found = imported_names(path).keys() & OF_THREADS
        yield from (f"imports {name}, which has no place there" for name in found)


def too_long(path: Path) -> Iterator[str]:
    lines = len(read(relative(path)).splitlines())
    if lines > MOST_LINES:
        yield f"has {lines} lines; {MOST_LINES} are allowed"
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield f"{node.name} has {length} lines; {MOST_FUNCTION_LINES} are allowed"


def import_cycles(package: Path) -> Iterator[str]:
    """A cycle between the modules and subpackages of a package, each subpackage taken as one."""
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
        yield f"{relative(package)}: an import cycle: {' <- '.join(error.args[1])}"


def repeated_names(paths: list[Path]) -> Iterator[str]:
    """Names of modules and of public classes that several files have."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path.name != "__main__.py":
            module = path.parent if path.name == "__init__.py" else path
            places[f"module {module.stem}"].append(relative(module))
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"class {node.name}"].append(relative(path))
    for name, where in places.items():
        if len(where) > 1:
            yield f"{', '.join(where)}: the {name} is there {len(where)} times"


def functions_in(path: Path) -> set[str]:
    """Top-level functions and classes, and methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(nodes(path)[0]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def missing_names() -> Iterator[str]:
    """Files, functions and classes that two pages name and that are not there; a version that differs."""
    steps = STEP.findall(read(".github/CONTRIBUTING.md"))
    if [int(number) for number, _, _ in steps] != list(range(1, 11)):
        yield "CONTRIBUTING.md: not ten steps"
    for _, file, name in steps:
        if not (ROOT / file).is_file() or name not in functions_in(ROOT / file):
            yield f"CONTRIBUTING.md: {file} has no {name}"
    page = read("docs/how-it-works.md")
    for file in re.findall(r"`([\w/]+\.py)`", page):
        if not any((ROOT / place / file).is_file() for place in (".", "vrt_lite")):
            yield f"how-it-works.md: no {file}"
    words = {word for path in modules("vrt_lite") for word in re.findall(r"\w+", read(relative(path)))}
    for name in re.findall(r"`(?:[a-z_]+\.)?([A-Z]\w*[a-z]\w*)(?:[.(][^`]*)?`", page):
        if name not in words:
            yield f"how-it-works.md: no {name}"
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    for file, line in (("CITATION.cff", f"version: {version}"), ("vrt_lite/__init__.py", f'__version__ = "{version}"')):
        if line not in read(file).splitlines():
            yield f"{file}: the version is not {version}"


def list_faults() -> Iterator[str]:
    paths = [path for tree in TREES for path in modules(tree)]
    for path in paths:
        of_the_package = (upward_imports, misplaced_threads) if path.is_relative_to(ROOT / "vrt_lite") else ()
        for rule in (misplaced_imports, too_long, *of_the_package):
            yield from (f"{relative(path)}: {fault}" for fault in rule(path))
        if path.name == "__init__.py":
            yield from import_cycles(path.parent)
    yield from repeated_names(paths)
    yield from missing_names()


if __name__ == "__main__":
    faults = sorted(list_faults())
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))
