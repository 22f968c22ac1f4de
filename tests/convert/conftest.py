"""Puts the checkout's root on the path: `convert` is run from a checkout and never installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
