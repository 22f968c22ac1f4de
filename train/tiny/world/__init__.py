"""The world: pairs of synthetic clips. A coloured shape over a natural background, with known faults.

    values -> draw, draw_faults, captions            what a pair is; NumPy only
    labels, describing                               points against a clip, and words for what it shows; pure
    grounds, effects, coding, render, drawn_frames   its pictures; torch

A scene depends only on its seed and on the share of hidden pairs. Every scene is different, and two ranges of seeds
never share a clip. Test seeds also have their own textures and photographs.
"""

from __future__ import annotations

from dataclasses import replace

from train.tiny.world.draw import RANGE, TEST_RANGE, scene
from train.tiny.world.values import Scene

__all__ = ["TEST", "TRAIN", "Scene", "exchanged", "scene"]

TRAIN, TEST = 0, TEST_RANGE * RANGE
"""The first seeds of ranges that share no pair."""


def exchanged(drawn: Scene) -> Scene:
    """Return the scene with its clips in the other order."""
    return replace(drawn, clips=(drawn.clips[1], drawn.clips[0]))
