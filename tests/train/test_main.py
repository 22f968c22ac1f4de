"""The verbs as a user runs them: a whole training of the smallest model on tables, in one and two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clips import write_clip

pytest.importorskip("torch")
pytest.importorskip("trl")

from coloured import SHAPE
from processes import ENVIRONMENT
from small_checkpoint import write_checkpoint

from train.data import load_cases
from train.tiny.restoring import NewModelShape
from vrt_lite.profile import load_profile

pytestmark = pytest.mark.filterwarnings("default")

ROOT = Path(__file__).resolve().parents[2]
PROFILE = """
name = "smallest"
system_prompt = "Compare."
user_prompt = "{caption}"
min_pixels = 6272
max_pixels = 6272
tool_text = ""
forgotten_text = ""
final_text = ""
rounds = 2
max_new_tokens = 24
"""
RECIPE = """
profile = "smallest.profile.toml"

[model]
source = "FOLDER/start"
precision = "float32"
gradient_checkpointing = true

[data]
cold_start = "FOLDER/cold.csv"
traces = "FOLDER/traces.jsonl"
sample = "FOLDER/sample.csv"
grpo = "FOLDER/grpo.csv"
test = "FOLDER/test.csv"

[cold_start]
samples = 4
learning_rate = 1e-3
step = 2

[sample]
queries = 2
samples = 2

[refine]
samples = 2
step = 2

[grpo]
steps = 1
queries = 2
group = 2
resamples = 0
batch = 2

[rollouts]
batch = 4
"""
COUNTS = {"cold": 4, "sample": 2, "grpo": 2, "test": 3}
REPLIES = (
    "<snapshot>\nVideo 1: a.\nVideo 2: b.\n</snapshot>\n<think>\nMore.\n</think>\n"
    "<recommend answer>TA=1, VQ=0, MQ=0, OA=1, CF=2</recommend answer>\n"
    '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [2, 50]}}\n</tool_call>',
    "<snapshot>\nVideo 1: c.\n</snapshot>\n<think>\nVideo 1.\n</think>\n"
    "<final answer>TA=1, VQ=0, MQ=0, OA=1</final answer>",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, its tables, traces, model and two clips. Prompts tell the pairs apart."""
    folder = tmp_path_factory.mktemp("tables")
    write_clip(folder / "a.mp4", frames=48, fps=16)
    write_clip(folder / "b.mp4", frames=96, fps=16)
    for name, count in COUNTS.items():
        _write_table(folder, name, [f"{name} {number}" for number in range(count)])
    traces = [json.dumps({"key": f"row {n}", "replies": REPLIES}) for n in range(1, COUNTS["cold"])]
    traces.append(json.dumps({"key": "row 4", "replies": [REPLIES[0].replace("CF=2", "CF=9"), REPLIES[1]]}))
    (folder / "traces.jsonl").write_text("\n".join(traces) + "\n", encoding="utf-8")
    (folder / "smallest.profile.toml").write_text(PROFILE, encoding="utf-8")
    (folder / "smallest.toml").write_text(RECIPE.replace("FOLDER", folder.as_posix()), encoding="utf-8")
    cases = load_cases(folder / "cold.csv", folder / "traces.jsonl")
    write_checkpoint(folder / "start", NewModelShape(**SHAPE), load_profile(folder / "smallest.profile.toml"), cases)
    return folder


def _write_table(folder: Path, name: str, prompts: list[str]) -> None:
    rows = [f"a.mp4,b.mp4,{prompt},A,A,same,same" for prompt in prompts]
    (folder / f"{name}.csv").write_text("\n".join(["a,b,prompt,overall,TA,VQ,MQ", *rows]) + "\n", encoding="utf-8")


def train(*arguments: str | Path, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, "-m", "train", *map(str, arguments)]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT, env=environment
    )


def _refused(done: subprocess.CompletedProcess[str], part: str) -> None:
    assert done.returncode == 2, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and part in lines[0], done.stderr


def test_every_stage_after_the_other(folder: Path) -> None:
    recipe, run = folder / "smallest.toml", folder / "run"
    _refused(train("refine", recipe, run), "python -m train cold-start RECIPE")
    done = train("cold-start", recipe, run)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 of 4 traces do not have the strict format" in done.stderr
    assert "row 4, reply 1: 'TA=1, VQ=0, MQ=0, OA=1, CF=9'" in done.stderr
    assert "2/2" in done.stderr, "no progress bar"
    assert train("sample", recipe, run).returncode == 0
    traces = run / "sample" / "traces.jsonl"
    assert [json.loads(line)["replies"] for line in traces.read_text("utf-8").splitlines()] == [None, None]
    _refused(train("refine", recipe, run), "has no pair to learn from")  # it has learnt nothing in two steps
    kept = [json.dumps({"key": f"row {n}", "replies": REPLIES}) for n in (1, 2)]
    traces.write_text("\n".join(kept) + "\n", encoding="utf-8")
    done = train("refine", recipe, run)
    assert done.returncode == 0, done.stderr[-3000:]
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = train("grpo", recipe, run, launcher=launch)
    assert done.returncode == 0, done.stderr[-3000:]
    done = train("evaluate", recipe, run)
    assert done.returncode == 0, done.stderr[-3000:]
    for stage in ("cold-start", "refine", "grpo"):
        figures = json.loads((run / stage / "figures.json").read_text("utf-8"))
        assert figures["pairs"]["chosen"] == 3
        assert figures["pairs"]["left"] == 0
        assert sorted(path.suffix for path in (run / stage / "pair").iterdir()) == [".gguf", ".gguf", ".toml"]


def test_tables_that_share_a_pair_are_refused_by_every_stage(folder: Path) -> None:
    table = folder / "test.csv"
    before = table.read_text("utf-8")
    _write_table(folder, "test", ["test 0", "test 1", "grpo  1"])
    for verb in ("cold-start", "evaluate"):
        expected = "share a pair: 'row 2' and 'row 3' have the same clips and prompt"
        _refused(train(verb, folder / "smallest.toml", folder / "fresh"), expected)
    table.write_text(before, encoding="utf-8")
    assert not (folder / "fresh").exists()


def test_accelerate_starts_a_stage(folder: Path) -> None:
    launch = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1")
    launch += ("--mixed_precision", "no", "--dynamo_backend", "no")
    done = train("cold-start", folder / "smallest.toml", folder / "accelerated", launcher=launch)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / "accelerated" / "cold-start" / "model" / "profile.toml").is_file()


def test_a_trace_without_an_end_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(json.dumps({"key": "row 1", "replies": REPLIES[:1]}) + "\n", "utf-8")
    text = (folder / "smallest.toml").read_text("utf-8")
    text = text.replace("smallest.profile", f"{folder.as_posix()}/smallest.profile")
    text = text.replace(f"{folder.as_posix()}/traces.jsonl", (tmp_path / "traces.jsonl").as_posix())
    (tmp_path / "smallest.toml").write_text(text, "utf-8")
    _refused(train("cold-start", tmp_path / "smallest.toml", tmp_path / "run"), "The trace of row 1 cannot be learned")


def test_a_dry_run_reads_the_shape_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "config.json").write_bytes((folder / "start" / "config.json").read_bytes())
    text = (
        (folder / "smallest.toml")
        .read_text("utf-8")
        .replace("smallest.profile", f"{folder.as_posix()}/smallest.profile")
    )
    (tmp_path / "dry.toml").write_text(
        text.replace(f"{folder.as_posix()}/start", f"{tmp_path.as_posix()}/start"), "utf-8"
    )
    done = train("dry-run", tmp_path / "dry.toml", "--gpus", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    head, _, *rows = done.stdout.splitlines()
    assert "0.00B parameters" in head and "1 GPU" in head
    assert [row.split()[0] for row in rows] == ["cold-start", "sample", "refine", "grpo"]
