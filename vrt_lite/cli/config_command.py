"""The commands about what is set for all commands. Parse, call, print; the settings are read when needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vrt_lite.cli.options import complete_models, json_option, print_json, print_text
from vrt_lite.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vrt_lite.stored_settings import Key

STATUS = "Exit status: 0 done, 2 usage, or a setting that cannot be used, 130 interrupted."
HEADINGS = ("KEY", "VALUE", "FROM", "ALLOWED")


def complete_keys(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the keys that begin so."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only while a shell completes

    from vrt_lite.stored_settings import KEYS  # noqa: PLC0415

    return [CompletionItem(name, help=key.allowed) for name, key in KEYS.items() if name.startswith(begun)]


def complete_values(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the values of the key before it that begin so."""
    from vrt_lite.stored_settings import KEYS  # noqa: PLC0415 - as above

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
    from vrt_lite.disk import settings_path  # noqa: PLC0415
    from vrt_lite.stored_settings import KEYS, read_stored  # noqa: PLC0415

    found, problems = read_stored(os.environ)
    tuned = _find_tuned(found["model"].value if "model" in found else None)
    rows: list[tuple[Key, str | int | bool | None, str]] = []
    for name, key in KEYS.items():
        if name in found:
            rows.append((key, found[name].value, found[name].source))
        else:
            rows.append((key, tuned[name], "tuned") if name in tuned else (key, None, "default"))
    if as_json:
        listed = [
            {"key": key.name, "value": value, "from": source, "variable": key.variable, "allowed": key.allowed}
            for key, value, source in rows
        ]
        print_json({"file": str(settings_path()), "settings": listed, "problems": [p.text for p in problems]})
    else:
        from vrt_lite.show.table import show_table  # noqa: PLC0415

        show_table(HEADINGS, [(key.name, _format(key, value), source, key.allowed) for key, value, source in rows])
        print_text(f"file: {settings_path()}{'' if os.path.lexists(settings_path()) else ' (not made yet)'}")
    if problems:
        raise problems[0].as_error()


def _format(key: Key, value: str | int | bool | None) -> str:
    if value is None:
        return key.default
    return str(value).lower() if isinstance(value, bool) else str(value)


def _find_tuned(model: str | int | bool | None) -> dict[str, str | int]:
    """Return what `vrt-lite tune` found for the model that is used by default, by key; nothing if it is not here."""
    from vrt_lite.tuning import find_tuning  # noqa: PLC0415

    tuning = find_tuning(None if model is None else str(model))
    found = {"threads": tuning.threads, "jobs": tuning.jobs} if tuning else {}
    return {name: value for name, value in found.items() if value is not None}


@config.command("set", epilog=STATUS)
@click.argument("key", metavar="KEY", shell_complete=complete_keys)
@click.argument("value", metavar="VALUE", shell_complete=complete_values)
def set_key(key: str, value: str) -> None:
    """Set KEY to VALUE in the settings file. The keys and their values: vrt-lite config"""
    from vrt_lite.disk import settings_path  # noqa: PLC0415
    from vrt_lite.stored_settings import store_value  # noqa: PLC0415

    known = _find_key(key)
    if key == "model" and Path(value).exists():
        value = _name_model(value)
    parsed = known.parse(value)
    if parsed is None:
        raise UsageError(f"The command has {known.refuse(value)}.")
    store_value(key, parsed)
    print_text(f"{key} = {_format(known, parsed)} in {settings_path()}")
    if os.environ.get(known.variable):
        print_text(f"the variable {known.variable} is set, and holds before the file", err=True)


@config.command("unset", epilog=STATUS)
@click.argument("key", metavar="KEY", shell_complete=complete_keys)
def unset_key(key: str) -> None:
    """Delete KEY from the settings file, so that its default holds."""
    from vrt_lite.disk import settings_path  # noqa: PLC0415
    from vrt_lite.stored_settings import KEYS, forget_value  # noqa: PLC0415

    was_there = forget_value(key)
    if not was_there and key not in KEYS:
        _find_key(key)
    print_text(f"{key} is {'no longer' if was_there else 'not'} set in {settings_path()}")
    if key in KEYS and os.environ.get(KEYS[key].variable):
        print_text(f"the variable {KEYS[key].variable} is set, and holds", err=True)


@config.command(epilog=STATUS)
def path() -> None:
    """Print where the settings file is. VRT_LITE_HOME, if it is set, holds it."""
    from vrt_lite.disk import settings_path  # noqa: PLC0415

    print_text(str(settings_path()))


def _find_key(name: str) -> Key:
    from vrt_lite.stored_settings import KEYS, describe_unknown  # noqa: PLC0415

    if name not in KEYS:
        raise UsageError(f"There is {describe_unknown(name)}.")
    return KEYS[name]


def _name_model(value: str) -> str:
    """Return a model's name as it is, and the path of one absolute: a command may run in another folder."""
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.models.library import find_stored  # noqa: PLC0415

    return value if value in bundled_names() or find_stored(value) else str(Path(value).absolute())
