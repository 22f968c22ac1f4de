"""The visual memory window: what of a transcript the judge still sees.

A pure function of the transcript. All text stays; the frames of the `window` most recent tool outcomes
stay; older tool frames are replaced by a stand-in. The first frames always stay. (VR-Thinker, section
"visual memory window": budget N_in + p·N_ex frames, whatever the number of rounds.)
"""

from __future__ import annotations

from dataclasses import replace

from vrt_lite.protocol.messages import Conversation, Image, Message, Part, Text, Video


def visible(transcript: Conversation, *, window: int, stand_in: str) -> Conversation:
    """The conversation as the judge sees it: tool frames older than the last `window` outcomes forgotten."""
    outcomes = [i for i, message in enumerate(transcript) if message.tool_outcome]
    forgotten = set(outcomes[: max(len(outcomes) - window, 0)])
    return tuple(_forget(m, stand_in) if i in forgotten else m for i, m in enumerate(transcript))


def _forget(message: Message, stand_in: str) -> Message:
    """The turn without its frames; one stand-in takes the place of them all."""
    parts: list[Part] = []
    replaced = False
    for part in message.parts:
        if not isinstance(part, Video | Image):
            parts.append(part)
        elif not replaced:
            replaced = True
            if stand_in:
                parts.append(Text(stand_in))
    return replace(message, parts=tuple(parts))
