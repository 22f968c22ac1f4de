"""Words for what a clip shows, and for what its caption wants."""

from __future__ import annotations

from train.tiny.world.values import Looks

STUFF = {"leaves": "leaves", "clouds": "clouds", "paper": "paper", "photo": "a photo"}


def describe_looks(looks: Looks) -> str:
    """Describe a moving subject."""
    return f"a {looks.colour} {looks.form} moves {looks.direction}"


def describe_caption(caption_looks: Looks | None) -> str:
    """Say what the caption wants."""
    if caption_looks is None:
        return "The prompt cannot be checked."
    return f"The prompt wants a {caption_looks.colour} {caption_looks.form} moving {caption_looks.direction}."


def list_mismatches(caption_looks: Looks | None, shown: Looks | None, *, held: bool) -> list[str]:
    """List the parts of the looks in which a clip differs from the caption.

    With `held`, each part of the caption is written next to the part that is shown, and then the result: even a small
    judge can compare two words that are side by side, if the next word depends on nothing else.
    """
    if caption_looks is None:
        return []
    if shown is None:
        return ["no shape"]
    pairs = (
        ("colour", caption_looks.colour, shown.colour),
        ("shape", caption_looks.form, shown.form),
        ("direction", caption_looks.direction, shown.direction),
    )
    differences: list[str] = []
    for name, want, have in pairs:
        result = f"wrong {name}" if want != have else ""
        if held:
            differences.append(f"{want} is {have}: {result or 'no fault'}")
        elif result:
            differences.append(result)
    return differences
