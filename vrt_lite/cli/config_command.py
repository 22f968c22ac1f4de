"""The commands about what is set for all commands. Parse, call, print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import complete_models, json_option, print_json, print_text
from vrt_lite.disk import settings_path
from vrt_lite.errors import UsageError
from vrt_lite.stored_settings import KEYS, Value, describe_unknown, forget_value, read_stored, store_value

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STATUS = "Exit status: 0 done, 2 usage, or a setting that cannot be used, 130 interrupted."
HEADINGS = ("KEY", "VALUE", "FROM", "ALLOWED")


def complete_keys(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the keys that begin so."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only while a shell completes

    return [CompletionItem(name, help=key.allowed) for name, key in KEYS.items() if name.startswith(begun)]


def complete_values(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the values of the key before it that begin so."""
    key = KEYS.get(ctx.params.get("key") or "")
    if key and key.name == "model":
        return complete_models(ctx, parameter, begun)
    return key.shell_complete(ctx, parameter, begun) if key else []


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
        if as_json:
            raise UsageError("--json is for vrt-lite config alone: it prints the list.")
        return
    found, problems = read_stored(os.environ)
    rows = {name: (kept.value, str(kept.source)) for name, kept in found.items()}
    tuned = {name: (value, "tuned") for name, value in _find_tuned(rows.get("model", (None, ""))[0]).items()}
    rows = dict.fromkeys(KEYS, (None, "default")) | tuned | rows
    if as_json:
        listed = [
            {"key": key.name, "value": value, "from": source, "variable": key.variable, "allowed": key.allowed}
            for key, (value, source) in ((KEYS[name], row) for name, row in rows.items())
        ]
        print_json({"file": str(settings_path()), "settings": listed, "problems": [p.text for p in problems]})
    else:
        from vrt_lite.show.table import show_table  # noqa: PLC0415

        show_table(HEADINGS, [(n, _format(n, value), source, KEYS[n].allowed) for n, (value, source) in rows.items()])
        print_text(f"file: {settings_path()}{'' if os.path.lexists(settings_path()) else ' (not made yet)'}")
    if problems:
        raise problems[0].as_error()


def _format(key: str, value: Value | None) -> str:
    return KEYS[key].default if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _find_tuned(model: Value | None) -> dict[str, Value]:
    """Return what `vrt-lite tune` found for the model that is used by default, by key; nothing if it is not here."""
    from vrt_lite.tuning import find_tuning  # noqa: PLC0415

    tuning = find_tuning(None if model is None else str(model))
    return {name: value for name in ("threads", "jobs") if tuning and (value := getattr(tuning, name)) is not None}


@config.command("set", epilog=STATUS)
@click.argument("key", metavar="KEY", shell_complete=complete_keys)
@click.argument("value", metavar="VALUE", shell_complete=complete_values)
def set_key(key: str, value: str) -> None:
    """Set KEY to VALUE in the settings file. The keys and their values: vrt-lite config"""
    if key not in KEYS:
        raise UsageError(f"There is {describe_unknown(key)}.")
    if key == "model" and Path(value).exists():
        value = _name_model(value)
    parsed = KEYS[key].parse(value)
    if parsed is None:
        raise UsageError(f"The command has {KEYS[key].refuse(value)}.")
    store_value(key, parsed)
    print_text(f"{key} = {_format(key, parsed)} in {settings_path()}")
    _tell_of_variable(key, "holds before the file")


@config.command("unset", epilog=STATUS)
@click.argument("key", metavar="KEY", shell_complete=complete_keys)
def unset_key(key: str) -> None:
    """Delete KEY from the settings file, so that its default holds."""
    was_there = forget_value(key)
    if not was_there and key not in KEYS:
        raise UsageError(f"There is {describe_unknown(key)}.")
    print_text(f"{key} is {'no longer' if was_there else 'not'} set in {settings_path()}")
    _tell_of_variable(key, "holds")


def _tell_of_variable(key: str, then: str) -> None:
    if key in KEYS and os.environ.get(KEYS[key].variable):
        print_text(f"the variable {KEYS[key].variable} is set, and {then}", err=True)


@config.command(epilog=STATUS)
def path() -> None:
    """Print where the settings file is. VRT_LITE_HOME, if it is set, holds it."""
    print_text(str(settings_path()))


def _name_model(value: str) -> str:
    """Return a model's name as it is, and the path of one absolute: a command may run in another folder."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import find_stored  # noqa: PLC0415

    return value if value in bundled_names() or find_stored(value) else str(Path(value).absolute())
