"""Lets a stop in force end the engine in the middle of an evaluation, which takes seconds with a large model."""

from __future__ import annotations

import time
from typing import Any

from vrt_lite.interfaces import check_stops

_EVERY_SECONDS = 0.1
_EVERY_NODES = 8
"""Nodes of the vision tower's graph between two checks: about a quarter of a layer."""


class AbortCheck:
    """Checks the stops in force a few times a second while the engine evaluates. One that was set ends the evaluation.

    `on_text_node` and `on_vision_node` are the engine's callbacks; it calls them in the thread that evaluates. They
    must live as long as what uses them. On a GPU they are not called, and an evaluation is short.
    """

    def __init__(self, llama: Any) -> None:
        """Make the callbacks of the types that `llama`, the engine's interface, has for them."""
        self._error: BaseException | None = None
        self._due = 0.0
        self._nodes = 0
        self.on_text_node = llama.ggml_abort_callback(self._check_text)
        self.on_vision_node = llama.ggml_backend_sched_eval_callback(self._check_vision)

    def raise_error(self) -> None:
        """Raise the error of the stop that ended the last evaluation, if one did: it was not completed."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _stops(self) -> bool:
        """Whether the evaluation must end."""
        if self._error is None and time.monotonic() >= self._due:
            try:
                check_stops()
            except BaseException as error:  # an exception cannot pass through the engine
                self._error = error
            self._due = time.monotonic() + _EVERY_SECONDS
        return self._error is not None

    def _check_text(self, data: object) -> bool:
        """Answer the engine before a node: whether to end."""
        return self._stops()

    def _check_vision(self, node: object, ask: bool, data: object) -> bool:
        """Answer the engine: before a node, whether to stop after it for a check; after it, whether to go on."""
        if not ask:
            return not self._stops()
        self._nodes += 1
        return self._nodes % _EVERY_NODES == 0
