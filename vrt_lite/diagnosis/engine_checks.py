"""Checks of the engine and of the devices that it uses.

What loads the engine's libraries runs in a child process: they may be broken, or crash.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from vrt_lite.advice import install_engine, unset_variable
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.errors import ASK_DOCTOR, VrtError
from vrt_lite.machine import EngineSettings, Machine, MachineMemory, format_bytes
from vrt_lite.worker import Worker

_LOAD_SECONDS, _RUN_SECONDS = 60.0, 300.0
"""How long the engine may take to load, and to run a small model; for a GPU, programs may be compiled first."""
_COMPILER = re.compile(rb"GCC: \([^)\0]*\) ([0-9]+)\.([0-9]+)|clang version ([0-9]+)\.([0-9]+)")
_FIRST_GCC_WITH_AMX: Final = (13, 3)
"""Compilers before this one build AMX kernels that crash (GCC bug 114098)."""
_BACK_END = re.compile(r"(?:lib)?ggml-([a-z]+)\.(?:so|dylib|dll)")
_FEATURES: Final = {"avx2": "AVX2", "avx512f": "AVX512"}
"""By its name in Linux: a feature of the processor as the engine names it."""
_GPU_BACK_ENDS: Final = ("cuda", "hip", "metal", "sycl", "vulkan")
_BY_MAKER: Final = {"NVIDIA": "cuda", "Apple": "metal", "AMD or Intel": "vulkan"}
"""By maker of the GPU: the back end that uses it."""
_MAKERS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD or Intel", "0x8086": "AMD or Intel"}
"""By the number of a PCI device's vendor."""
_HIDING: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
"""Environment variables that choose GPUs, and may leave none."""


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """How the engine was built, as its files show: the compiler, "" if unknown, its version, and the back ends."""

    compiler: str
    version: tuple[int, ...]
    back_ends: tuple[str, ...]

    @property
    def gpu_back_end(self) -> str:
        """The first back end that uses GPUs; "" without one."""
        return next((name for name in self.back_ends if name in _GPU_BACK_ENDS), "")


@dataclass(frozen=True, slots=True)
class EngineReport:
    """An engine that can be loaded: how it was built, and what it tells of this machine."""

    build: EngineBuild
    machine: Machine
    memory: MachineMemory


def _read_machine() -> tuple[Machine, MachineMemory]:
    """In the child: load the engine, and ask it for this machine's devices and memory."""
    from vrt_lite.backends import describe_machine, read_memory  # noqa: PLC0415

    return describe_machine(), read_memory()


def _run_judge() -> float:
    """In the child: run the bundled judge's model as by default; returns the tokens that it reads in a second."""
    from vrt_lite.models import find  # noqa: PLC0415
    from vrt_lite.tuning.measure import measure_model  # noqa: PLC0415

    files = find()
    return 1 / measure_model(files.text, files.projector, EngineSettings(), 16).read


def read_build(folder: Path) -> EngineBuild:
    """How the engine in a folder of libraries was built. Loads none of them."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    back_ends = sorted({found[1] for name in names if (found := _BACK_END.fullmatch(name))} - {"base"})
    library = next((folder / name for name in names if "ggml-cpu" in name), None)
    compilers = [
        ((int(gcc or clang), int(gcc_minor or clang_minor)), "GCC" if gcc else "Clang")
        for gcc, gcc_minor, clang, clang_minor in _COMPILER.findall(library.read_bytes() if library else b"")
    ]
    # Parts that a compiler brings may be older than itself.
    version, name = max(compilers, default=((), ""))
    return EngineBuild(f"{name} {'.'.join(map(str, version))}".strip(), version, tuple(back_ends))


def check_engine() -> tuple[EngineReport | None, list[Finding]]:
    """The engine, None if it cannot be loaded, and what is found about its version, its build and a run."""
    found = find_spec("llama_cpp")
    if found is None or found.origin is None:
        return None, [Finding("engine_missing", "problem", "llama-cpp-python is not installed", install_engine())]
    build = read_build(Path(found.origin).parent / "lib")
    repair = install_engine(build.gpu_back_end)
    name = f"llama-cpp-python {version('llama-cpp-python')}"
    text = f"{name}, built by {build.compiler or 'an unknown compiler'}; back ends: {', '.join(build.back_ends)}"
    findings = [Finding("engine_build", "ok", text)]
    with Worker() as worker:
        try:
            machine, memory = worker.call(_read_machine, seconds=_LOAD_SECONDS)
        except Exception as error:  # whatever it is, it is what is wrong
            return None, [*findings, Finding("engine_unusable", "problem", _describe(error), repair)]
        report = EngineReport(build, machine, memory)
        try:
            speed = worker.call(_run_judge, seconds=_RUN_SECONDS)
        except Exception as error:
            text = f"the engine cannot run the bundled judge: {_describe(error)}"
            findings.append(Finding("engine_fails", "problem", text, repair))
        else:
            findings.append(Finding("engine_runs", "ok", f"runs the bundled judge: {speed:.0f} tokens read a second"))
    return report, [*findings, *check_features(report, _read_features()), *check_amx(report)]


def _describe(error: Exception) -> str:
    text = str(error).removesuffix(ASK_DOCTOR)
    return text if isinstance(error, VrtError) else f"{type(error).__name__}: {text}"


def _read_features() -> set[str]:
    """The features of the processor that Linux lists; none elsewhere."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return set()


def check_features(report: EngineReport, features: Set[str]) -> Iterator[Finding]:
    """Whether the engine was built without some of the processor's `features`, as published wheels are."""
    unused = [name for key, name in _FEATURES.items() if key in features and f"{name} = 1" not in report.machine.engine]
    if unused:
        text = f"built without {' and '.join(unused)}, which this processor has: slower, but for what is on a GPU"
        yield Finding("features_unused", "note", text, install_engine(report.build.gpu_back_end))


def check_amx(report: EngineReport) -> Iterator[Finding]:
    """Whether the engine has AMX kernels that crash."""
    build = report.build
    if "AMX_INT8 = 1" in report.machine.engine and "GCC" in build.compiler and build.version < _FIRST_GCC_WITH_AMX:
        text = (
            f"{build.compiler} builds AMX kernels that crash with repacked weights: repacking stays off, as by "
            "default; built by GCC 13.3 or newer, the engine may be quicker"
        )
        yield Finding("amx_broken", "note", text, f"CC=gcc-13 CXX=g++-13 {install_engine(build.gpu_back_end)}")


def check_devices(report: EngineReport, makers: Sequence[str], environment: Mapping[str, str]) -> Iterator[Finding]:
    """The processor, its features, the memory, and the GPUs. `makers` are those of the GPUs that are there."""
    machine, memory = report.machine, report.memory
    features = ", ".join(re.findall(r"(\w+) = 1", machine.engine))
    yield Finding("processor", "ok", f"{machine.processor}, {machine.cpus} usable processors: {features}")
    text = f"memory: {format_bytes(memory.free_bytes)} free of {format_bytes(memory.total_bytes)} with swap"
    yield Finding("memory", "ok", text)
    for gpu in memory.gpus:
        yield Finding("gpu", "ok", f"GPU: {gpu.name}, {format_bytes(gpu.free_bytes)} free")
    if memory.gpus:
        return
    hiding = next((name for name in _HIDING if name in environment), "")
    if not makers:
        yield Finding("gpu", "ok", "GPU: none")
    elif not report.build.gpu_back_end:
        text = f"GPU: one by {makers[0]}, which this engine cannot use; with it, judging is much faster"
        yield Finding("gpu_unused", "note", text, install_for_gpu(makers))
    elif hiding:
        text = f"GPU: one by {makers[0]}, which the engine does not find; {hiding} may hide it"
        yield Finding("gpu_hidden", "note", text, unset_variable(hiding))
    else:
        text = f"GPU: one by {makers[0]}, which the engine does not find: see whether its driver works"
        yield Finding("gpu_not_found", "note", text, "nvidia-smi" if makers[0] == "NVIDIA" else "vulkaninfo --summary")


def install_for_gpu(makers: Sequence[str]) -> str:
    """The command that installs an engine that can use the first of these GPUs."""
    return install_engine(_BY_MAKER[makers[0]])


def find_gpu_makers() -> list[str]:
    """The makers of this machine's GPUs, as far as its programs and files show them, NVIDIA first."""
    makers = {"NVIDIA"} if shutil.which("nvidia-smi") else set[str]()
    for path in Path("/sys/class/drm").glob("renderD*/device/vendor"):
        with contextlib.suppress(OSError):
            makers.add(_MAKERS.get(path.read_text(encoding="ascii").strip(), ""))
    if sys.platform == "darwin":
        makers.add("Apple")
    return [maker for maker in _BY_MAKER if maker in makers]
