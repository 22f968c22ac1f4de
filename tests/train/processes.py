"""What a test starts by torchrun: a stage in as many processes as it is given.

processes.py sample CHECKPOINT OUT        rejection sampling by the taught judge
processes.py step CHECKPOINT OUT          two steps of GRPO by it; the second's gradients, not clipped, go to OUT
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(verb: str, checkpoint: Path, out: Path, *, count: int) -> None:
    """Run this file in `count` processes."""
    torchrun(Path(__file__), verb, checkpoint, out, count=count)


def torchrun(script: Path, *arguments: str | Path, count: int) -> None:
    """Run a script in `count` processes; it must end well."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    done = subprocess.run(
        [*command, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def sample(checkpoint: Path, out: Path) -> None:
    from taught_judge import RECIPE, case

    from train.rejection import sample as rejected

    assert rejected(RECIPE, checkpoint, [case(seed) for seed in range(6)], out)


def run_step(checkpoint: Path, out: Path) -> None:
    from safetensors.torch import save_file
    from taught_judge import RECIPE, case
    from transformers import TrainerCallback

    from train.grpo import prepare

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **_):
            gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            if state.is_world_process_zero:
                save_file(gradients, out)

    recipe = replace(RECIPE, grpo=replace(RECIPE.grpo, steps=2, queries=3, batch=2, learning_rate=1e-3))
    trainer, _ = prepare(recipe, [case(seed) for seed in range(6)], start=checkpoint, run=out.with_suffix(".run"))
    assert trainer.accelerator.num_processes == int(os.environ["WORLD_SIZE"])
    trainer.args.max_grad_norm = 0.0
    trainer.add_callback(Keep())
    trainer.train()


if __name__ == "__main__":
    from train.__main__ import leave_group

    {"sample": sample, "step": run_step}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    leave_group()
