"""The command that checks this machine. Parse, call, print; what is heavy is imported when needed."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from vrt_lite.cli.options import json_option, print_json
from vrt_lite.errors import DiagnosisError

STATUS = "Exit status: 0 nothing is broken, 2 usage, 9 a problem was found, 130 interrupted."


@click.command(epilog=STATUS)
@click.option("--judge", metavar="NAME", help="Check a judge instead: whether its verdicts follow plain changes.")
@json_option
def doctor(*, judge: str | None, as_json: bool) -> None:
    """Check this machine: engine, devices, models and settings.

    \b
    vrt-lite doctor
    vrt-lite doctor --json
    vrt-lite doctor --judge vr-thinker-7b

    Each line is ok, a note (it costs speed, or may surprise) or a problem (something does not work), with the next
    command to give. It uses no network, loads no large model, and takes a few seconds: it runs the bundled judge's
    model once, in a process of its own. --judge judges four pairs of small drawn clips, without labels: an exchanged
    caption must lower alignment, a blurred copy visual quality, a stuttering copy motion.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.diagnosis import diagnose  # noqa: PLC0415
    from vrt_lite.show.findings import describe_findings, show_findings  # noqa: PLC0415

    if judge:
        from vrt_lite.api import Judge  # noqa: PLC0415
        from vrt_lite.diagnosis.judge_checks import check_judge, draw_clips  # noqa: PLC0415

        with tempfile.TemporaryDirectory() as folder, Judge(judge, process=True) as opened:
            groups = {f"judge {judge}": check_judge(opened, *draw_clips(Path(folder)), Path(folder))}
    else:
        groups = diagnose()
    findings = [{"group": group, **asdict(finding)} for group, found in groups.items() for finding in found]
    broken = any(finding["level"] == "problem" for finding in findings)
    if as_json:
        print_json({"broken": broken, "findings": findings})
    else:
        show_findings(groups)
    if broken:
        raise DiagnosisError(
            f"{describe_findings(groups)}: give the command after each, and run vrt-lite doctor again."
        )
