"""A judge that replays texts: for tests, for demos, and for developing a controller without a model.

    backend = ScriptedBackend(["<final answer>TA=1, VQ=1, MQ=0, OA=1</final answer>"])

It keeps every conversation it was shown, so that a test can see what the judge would have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vrt_lite.errors import NoVerdictError
from vrt_lite.interfaces import FrameStore, Observe, Sampling, Wrote
from vrt_lite.protocol.messages import Conversation, Reply


class ScriptedBackend:
    """Replays `replies` in order, whatever the conversation is; NoVerdictError after the last one."""

    def __init__(self, replies: Iterable[str | Reply]) -> None:
        self._replies: Iterator[str | Reply] = iter(replies)
        self.conversations: list[Conversation] = []

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The next text of the script."""
        self.conversations.append(conversation)
        reply = next(self._replies, None)
        if reply is None:
            raise NoVerdictError(f"The script has no reply for round {len(self.conversations)}.")
        reply = reply if isinstance(reply, Reply) else Reply(reply)
        observe(Wrote(reply.text))
        return reply
