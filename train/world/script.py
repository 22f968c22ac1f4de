"""What a perfect judge writes of a scene, in the prompt's format. Knows only what has been shown so far. No torch.

Its policy, with which the evidence is always seen:

* If nothing moves between the frames shown first, in either clip, it answers at once.
* Otherwise it asks for four neighbouring frames of each video: from the middle of the gap between two of the first
  frames in which the shot changes (a cut is where faults gather), from the middle gap if none does. Neighbours show
  how things move; and a burst, which only a gap can hide, covers the middle of such a gap.
* If a clip was cut in two gaps it asks for the second one's middle as well: a third round.

Each round says what is seen, counts the points of it (`labels`), and answers by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from train.world.defects import VISUAL, WORDS, step
from train.world.labels import Points, alignment, labels, points
from train.world.values import FIRST, TICKS, WINDOWS, ClipSpec, Defect, Looks, Scene
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.tags import KEYS

NAMES = {
    "blur": "blur",
    "noise": "noise",
    "blocks": "blocks",
    "banding": "banding",
    "haze": "haze",
    "sharpening": "halos",
    "colour": "tint",
    "h264": "coding",
    "h265": "coding",
    "stutter": "stutter",
    "jitter": "shake",
    "flicker": "flicker",
    "ghosting": "ghosts",
    "freeze": "freeze",
    "reversal": "reversal",
    "warping": "bending",
}
_STUFF = {"leaves": "leaves", "clouds": "clouds", "paper": "paper", "photo": "a photo"}


def asks(scene: Scene) -> tuple[tuple[FrameRef, ...], ...]:
    """The frames that it asks for, call by call."""
    if scene.still:
        return ()
    calls: list[tuple[FrameRef, ...]] = []
    for turn in range(max(len(clip.gaps) for clip in scene.clips)):
        windows = [(c, WINDOWS[clip.gaps[turn]]) for c, clip in enumerate(scene.clips) if turn < len(clip.gaps)]
        calls.append(tuple(FrameRef(c, tick) for c, window in windows for tick in window))
    return tuple(calls)


def script(scene: Scene) -> tuple[str, ...]:
    """Its replies, round by round; the last one ends with the scene's labels.

    A clip without shots is one that the world did not draw: real footage.
    """
    calls = (*asks(scene), ())
    seen: tuple[set[int], set[int]] = (set(FIRST), set(FIRST))
    replies: list[str] = []
    for number, call in enumerate(calls):
        new = calls[number - 1] if number else ()
        for ref in new:
            seen[ref.clip].add(ref.index)
        told = [_neighbours(c, n, new) if number else _at_first(c) for n, c in enumerate(scene.clips)]
        snapshot = "\n".join(f"Video {n}: {text}." for n, text in enumerate(told, start=1) if text)
        known = [_known(clip, ticks) for clip, ticks in zip(scene.clips, seen, strict=True)]
        a, b = (points(known[n], alignment(scene.wanted, clip.looks)) for n, clip in enumerate(scene.clips))
        amiss = (_mismatches(scene.wanted, clip.looks, held=number == 0) for clip in scene.clips)
        thought = "\n".join(map(_faults, (1, 2), amiss, known, (a, b)))
        if number == 0:
            thought = f"{_asked_for(scene.wanted)}\n{thought}"
        ending = _ending(labels(a, b), call, number)
        replies.append(f"<snapshot>\n{snapshot}\n</snapshot>\n<think>\n{thought}\n</think>\n{ending}")
    return tuple(replies)


def _known(clip: ClipSpec, ticks: Iterable[int]) -> tuple[Defect, ...]:
    """The faults that these frames show."""
    return tuple(defect for defect in clip.defects if any(defect.at(tick) for tick in ticks))


def _at_first(clip: ClipSpec) -> str:
    """What the first four frames show of a clip."""
    looks = clip.looks
    who = f"a {looks.colour} {looks.form} moves {looks.direction}" if looks else "no shape"
    where = "over " + ", cut to ".join(_STUFF[s.ground.stuff] for s in clip.shots) if clip.shots else "in real footage"
    seen = _known(clip, FIRST)
    frozen = clip.still or any(defect.kind == "freeze" for defect in seen)
    if frozen and looks:
        who = f"a {looks.colour} {looks.form}"
    rest = ["nothing moves"] if frozen else []
    rest += [_said(defect) for defect in seen if defect.kind != "freeze"] or ["clean"]
    return f"{who} {where}; {', '.join(rest)}"


def _neighbours(clip: ClipSpec, number: int, call: tuple[FrameRef, ...]) -> str:
    """What neighbouring frames show of a clip; "" if none of it was asked for."""
    ticks = [ref.index for ref in call if ref.clip == number]
    if not ticks:
        return ""
    steps = [step(clip, a) for a in ticks[:-1]]
    seen = [_said(defect) for defect in _known(clip, ticks) if defect.kind in VISUAL] or ["clean"]
    first, last = (FrameRef(number, tick).number(TICKS) for tick in (ticks[0], ticks[-1]))
    return f"frames {first} to {last} {', '.join(steps)}; {', '.join(seen)}"


def _said(defect: Defect) -> str:
    """A fault as it is seen."""
    part = " in a part" if defect.region else ""
    return f"{WORDS[defect.level]} {NAMES[defect.kind]}{part}"


def _asked_for(wanted: Looks | None) -> str:
    if wanted is None:
        return "The prompt cannot be checked."
    return f"The prompt wants a {wanted.colour} {wanted.form} moving {wanted.direction}."


def _faults(number: int, faults: list[str], known: tuple[Defect, ...], told: Points) -> str:
    """One clip's faults, those that are known after those of alignment, and their points."""
    faults = faults + [_said(d) + (" for a while" if d.brief and d.kind in VISUAL else "") for d in known]
    said = ", ".join(faults) or "no fault"
    return f"Video {number}: {said}. TA {told.ta}, VQ {told.vq}, MQ {told.mq}, sum {told.total}."


def _mismatches(wanted: Looks | None, shown: Looks | None, *, held: bool) -> list[str]:
    """What is not as the caption wants it.

    `held`: each thing that it wants is first held against what is there, so that it is judged on the spot. Side by
    side even a small judge can compare them.
    """
    if wanted is None:
        return []
    if shown is None:
        return ["no shape"]
    pairs = (
        ("colour", wanted.colour, shown.colour),
        ("shape", wanted.form, shown.form),
        ("direction", wanted.direction, shown.direction),
    )
    said: list[str] = []
    for name, want, have in pairs:
        said += [f"{want} is {have}"] if held else []
        said += [f"wrong {name}"] if want != have else []
    return said


def _ending(choices: Mapping[str, int], call: tuple[FrameRef, ...], number: int) -> str:
    """The final answer, or a recommendation and the call; it is surer the more it has seen."""
    answer = ", ".join(f"{key}={choices[key]}" for key in KEYS)
    if not call:
        return f"<final answer>{answer}</final answer>"
    payload = {"name": "select_frames", "arguments": {"target_frames": [ref.number(TICKS) for ref in call]}}
    return (
        f"<recommend answer>{answer}, CF={2 + number}</recommend answer>\n"
        f"<tool_call>\n{json.dumps(payload)}\n</tool_call>"
    )
