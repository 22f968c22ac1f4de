"""Runs `python -m convert` in this process."""

from __future__ import annotations

import sys
from unittest.mock import patch

import pytest

from convert.__main__ import main


def run_convert(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command to its end; its status and both outputs."""
    with patch.object(sys, "argv", ["convert", *map(str, arguments)]), pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err
