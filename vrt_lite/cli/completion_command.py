"""The command that prints what a shell needs to complete vrt-lite's commands, options and values."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish", "powershell")


@click.command(epilog="Exit status: 0 done, 2 usage.")
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands.

    These commands install it for the shells that are opened afterwards:

    \b
    bash:
      echo 'eval "$(vrt-lite completion bash)"' >> ~/.bashrc
    zsh:
      echo 'autoload -Uz compinit && compinit' >> ~/.zshrc
      echo 'eval "$(vrt-lite completion zsh)"' >> ~/.zshrc
    fish:
      mkdir -p ~/.config/fish/completions
      vrt-lite completion fish > ~/.config/fish/completions/vrt-lite.fish
    powershell:
      mkdir -Force (Split-Path $PROFILE)
      vrt-lite completion powershell | Add-Content $PROFILE
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "vrt-lite", "_VRT_LITE_COMPLETE").source())
