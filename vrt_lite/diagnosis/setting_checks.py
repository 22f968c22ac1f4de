"""Checks of environment variables, of packages, and of the terminal."""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from vrt_lite.diagnosis.engine_checks import install_for_gpu
from vrt_lite.diagnosis.finding import Finding, install, set_variable, unset_variable
from vrt_lite.disk import HOME_VARIABLE
from vrt_lite.embeddings import SIZE_VARIABLE

_KNOWN: Final = (HOME_VARIABLE, SIZE_VARIABLE, "VRT_LITE_API_KEY")
_SHOWN: Final = (HOME_VARIABLE, SIZE_VARIABLE, "HF_HOME", "HF_HUB_OFFLINE")
"""Variables whose value is shown. Any other may hold a secret."""
_CODECS: Final = ("h264", "hevc", "vp9", "av1")
_PACKAGES: Final = ("av", "huggingface-hub")


def check_environment(environment: Mapping[str, str], makers: Sequence[str], *, has_gpu: bool) -> Iterator[Finding]:
    """The variables that vrt-lite and the hub's client read, and names that nothing reads."""
    for name, value in sorted(environment.items()):
        if name == "HF_HUB_OFFLINE" and value.upper() in ("1", "ON", "YES", "TRUE"):
            yield Finding("hub_offline", "note", f"{name} is {value}: pull fetches nothing", unset_variable(name))
        elif name in _KNOWN or name.startswith("HF_"):
            yield Finding("variable", "ok", f"{name} is {value if name in _SHOWN else 'set'}")
        elif name.startswith("VRT_LITE_"):
            yield _explain_unknown(name, makers, has_gpu=has_gpu)


def _explain_unknown(name: str, makers: Sequence[str], *, has_gpu: bool) -> Finding:
    if "GPU" in name and not has_gpu:
        text = f"nothing reads {name} (there is --gpu-layers), and this engine uses no GPU"
        step = install_for_gpu(makers) if makers else unset_variable(name)
        return Finding("gpu_layers_without_gpu", "note", text, step)
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    text = f"nothing reads {name}{f'; do you mean {near[0]}?' if near else ''}"
    return Finding("variable_unknown", "note", text, unset_variable(name))


def check_packages() -> Iterator[Finding]:
    """The versions of the packages that depend on other software, and whether clips of the usual codecs can be read."""
    for name in _PACKAGES:
        try:
            yield Finding("package", "ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding("package_missing", "problem", f"{name} is not installed", install(name))
    repair = install("--force-reinstall", "--no-cache-dir", "--only-binary", "av", "av")
    try:
        from vrt_lite.video.decoders import list_missing_decoders  # noqa: PLC0415 - av may be broken
    except ImportError as error:
        yield Finding("video_unusable", "problem", f"av cannot be loaded, so no clip can be read: {error}", repair)
        return
    if missing := list_missing_decoders(_CODECS):
        yield Finding("decoder_missing", "problem", f"av cannot read clips in {', '.join(missing)}", repair)
    else:
        yield Finding("decoders", "ok", f"av reads {', '.join(_CODECS)}")


def check_terminal(encoding: str | None, environment: Mapping[str, str]) -> Finding:
    """Whether what is printed can hold every character."""
    if encoding and codecs.lookup(encoding).name == "utf-8":
        return Finding("terminal", "ok", f"output is in {encoding}")
    text = f"output is in {encoding}: characters that it lacks are shown as escapes"
    forced = "PYTHONIOENCODING"
    step = unset_variable(forced) if forced in environment else set_variable("PYTHONUTF8", "1")
    return Finding("encoding_limited", "note", text, step)
