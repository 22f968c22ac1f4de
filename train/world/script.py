"""Writes the replies of a perfect judge about a scene, in the prompt's format. It uses only what has been shown so far.

Its policy always finds the evidence:

* If nothing moves between the frames shown first, in either clip, it answers at once.
* Otherwise it calls for four neighbouring frames of each video. They are in the middle of the gap between two of the
  first frames in which the shot changes (faults are frequent at cuts), or of the middle gap if no shot changes.
  Neighbouring frames show motion, and a short fault that a gap hides always covers the middle of the gap.
* If a clip has cuts in two gaps, it also calls for the middle of the second gap, in a third round.

Each round compares the clips, describes the frames, says what is amiss in each clip, adds the differences of points
(`labels`), and answers by them. The comparison comes first, and in it which clip is better in quality and in motion, by
how many points. Which of two clips is worse can be seen on any footage, even by a judge that cannot name the fault; how
much a picture has of a fault by itself depends on what it shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from train.world.defects import VISUAL, WORDS, motion_step
from train.world.labels import Points, count_mismatches, labels, points
from train.world.values import FIRST, TICKS, WINDOWS, ClipSpec, Defect, Looks, Scene
from vrt_lite.protocol.messages import KEYS, FrameRef

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
_ORDER = tuple(dict.fromkeys(NAMES.values()))
STUFF = {"leaves": "leaves", "clouds": "clouds", "paper": "paper", "photo": "a photo"}


def frames_to_call(scene: Scene) -> tuple[tuple[FrameRef, ...], ...]:
    """Return the frames that the judge calls for, call by call."""
    if scene.still:
        return ()
    calls: list[tuple[FrameRef, ...]] = []
    for turn in range(max(len(clip.gaps) for clip in scene.clips)):
        windows = [(c, WINDOWS[clip.gaps[turn]]) for c, clip in enumerate(scene.clips) if turn < len(clip.gaps)]
        calls.append(tuple(FrameRef(c, tick) for c, window in windows for tick in window))
    return tuple(calls)


def script(scene: Scene) -> tuple[str, ...]:
    """Write the replies, round by round. The last one ends with the scene's labels.

    A clip without shots is real footage.
    """
    calls = (*frames_to_call(scene), ())
    shown: tuple[set[int], set[int]] = (set(FIRST), set(FIRST))
    replies: list[str] = []
    for number, call in enumerate(calls):
        new = calls[number - 1] if number else ()
        for ref in new:
            shown[ref.clip].add(ref.index)
        descriptions = [
            _describe_neighbours(c, n, new) if number else _describe_first_frames(c) for n, c in enumerate(scene.clips)
        ]
        known = [_find_visible_faults(clip, ticks) for clip, ticks in zip(scene.clips, shown, strict=True)]
        lines = [f"Video {n}: {text}." for n, text in enumerate(descriptions, start=1) if text]
        a, b = (
            points(known[n], count_mismatches(scene.caption_looks, clip.looks)) for n, clip in enumerate(scene.clips)
        )
        choices = labels(a, b)
        better = _name_better(choices, a, b)
        snapshot = "\n".join((_compare_clips(known, better), *lines))
        amiss = (list_mismatches(scene.caption_looks, clip.looks, held=number == 0) for clip in scene.clips)
        listed = map(_list_faults, (1, 2), amiss, known, (a.ta, b.ta))
        thought = "\n".join((*listed, f"Sum: {', '.join(better.values())}."))
        if number == 0:
            thought = f"{describe_caption(scene.caption_looks)}\n{thought}"
        ending = _write_ending(choices, call, number)
        replies.append(f"<snapshot>\n{snapshot}\n</snapshot>\n<think>\n{thought}\n</think>\n{ending}")
    return tuple(replies)


def _find_visible_faults(clip: ClipSpec, ticks: Iterable[int]) -> tuple[Defect, ...]:
    """Return the faults that these frames show."""
    return tuple(defect for defect in clip.defects if any(defect.at(tick) for tick in ticks))


def _compare_clips(known: Sequence[tuple[Defect, ...]], better: Mapping[str, str]) -> str:
    """Say which clip is better in quality and in motion, then name the faults of which one clip shows more.

    The largest difference is first, each with its clip.
    """
    levels = [
        {name: max((d.level for d in own if NAMES[d.kind] == name), default=0) for name in _ORDER} for own in known
    ]
    more = {name: levels[1][name] - levels[0][name] for name in _ORDER}
    named = sorted((name for name in _ORDER if more[name]), key=lambda name: -abs(more[name]))
    listed = ", ".join(f"{name} in video {2 if more[name] > 0 else 1}" for name in named)
    return f"Compare: {better['VQ']}, {better['MQ']}: {listed or 'nothing'}."


def _name_better(choices: Mapping[str, int], a: Points, b: Points) -> dict[str, str]:
    """Name the better clip in each dimension, and by how many points: "VQ=2 by 3"; "VQ=0" for equal points."""
    more = {"TA": a.ta - b.ta, "VQ": a.vq - b.vq, "MQ": a.mq - b.mq, "OA": a.total - b.total}
    return {key: f"{key}={winner} by {abs(more[key])}" if winner else f"{key}=0" for key, winner in choices.items()}


def describe_looks(looks: Looks) -> str:
    """Describe a moving subject."""
    return f"a {looks.colour} {looks.form} moves {looks.direction}"


def _describe_first_frames(clip: ClipSpec) -> str:
    """Describe what the first four frames show of a clip."""
    looks = clip.looks
    who = describe_looks(looks) if looks else "no shape"
    where = "over " + ", cut to ".join(STUFF[s.ground.stuff] for s in clip.shots) if clip.shots else "in real footage"
    faults = _find_visible_faults(clip, FIRST)
    frozen = clip.still or any(defect.kind == "freeze" for defect in faults)
    if frozen and looks:
        who = f"a {looks.colour} {looks.form}"
    rest = ["nothing moves"] if frozen else []
    rest += [_describe_fault(defect) for defect in faults if defect.kind != "freeze"] or ["clean"]
    return f"{who} {where}; {', '.join(rest)}"


def _describe_neighbours(clip: ClipSpec, number: int, call: tuple[FrameRef, ...]) -> str:
    """Describe what the neighbouring frames of a call show of a clip; "" if the call has none of it."""
    ticks = [ref.index for ref in call if ref.clip == number]
    if not ticks:
        return ""
    steps = [motion_step(clip, a) for a in ticks[:-1]]
    faults = [_describe_fault(defect) for defect in _find_visible_faults(clip, ticks) if defect.kind in VISUAL] or [
        "clean"
    ]
    first, last = (FrameRef(number, tick).number(TICKS) for tick in (ticks[0], ticks[-1]))
    return f"frames {first} to {last} {', '.join(steps)}; {', '.join(faults)}"


def _describe_fault(defect: Defect) -> str:
    """Describe a fault by its strength, its name, and whether it is in a part of the picture."""
    part = " in a part" if defect.region else ""
    return f"{WORDS[defect.level]} {NAMES[defect.kind]}{part}"


def describe_caption(caption_looks: Looks | None) -> str:
    """Say what the caption wants."""
    if caption_looks is None:
        return "The prompt cannot be checked."
    return f"The prompt wants a {caption_looks.colour} {caption_looks.form} moving {caption_looks.direction}."


def _list_faults(number: int, mismatches: list[str], known: tuple[Defect, ...], ta: int) -> str:
    """Write the line about one clip: its mismatches, its visible faults, and its points in alignment."""
    seen = [_describe_fault(d) + (" for a while" if d.brief and d.kind in VISUAL else "") for d in known]
    return f"Video {number}: {', '.join(mismatches + seen) or 'no fault'}. TA {ta}."


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


def _write_ending(choices: Mapping[str, int], call: tuple[FrameRef, ...], number: int) -> str:
    """Write the final answer, or a recommendation and the call. The confidence grows with each round."""
    answer = ", ".join(f"{key}={choices[key]}" for key in KEYS)
    if not call:
        return f"<final answer>{answer}</final answer>"
    payload = {"name": "select_frames", "arguments": {"target_frames": [ref.number(TICKS) for ref in call]}}
    return (
        f"<recommend answer>{answer}, CF={2 + number}</recommend answer>\n"
        f"<tool_call>\n{json.dumps(payload)}\n</tool_call>"
    )
