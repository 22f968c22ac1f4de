"""Puts the folders on the path whose checkpoints the tests of conversion share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("golden", "parity")]
