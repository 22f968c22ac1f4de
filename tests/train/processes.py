"""What a test starts by torchrun: a stage in as many processes as it is given.

processes.py sample CHECKPOINT OUT        rejection sampling by the taught judge
processes.py step CHECKPOINT OUT          two steps of GRPO by it; the second's gradients, not clipped, go to OUT
processes.py supervise START RUN          six steps on coloured cases
processes.py shard CHECKPOINT OUT         replies of a model that FSDP2 shards; OUT.RANK says that they are right
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = 6
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent))),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def start(verb: str, checkpoint: Path, out: Path, *, count: int) -> None:
    """Run this file in `count` processes."""
    torchrun(Path(__file__), verb, checkpoint, out, count=count)


def torchrun(script: Path, *arguments: str | Path, count: int) -> None:
    """Run a script in `count` processes; it must end well."""
    environment = {**os.environ, **ENVIRONMENT}
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

    from train.sample import sample as sample_traces

    sample_traces(RECIPE, checkpoint, [case(seed) for seed in range(6)], out)


def run_step(checkpoint: Path, out: Path) -> None:
    from msgspec.structs import replace
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
    trainer = prepare(recipe, [case(seed) for seed in range(6)], start=checkpoint, run=out.with_suffix(".run"))
    assert trainer.accelerator.num_processes == int(os.environ["WORLD_SIZE"])
    trainer.args.max_grad_norm = 0.0
    trainer.add_callback(Keep())
    trainer.train()


def supervise(start: Path, run: Path) -> None:
    """Six steps on coloured cases, saved after each."""
    from coloured import RECIPE, SUPERVISED, cases
    from msgspec.structs import replace

    from train.sft import supervise as learn

    how = replace(SUPERVISED, samples=4 * STEPS)
    learn(how, cases(4 * STEPS), recipe=RECIPE, start=start, run=run)


def shard(checkpoint: Path, out: Path) -> None:
    """Write other replies in each process with a model whose weights FSDP2 shards over them, before any step."""
    import torch
    from taught_judge import PROFILE, case
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    from train.grpo import whole_weights
    from train.model import load
    from train.rollout import roll_out
    from train.writing import Policy

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    how = {"samples": 1 + 2 * rank, "temperature": 1.0, "seed": rank}
    model, tokenizer = load(checkpoint)
    model.eval()

    def write() -> list[str]:
        [group] = roll_out(Policy(model, tokenizer, PROFILE), {"q": case(rank)}, PROFILE, **how).values()
        return [reply.text for rollout in group for reply in rollout.replies]

    expected = write()
    mesh = init_device_mesh("cpu", (2,))
    for block in (*model.model.language_model.layers, *model.model.visual.blocks, model):
        fully_shard(block, mesh=mesh)
    for _ in range(2):
        with whole_weights(model, None):
            assert write() == expected
        assert all(isinstance(weight, DTensor) for weight in model.parameters())
    out.with_suffix(f".{rank}").touch()


if __name__ == "__main__":
    from train.__main__ import leave_group

    {"sample": sample, "step": run_step, "supervise": supervise, "shard": shard}[sys.argv[1]](
        Path(sys.argv[2]), Path(sys.argv[3])
    )
    leave_group()
