"""A whole training on tables of pairs, with launchers, as a user runs it: what no stage has seen gives the figures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from clips import write_clip
from test_main import train

pytest.importorskip("torch")
pytest.importorskip("trl")

from train.assessment.outcomes import read_outcomes
from train.policy.model import corpus
from train.policy.policy_tokenizer import learn
from train.policy.rendering import Renderer
from train.recipe import load_recipe
from train.reply_rows import render
from train.stages import cases_for
from train.train_all import LEG_OVER, find_launcher
from vrt_lite.errors import UsageError

pytestmark = pytest.mark.filterwarnings("default")

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
precision = "float32"
shape = { layers = 2, width = 64, heads = 2, kv_heads = 1, feed_forward = 96, rope_section = [4, 6, 6], \
tower_depth = 2, tower_width = 64, tower_heads = 2, tower_feed_forward = 96, tower_full = [1] }

[data]
source = "tables"
cold_start = "FOLDER/cold.csv"
traces = "FOLDER/traces.jsonl"
sample = "FOLDER/sample.csv"
grpo = "FOLDER/grpo.csv"
test = "FOLDER/test.csv"

[cold_start]
samples = 4
orders = 2
learning_rate = 1e-3
batch = 1
accumulation = 2

[rejection]
queries = 2
samples = 2
batch = 4

[refine]
samples = 2
batch = 1
accumulation = 2

[grpo]
steps = 1
queries = 2
group = 2
resamples = 0
batch = 2

[launchers]
cold_start = ["torchrun", "--standalone", "--nproc_per_node", "2"]
sample = ["accelerate", "launch", "--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", \
"--dynamo_backend", "no"]
grpo = ["torchrun", "--standalone", "--nproc_per_node", "2"]
"""
COUNTS = {"cold": 4, "sample": 2, "grpo": 2, "test": 8}
REPLIES = (
    "<snapshot>\nVideo 1: a.\nVideo 2: b.\n</snapshot>\n<think>\nMore.\n</think>\n"
    "<recommend answer>TA=1, VQ=0, MQ=0, OA=1, CF=2</recommend answer>\n"
    '<tool_call>\n{"name": "select_frames", "arguments": {"target_frames": [2, 50]}}\n</tool_call>',
    "<snapshot>\nVideo 1: c.\n</snapshot>\n<think>\nVideo 1.\n</think>\n"
    "<final answer>TA=1, VQ=0, MQ=0, OA=1</final answer>",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, its tables, traces and two clips. Prompts tell the pairs apart."""
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
    return folder


def _write_table(folder: Path, name: str, prompts: list[str]) -> None:
    rows = [f"a.mp4,b.mp4,{prompt},A,A,same,same" for prompt in prompts]
    (folder / f"{name}.csv").write_text("\n".join(["a,b,prompt,overall,TA,VQ,MQ", *rows]) + "\n", encoding="utf-8")


def _keys(outcomes: Path) -> set[str]:
    return {key for judged in read_outcomes(outcomes).values() for key in judged}


def _refused(done: subprocess.CompletedProcess[str], part: str) -> None:
    assert done.returncode == 2, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and part in lines[0], done.stderr


def test_all_stages_on_tables_by_launchers(folder: Path) -> None:
    recipe, run = folder / "smallest.toml", folder / "run"
    begun = train("all", recipe, run, "--minutes", "0")
    assert begun.returncode == 3, begun.stderr[-2000:]
    assert (
        "cold-start: a step learns from 1 x 1 accumulated x 2 processes = 2, each pair in both orders" in begun.stderr
    )
    assert "(the paper: 1 x 32 accumulated x 8 GPUs = 256)" in begun.stderr
    assert "1 of 4 traces do not have the strict format: row 4, reply 1: 'TA=1, VQ=0, MQ=0, OA=1, CF=9'" in begun.stderr
    assert (run / "cold-start" / LEG_OVER).is_file()
    sampled = train("all", recipe, run)  # the model has learnt nothing in two steps, so no trace is kept
    assert sampled.returncode == 2
    assert not (run / "cold-start" / LEG_OVER).exists()
    assert "There is nothing to learn from" in sampled.stderr
    log = [json.loads(line) for line in (run / "cold-start/log.jsonl").read_text("utf-8").splitlines()]
    assert [(row["step"], row["samples"]) for row in log] == [(1, 2), (2, 4)]
    assert len((run / "sample/traces.sampled.jsonl").read_text("utf-8").splitlines()) == 2

    kept = [json.dumps({"key": f"row {n}", "replies": REPLIES}) for n in (1, 2)]
    (run / "sample/traces.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    assert train("refine", recipe, run).returncode == 0
    done = train("all", recipe, run, "--pairs", "3")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        "grpo: a step learns from 2 queries x 2 samples = 4, for 4 steps from one policy, shared by 2 proc"
        in done.stderr
    )
    assert (run / "pair").is_dir()
    for stage in ("cold-start", "refine", "grpo"):
        figures = json.loads((run / "evaluate" / stage / "figures.json").read_text("utf-8"))
        assert figures["views"]["asked"]["pairs"]["judged"] == 3
    fitted, reported = _keys(run / "calibrate/outcomes.jsonl"), _keys(run / "evaluate/grpo/outcomes.jsonl")
    assert (len(fitted), len(reported)) == (2, 3)
    assert not fitted & reported

    _refused(train("calibrate", run), f"{run} learnt from tables of pairs: give its recipe with --recipe")
    table = folder / "test.csv"
    before = table.read_text("utf-8")
    _write_table(folder, "test", ["test 0", "test 1", "grpo  1"])
    expected = "share a pair: 'row 2' and 'row 3' have the same clips and prompt"
    _refused(train("evaluate", recipe, run), expected)
    _refused(train("grpo", recipe, folder / "fresh"), expected)
    _refused(train("all", recipe, folder / "fresh"), expected)
    table.write_text(before, encoding="utf-8")
    _write_table(folder, "grpo", ["other 1", "other 2"])
    _refused(
        train("evaluate", recipe, run), f"{run / 'grpo'} had other pairs than data.grpo of recipe smallest has now"
    )
    _write_table(folder, "grpo", ["grpo 0", "grpo 1"])


def test_published_pairs_are_learnt_in_both_orders(folder: Path, tmp_path: Path) -> None:
    """The rows of both orders, and the frames of each in its own order."""
    recipe = load_recipe(folder / "smallest.toml")
    pairs = cases_for(recipe, "cold-start")
    renderer = Renderer(learn(corpus(recipe.profile, pairs), tmp_path / "tokenizer.json", rows=600), recipe.profile)
    case = pairs[0]
    assert case.exchanged
    other = case.exchanged()
    assert "OA=2" in other.script[-1] and '"target_frames": [2, 50]' in other.script[0]
    both = render(case, case.script, renderer, recipe.profile, orders=2)
    apart = render(case, case.script, renderer, recipe.profile) + render(other, other.script, renderer, recipe.profile)
    assert len(both) == len(apart) == 2
    for row, same in zip(both, apart, strict=True):
        assert np.array_equal(row.ids, same.ids) and np.array_equal(row.video_patches, same.video_patches)
    assert not np.array_equal(both[0].video_patches, both[1].video_patches)


def test_a_table_that_is_not_named_is_one_line(folder: Path) -> None:
    lacking = folder / "lacking.toml"
    text = (folder / "smallest.toml").read_text("utf-8")
    lacking.write_text("\n".join(line for line in text.splitlines() if "test =" not in line), encoding="utf-8")
    for arguments in (("cold-start", lacking, folder / "run"), ("evaluate", lacking, folder / "run")):
        _refused(train(*arguments), 'data.source is "tables", but data.test is missing: name a table of pairs for each')


def test_a_trace_without_an_end_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(json.dumps({"key": "row 1", "replies": REPLIES[:1]}) + "\n", "utf-8")
    text = (
        (folder / "smallest.toml")
        .read_text("utf-8")
        .replace("smallest.profile", f"{folder.as_posix()}/smallest.profile")
    )
    text = text.replace(f"{folder.as_posix()}/traces.jsonl", (tmp_path / "traces.jsonl").as_posix())
    (tmp_path / "smallest.toml").write_text(text, "utf-8")
    done = train("cold-start", tmp_path / "smallest.toml", tmp_path / "run")
    _refused(done, "The trace of row 1 in")


def test_a_launcher_that_is_not_there_is_named_before_anything_starts(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "smallest.toml"
    text = (folder / "smallest.toml").read_text("utf-8").replace('"accelerate"', '"no-such-launcher"')
    path.write_text(text.replace("smallest.profile.toml", (folder / "smallest.profile.toml").as_posix()), "utf-8")
    expected = "launchers.sample of recipe smallest begins with 'no-such-launcher', which is not installed here"
    with pytest.raises(UsageError, match=expected):
        find_launcher(load_recipe(path), "sample")
    _refused(train("all", path, tmp_path / "run"), expected)
    assert not (tmp_path / "run").exists()
