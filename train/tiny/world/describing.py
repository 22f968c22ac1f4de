"""Words for what a clip shows, and for what its caption wants."""

from __future__ import annotations

from train.tiny.world.values import ClipSpec, Looks

STUFF = {"leaves": "leaves", "clouds": "clouds", "paper": "paper", "photo": "a photo"}


def describe_looks(looks: Looks) -> str:
    """Describe a moving subject."""
    return f"a {looks.colour} {looks.form} moves {looks.direction}"


def describe_clip(clip: ClipSpec) -> str:
    """Describe what the first frames show of a clip."""
    where = ", cut to ".join(STUFF[shot.ground.stuff] for shot in clip.shots)
    who = describe_looks(clip.looks) if clip.looks else name_subject(clip)
    return f"{who} over {where}{'; nothing moves' if clip.still else ''}"


def name_subject(clip: ClipSpec) -> str:
    """Name the shape in a clip."""
    return f"a {clip.looks.colour} {clip.looks.form}" if clip.looks else "no shape"


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


def count_mismatches(caption_looks: Looks | None, shown: Looks | None) -> int:
    """Count the parts of the looks in which a clip differs from the caption; all of them if there is no subject."""
    if caption_looks is None:
        return 0
    if shown is None:
        return 3
    return sum(
        (
            caption_looks.colour != shown.colour,
            caption_looks.form != shown.form,
            caption_looks.direction != shown.direction,
        )
    )
