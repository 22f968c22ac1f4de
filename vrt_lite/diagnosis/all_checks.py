"""Runs all checks. Their modules import packages that may be missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from vrt_lite.diagnosis.engine_checks import check_devices, check_engine, find_gpu_makers
from vrt_lite.diagnosis.file_checks import (
    check_cache,
    check_folders,
    check_models,
    check_store,
    check_tunings,
    give_access,
)
from vrt_lite.diagnosis.finding import Finding
from vrt_lite.diagnosis.setting_checks import (
    check_environment,
    check_layers,
    check_packages,
    check_settings,
    check_terminal,
)
from vrt_lite.machine import format_bytes
from vrt_lite.models.quants import total_memory


def run_all_checks() -> dict[str, list[Finding]]:
    """All findings, by group."""
    report, engine = check_engine()
    makers = find_gpu_makers()
    has_gpu = bool(report and report.machine.gpus)
    encoding = cast("str | None", getattr(sys.stdout, "encoding", None))  # None: it was closed when this process began
    total = Finding("memory", "ok", f"memory: {format_bytes(total_memory())} in all")
    return {
        "engine": engine,
        "machine": [*check_devices(report, makers, os.environ)] if report else [total],
        "files": run_check(check_folders) + run_check(check_cache) + run_check(check_store),
        "models": run_check(check_models) + (run_check(lambda: check_tunings(report, makers)) if report else []),
        "environment": [
            *check_settings(os.environ),
            *(check_layers(os.environ, makers) if report and not has_gpu else ()),
            *check_environment(os.environ, makers, has_gpu=has_gpu),
            check_terminal(encoding, os.environ),
        ],
        "packages": [*check_packages()],
    }


def run_check(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check of files; one that tells which file cannot be read, if there is such a file."""
    try:
        return [*check()]
    except OSError as error:
        path = Path(str(error.filename))
        step = give_access(path, error)
        return [Finding("file_unreadable", "problem", f"{path} cannot be read: {error.strerror}", step)]
