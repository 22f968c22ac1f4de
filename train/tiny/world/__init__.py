"""The world: pairs of synthetic clips. A coloured shape over a natural background.

    values -> draw, captions   what a pair is; NumPy only
    describing                 words for what it shows, and how it differs from its caption; pure
    grounds, render            its pictures; torch

A scene depends only on its seed. Every scene is different, and two ranges of seeds never share a clip. Test seeds also
have their own textures and photographs.
"""

from __future__ import annotations

from train.tiny.world.draw import RANGE, TEST_RANGE, scene
from train.tiny.world.values import Scene

__all__ = ["TEST", "TRAIN", "Scene", "scene"]

TRAIN, TEST = 0, TEST_RANGE * RANGE
"""The first seeds of ranges that share no pair."""
