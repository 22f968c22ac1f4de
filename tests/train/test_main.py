"""The verbs as a user runs them: a whole training of the smallest model, stage by stage, leg by leg."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vrt_lite.profile import load_profile

pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("default")

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
profile = "smallest.profile.toml"

[model]
precision = "float32"
shape = { layers = 2, width = 64, heads = 2, kv_heads = 1, feed_forward = 96, rope_section = [4, 6, 6], \
tower_depth = 2, tower_width = 64, tower_heads = 2, tower_feed_forward = 96, tower_full = [1] }

[cold_start]
samples = 8
learning_rate = 1e-3
batch = 4
accumulation = 1

[rejection]
queries = 4
samples = 2
batch = 4

[refine]
samples = 4
learning_rate = 1e-3
batch = 4
accumulation = 1

[grpo]
steps = 2
queries = 2
group = 2
resamples = 0
batch = 2
"""
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


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "smallest.profile.toml").write_text(PROFILE, encoding="utf-8")
    (folder / "smallest.toml").write_text(RECIPE, encoding="utf-8")
    return folder / "smallest.toml"


def train(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "train", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT, env=environment
    )


def test_every_stage_after_the_other(recipe: Path) -> None:
    run = recipe.parent / "run"
    early = train("refine", recipe, run)
    assert early.returncode == 2
    assert "python -m train cold-start" in early.stderr

    legs = 0
    while (done := train("cold-start", recipe, run, "--minutes", "0")).returncode == 3:
        legs += 1
        assert legs < 3, done.stderr
        other = recipe.with_name("other.toml")
        other.write_text(RECIPE.replace("[cold_start]\nsamples = 8", "[cold_start]\nsamples = 12"), encoding="utf-8")
        changed = train("cold-start", other, run)
        assert changed.returncode == 2
        assert "was started with cold_start.samples = 8, and the recipe now has 12" in changed.stderr
    assert done.returncode == 0, done.stderr[-2000:]
    assert legs == 1  # two steps: the first leg ends after one
    assert [json.loads(line)["step"] for line in (run / "cold-start/log.jsonl").read_text("utf-8").splitlines()] == [
        1,
        2,
    ]

    sampled = train("sample", recipe, run)
    assert sampled.returncode == 0, sampled.stderr[-2000:]
    rows = [json.loads(line) for line in (run / "sample/traces.sampled.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 4
    _write_scripts(run, rows)

    fewer = run / "sample/traces.jsonl"
    fewer.write_text("".join(fewer.read_text("utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    for stage in ("refine", "grpo"):
        done = train(stage, recipe, run)
        assert ("refine: 3 traces were kept of the 4 asked for." in done.stderr) == (stage == "refine")
        assert done.returncode == 0, done.stderr[-2000:]
        assert (run / stage / "model" / "profile.toml").is_file()
        assert train(stage, recipe, run).returncode == 0  # finished: nothing is done again

    done = train("evaluate", recipe, run, "--pairs", "3", "--stage", "refine", "--stage", "grpo", "--view", "asked")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| refine |" in done.stdout
    for stage in ("refine", "grpo"):
        made = json.loads((run / "evaluate" / stage / "figures.json").read_text("utf-8"))
        assert made["views"]["asked"]["pairs"]["judged"] == 3
    assert (run / "evaluate" / "curves.png").stat().st_size > 1000
    assert train("figures", run).returncode == 0

    assert train("all", recipe, recipe.parent / "fresh", "--minutes", "0").returncode == 3
    assert (recipe.parent / "fresh" / "cold-start").is_dir()
    assert not (recipe.parent / "fresh" / "sample").exists()
    done = train("all", recipe, run, "--pairs", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    fitted = json.loads((run / "calibrate/temperatures.json").read_text("utf-8"))
    assert load_profile(run / "pair" / "profile.toml").temperatures.keys() == fitted.keys()
    assert sorted(path.name for path in (run / "pair").iterdir()) == [
        "mmproj-smallest-F16.gguf",
        "profile.toml",
        "smallest-Q8_0.gguf",
    ]
    assert json.loads((run / "evaluate/cold-start/figures.json").read_text("utf-8"))["views"]["none"]["pairs"]


def _write_scripts(run: Path, rows: list[dict[str, object]]) -> None:
    """Traces as a good model would have left them: this one has learnt nothing in two steps."""
    from train.world import SAMPLE, World

    scripts = {case.key: case.script for case in World(SAMPLE, len(rows))}
    lines = [json.dumps({"key": row["key"], "replies": scripts[str(row["key"])]}) for row in rows]
    (run / "sample/traces.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_recipe_that_cannot_be_used_is_one_line(recipe: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[grpo]\nsteps = -1\n", encoding="utf-8")
    done = train("grpo", bad, tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"error: Recipe {bad}: grpo.steps = -1 is negative."]


def test_the_world_as_files(tmp_path: Path) -> None:
    done = train("world", tmp_path / "set", "--pairs", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    table = (tmp_path / "set" / "pairs.csv").read_text("utf-8").splitlines()
    assert len(table) == 2
    assert len(list((tmp_path / "set").glob("*.mp4"))) == 2


def test_a_group_of_processes_is_left_in_order(tmp_path: Path) -> None:
    import torch

    from train.__main__ import leave_group

    leave_group()
    torch.distributed.init_process_group("gloo", init_method=f"{(tmp_path / 'met').as_uri()}", rank=0, world_size=1)
    leave_group()
    assert not torch.distributed.is_initialized()
