"""Kinds of option that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[int | None]  # generic in its stubs; at run time only in new releases
else:
    _ParamType = click.ParamType


class Auto(_ParamType):
    """A whole number, or "auto", which is None."""

    name = "auto|n"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """The number, or None; click's own error for anything else."""
        if value is None or value == "auto":
            return None
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither 'auto' nor a whole number.", param, ctx)
        if number < self._least:
            self.fail(f"{number} is below the least allowed, {self._least}.", param, ctx)
        return number
