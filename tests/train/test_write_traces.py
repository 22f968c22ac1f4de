"""Traces of a strong model on a server: what is strictly well-formed and right is kept, and nothing is asked twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import Server, answers, says, serving
from clips import write_clip

from train.data import load_cases, read_rows, read_traces
from train.write_traces import write_traces
from vrt_lite.errors import BackendError
from vrt_lite.profile import default_profile
from vrt_lite.settings import Remote

ROOT = Path(__file__).resolve().parents[2]
CALL = (
    "<snapshot>both blue</snapshot><think>more</think><recommend answer>TA=0, VQ=0, MQ=0, OA=1, CF=2</recommend answer>"
    '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [2, 50]}}</tool_call>'
)
GOOD = "<snapshot>a is sharper</snapshot><think>so</think><final answer>TA=0, VQ=1, MQ=0, OA=1</final answer>"
WRONG = GOOD.replace("OA=1", "OA=2")
LOOSE = f"Sure! {GOOD}"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three pairs in which the first clip is better."""
    for name in ("a", "b"):
        write_clip(tmp_path / f"{name}.mp4", frames=48, fps=16)
    rows = [f"p{n},a.mp4,b.mp4,a fox {n},A" for n in range(3)]
    (tmp_path / "pairs.csv").write_text("\n".join(["id,a,b,prompt,overall", *rows]) + "\n", encoding="utf-8")
    return tmp_path / "pairs.csv"


def _write(table: Path, server: Server, **options: int) -> int:
    remote = Remote(server.url, tries=1, connect_seconds=5.0, silence_seconds=5.0, pause_seconds=0.01)
    return write_traces(load_cases(table), remote, default_profile(), table.with_name("traces.jsonl"), **options)


def test_what_is_well_formed_and_right_is_kept(table: Path) -> None:
    script = [says(CALL), says(GOOD), says(WRONG), says(LOOSE), says(LOOSE), says(GOOD)]
    with serving(*script) as server:
        assert _write(table, server, tries=2) == 2
        asked = len(server.bodies)
        assert _write(table, server, tries=2) == 2
        assert len(server.bodies) == asked, "a pair was asked about again"
    rows = list(read_rows(table.with_name("traces.jsonl")))
    assert [row["key"] for row in rows] == ["p0", "p1", "p2"]
    assert rows[0]["replies"] == [CALL, GOOD]
    assert rows[1]["replies"] is None and "outside of the tags" in rows[1]["flaw"]
    assert rows[2]["replies"] == [GOOD]
    seeds = [body["seed"] for body in server.bodies]
    assert seeds == [0, 0, 0, 1, 0, 1], "two tries are two draws"
    text = json.dumps(server.bodies[0])
    assert "Your task is to compare two videos" in text and "a fox 0" in text
    cases = load_cases(table, table.with_name("traces.jsonl"))
    assert [(case.key, case.script) for case in cases] == [("p0", (CALL, GOOD)), ("p2", (GOOD,))]


def test_a_wrong_answer_says_in_what(table: Path) -> None:
    with serving(says(WRONG)) as server:
        assert _write(table, server) == 0
    assert [row["flaw"] for row in read_rows(table.with_name("traces.jsonl"))] == ["OA wrong"] * 3


def test_a_server_that_fails_leaves_what_was_written(table: Path) -> None:
    with serving(says(GOOD), answers(400)) as server, pytest.raises(BackendError):
        _write(table, server)
    assert read_traces(table.with_name("traces.jsonl")) == {"p0": (GOOD,)}
    with serving(says(GOOD)) as server:
        assert _write(table, server, jobs=2) == 3
        assert len(server.bodies) == 2


def test_the_command(table: Path) -> None:
    out = table.with_name("out.jsonl")
    with serving(says(GOOD)) as server:
        command = [sys.executable, "-m", "train", "write-traces", str(table), "--backend", server.url]
        command += ["--model", "judge", "--preset", "videogen-reward", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"3 traces of 3 pairs in {out}\n"
    assert {body["model"] for body in server.bodies} == {"judge"}
    assert "The visual aesthetics of the video" in json.dumps(server.bodies[0])
