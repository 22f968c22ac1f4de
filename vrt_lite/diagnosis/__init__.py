"""Finds out what works here, what costs speed and what is broken, for `vrt-lite doctor`.

It loads no large model and uses no network. The engine runs in a child process, which may crash.
"""

from __future__ import annotations

from vrt_lite.diagnosis.finding import Finding, reinstall


def diagnose() -> dict[str, list[Finding]]:
    """All findings, by group. If a package that vrt-lite needs cannot be loaded, that is the only one."""
    try:
        from vrt_lite.diagnosis.all_checks import run_all_checks  # noqa: PLC0415

        return run_all_checks()
    except ImportError as error:
        text = f"a package that vrt-lite needs cannot be loaded: {error}"
        return {"packages": [Finding("package_unusable", "problem", text, reinstall())]}
