"""Draws captions of pairs: some that the pictures confirm or contradict, and some that the pictures cannot decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from train.tiny.world.values import Looks

_CHECKED = (
    "A {colour} {form} moving {direction}.",
    "A {colour} {form} moving {direction}.",
    "A {colour} {form} moving {direction}.",
    "A {colour} {form} moves {direction}.",
    "A video of a {colour} {form} that moves {direction}.",
    "The {colour} {form} moves {direction} across the picture.",
    "{direction}: a {colour} {form} crosses the scene.",
)
_STYLES = (
    "",
    "",
    "A cinematic shot of ",
    "A slow close-up of ",
    "An aerial view of ",
    "Anime style: ",
    "A watercolour painting of ",
    "Documentary footage of ",
    "A low-angle shot of ",
    "In slow motion, ",
)
_WHO = (
    "an old fisherman",
    "a woman in a raincoat",
    "two children",
    "a golden retriever",
    "a tabby cat",
    "a white horse",
    "a flock of geese",
    "a robot",
    "an astronaut",
    "a street musician",
    "a cook",
    "a ballet dancer",
    "a small sailing boat",
    "a steam train",
    "a vintage car",
    "a hot-air balloon",
    "a fox",
    "a paper lantern",
    "a waterfall",
    "a campfire",
    "a bowl of noodles",
    "a wind turbine",
    "a medieval knight",
    "a jellyfish",
)
_DOES = (
    "waiting",
    "turning around",
    "walking slowly",
    "running",
    "glowing softly",
    "drifting",
    "resting",
    "dancing",
    "shaking in the wind",
    "looking up",
    "making a sharp turn",
    "coming closer",
    "fading away",
    "jumping",
)
_WHERE = (
    "in a lush forest",
    "on a crowded market",
    "at the edge of a cliff",
    "under a stormy sky",
    "on an empty beach at dawn",
    "in a neon-lit alley",
    "beside a frozen lake",
    "in a sunlit kitchen",
    "on the surface of the moon",
    "between tall buildings",
    "in deep water",
    "on a snowy mountain road",
    "in an old library",
    "during a festival",
)
_LIKE = (
    "red",
    "green",
    "blue",
    "yellow",
    "white",
    "purple",
    "tiny",
    "huge",
    "wooden",
    "broken",
    "shiny",
    "old",
    "three",
    "two",
    "transparent",
    "furry",
    "rusty",
    "glowing",
    "striped",
    "muddy",
)
_WHAT = (
    "car",
    "dress",
    "umbrella",
    "balloon",
    "apple",
    "bicycle",
    "bird",
    "boat",
    "book",
    "bottle",
    "bus",
    "butterfly",
    "candle",
    "chair",
    "coin",
    "cup of coffee",
    "dragon",
    "drone",
    "elephant",
    "fish tank",
    "flower",
    "guitar",
    "hat",
    "house",
    "kite",
    "lamp",
    "leaf",
    "mirror",
    "mountain",
    "piano",
    "pizza",
    "planet",
    "river",
    "ship",
    "spoon",
    "square in Rome",
    "star of the show",
    "circle of friends",
    "love triangle",
    "tree",
    "window",
    "wolf",
)
_HOW = (
    "falls off a table and shatters",
    "opens slowly while it rains outside",
    "is held up to the camera",
    "turns into smoke",
    "spins on its own axis",
    "drives left along the coast",
    "floats up and out of the frame",
    "moves down the hall to the right of a mirror",
    "stands still, and the camera circles it",
    "melts in the sun",
    "is painted by hand, stroke by stroke",
    "grows from a seed, time-lapse",
    "is poured into a glass",
    "explodes in slow motion",
    "walks toward us, smiling",
    "is washed by the waves, 4k, highly detailed",
)
_THEN = (
    "",
    "",
    "",
    " The camera pans left.",
    " The camera zooms out to reveal a city.",
    " Then everything stops.",
    " Soft light, shallow depth of field.",
    " No people.",
    " A second person enters from the right.",
    " Shot on film, 24 fps.",
)
_NOTHING = 0.06  # share of the captions that are empty


def draw_checkable_caption(rng: np.random.Generator, caption_looks: Looks) -> str:
    """Draw a caption that describes these looks."""
    text = _CHECKED[int(rng.integers(len(_CHECKED)))]
    text = text.format(colour=caption_looks.colour, form=caption_looks.form, direction=caption_looks.direction)
    return text[0].upper() + text[1:]


def draw_unrelated_caption(rng: np.random.Generator) -> str:
    """Draw a caption about things that the world never shows, or an empty one."""
    if rng.random() < _NOTHING:
        return ""
    if rng.random() < 0.5:
        style, who, does, where = _pick_each(rng, _STYLES, _WHO, _DOES, _WHERE)
        text = f"{style}{who} {does} {where}."
    else:
        style, like, what, how = _pick_each(rng, _STYLES, _LIKE, _WHAT, _HOW)
        text = f"{style}the {like} {what} {how}."
    return text[0].upper() + text[1:] + _pick_each(rng, _THEN)[0]


def _pick_each(rng: np.random.Generator, *lists: Sequence[str]) -> list[str]:
    """Pick one entry of each list."""
    return [words[int(rng.integers(len(words)))] for words in lists]
