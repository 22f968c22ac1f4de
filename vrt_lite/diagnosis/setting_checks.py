"""Checks of environment variables, of packages, and of the terminal."""

from __future__ import annotations

import codecs
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from vrt_lite.advice import install, unset_variable
from vrt_lite.diagnosis.engine_checks import install_for_gpu
from vrt_lite.diagnosis.finding import Finding, set_variable
from vrt_lite.disk import HOME_VARIABLE, settings_path
from vrt_lite.stored_settings import KEYS, read_stored

_VARIABLES: Final = tuple(key.variable for key in KEYS.values())
_KNOWN: Final = (HOME_VARIABLE, "VRT_LITE_API_KEY", *_VARIABLES)
_SHOWN: Final = (HOME_VARIABLE, "HF_HOME", "HF_HUB_OFFLINE", *(v for v in _VARIABLES if v != KEYS["backend"].variable))
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


def check_settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The settings file and the variables of settings: what is set, and what cannot be used."""
    found, problems = read_stored(environment)
    in_file = [name for name, kept in found.items() if kept.source == "file"]
    state = f"sets {', '.join(in_file) or 'nothing'}" if os.path.lexists(settings_path()) else "not made yet"
    yield Finding("settings", "ok", f"settings file: {settings_path()}, {state}")
    for problem in problems:
        yield Finding("setting_invalid", "problem", problem.text, problem.command)


def check_layers(environment: Mapping[str, str], makers: Sequence[str]) -> Iterator[Finding]:
    """Layers on a GPU that a variable or the settings file asks for, of an engine without one: nothing judges here."""
    key = KEYS["gpu-layers"]
    kept = read_stored(environment)[0].get(key.name)
    if not kept or kept.value in (0, "auto"):
        return
    in_file = kept.source == "file"
    where = f"{key.name} in {settings_path()}" if in_file else key.variable
    without = f"vrt-lite config unset {key.name}" if in_file else unset_variable(key.variable)
    text = f"{where} is {kept.value}, and this engine uses no GPU: what judges here is refused"
    step = install_for_gpu(makers) if makers else without
    yield Finding("gpu_layers_without_gpu", "problem", text, step)


def check_packages() -> Iterator[Finding]:
    """The versions of the packages that depend on other software, and whether clips of the usual codecs can be read."""
    for name in _PACKAGES:
        try:
            yield Finding("package", "ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding("package_missing", "problem", f"{name} is not installed", install(name))
    repair = install("--force-reinstall", "--no-cache-dir", "--only-binary", "av", "av")
    try:
        from vrt_lite.video.encoding import has_codec  # noqa: PLC0415 - av may be broken
    except ImportError as error:
        yield Finding("video_unusable", "problem", f"av cannot be loaded, so no clip can be read: {error}", repair)
        return
    if missing := [codec for codec in _CODECS if not has_codec(codec)]:
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
