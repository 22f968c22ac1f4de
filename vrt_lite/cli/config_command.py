"""The commands about what is set for all commands. Parse, call, print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import complete_models, json_option, print_json, print_text
from vrt_lite.disk import settings_path
from vrt_lite.stored_settings import KEYS, find_stored, parse_value, read_stored, store_value

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STATUS = "Exit status: 0 done, 2 usage, or a setting that cannot be used, 130 interrupted."
HEADINGS = ("KEY", "VALUE", "FROM", "ALLOWED")


def complete_keys(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the keys that begin so."""
    return [name for name in KEYS if name.startswith(begun)]


def complete_values(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem] | list[str]:
    """Return the values of the key before it that begin so."""
    name = ctx.params.get("key")
    if name == "model":
        return complete_models(ctx, parameter, begun)
    words = KEYS[name].allowed.split("|") if name in KEYS else []
    return [word for word in words if word.isidentifier() and word.startswith(begun)]


key_argument = click.argument("key", metavar="KEY", shell_complete=complete_keys)


@click.group(epilog=STATUS, invoke_without_command=True)
@json_option
@click.pass_context
def config(ctx: click.Context, *, as_json: bool) -> None:
    """Show or change what is set for all commands.

    \b
    vrt-lite config
    vrt-lite config set model vr-thinker-7b
    vrt-lite config set max-pixels 200704
    vrt-lite config unset max-pixels
    vrt-lite config path

    A key is the name of an option. Of these the first that is there holds: the option, as --max-pixels 200704; the
    environment variable, as VRT_LITE_MAX_PIXELS=200704; the settings file; what vrt-lite tune found; the default.

    An effort replaces pixels, rounds and first frames that are set further down in this order: with --effort full the
    model's own hold, whatever the file says.
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    if ctx.invoked_subcommand:
        return
    found, problems = read_stored()
    rows: dict[str, tuple[Any, str]] = dict.fromkeys(KEYS, (None, "default"))
    rows |= _find_tuned(found["model"].value if "model" in found else None) | found
    keys = [(KEYS[name], value, source) for name, (value, source) in rows.items()]
    if as_json:
        listed = [
            {"key": key.name, "value": value, "from": source, "variable": key.variable, "allowed": key.allowed}
            for key, value, source in keys
        ]
        print_json({"file": str(settings_path()), "settings": listed, "problems": [p.text for p in problems]})
    else:
        from vrt_lite.show.words import show_table  # noqa: PLC0415

        cells = [(k.name, k.default if v is None else _format(v), source, k.allowed) for k, v, source in keys]
        show_table(HEADINGS, cells)
        print_text(f"file: {settings_path()}{'' if os.path.lexists(settings_path()) else ' (not made yet)'}")
    find_stored()


def _format(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _find_tuned(model: Any) -> dict[str, tuple[Any, str]]:
    """Return what `vrt-lite tune` found for the model that is used by default, by key; nothing if it is not here."""
    from vrt_lite.tuning import find_tuning  # noqa: PLC0415

    tuning = find_tuning(model)
    return {name: (getattr(tuning, name), "tuned") for name in ("threads", "jobs") if getattr(tuning, name, None)}


@config.command("set", epilog=STATUS)
@key_argument
@click.argument("value", metavar="VALUE", shell_complete=complete_values)
def set_key(key: str, value: str) -> None:
    """Set KEY to VALUE in the settings file. The keys and their values: vrt-lite config"""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import find_stored as find_pulled  # noqa: PLC0415

    if key == "model" and Path(value).exists() and value not in bundled_names() and not find_pulled(value):
        value = str(Path(value).absolute())  # a command may run in another folder
    parsed = parse_value(key, value)
    store_value(key, parsed)
    print_text(f"{key} = {_format(parsed)} in {settings_path()}")
    _tell_of_variable(key)


@config.command("unset", epilog=STATUS)
@key_argument
def unset_key(key: str) -> None:
    """Delete KEY from the settings file, so that its default holds."""
    store_value(key, None)
    print_text(f"{key} is not set in {settings_path()}")
    _tell_of_variable(key)


def _tell_of_variable(key: str) -> None:
    if key in KEYS and os.environ.get(KEYS[key].variable):
        print_text(f"the variable {KEYS[key].variable} is set, and holds before the file", err=True)


@config.command(epilog=STATUS)
def path() -> None:
    """Print where the settings file is. VRT_LITE_HOME, if it is set, holds it."""
    print_text(str(settings_path()))
