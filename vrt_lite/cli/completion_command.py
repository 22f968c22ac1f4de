"""The command that prints what a shell needs to complete vrt-lite's commands, options and values."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish", "powershell")
_VARIABLE = "_VRT_LITE_COMPLETE"
"""Where click's scripts tell the program that a shell asks for completions."""


@click.command(epilog="Exit status: 0 done, 2 usage.")
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and values of vrt-lite.

    \b
    bash:        echo 'eval "$(vrt-lite completion bash)"' >> ~/.bashrc
    zsh:         echo 'eval "$(vrt-lite completion zsh)"' >> ~/.zshrc
    fish:        vrt-lite completion fish > ~/.config/fish/completions/vrt-lite.fish
    powershell:  vrt-lite completion powershell | Out-String | Invoke-Expression

    For PowerShell put that line into the file that $PROFILE names. It works from the next shell on. zsh needs its own
    completion: autoload -Uz compinit && compinit, before that line.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    made = get_completion_class(shell)
    if made is None:
        raise click.ClickException(f"The installed click {click.__version__} knows no {shell}: pip install -U click")
    click.echo(made(ctx.find_root().command, {}, "vrt-lite", _VARIABLE).source())
