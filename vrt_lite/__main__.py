"""`python -m vrt_lite` and the `vrt-lite` command.

Ctrl-C ends the process with status 130, within 2 seconds whatever it does. What was judged is in the store by then, and
files are written whole or not at all. Little is imported before Ctrl-C is handled.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

_INTERRUPTED = 130
_SILENT_SECONDS = 0.2
"""A command that ends within this time does not say that it stops."""
_GRACE_SECONDS = 1.2
"""Seconds in which a command may end by itself."""


def main() -> None:
    """Run the command line and leave with its exit status."""
    # A process that was started in the background ignores Ctrl-C, and goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        from vrt_lite.cli import run  # noqa: PLC0415 - an interrupt during the imports ends like any other

        _handle_with(_interrupt)
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        _say("Interrupted.")
        status = _INTERRUPTED
    _handle_with(_end_at_once)
    _leave(status)


def _handle_with(handler: Callable[[int, FrameType | None], None]) -> None:
    """Handle Ctrl-C with this function from now on, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) in (_end_at_once, _interrupt):
        signal.signal(signal.SIGINT, handler)


def _leave(status: int) -> NoReturn:
    """End the process with this status; a thread that is still at work ends first.

    Without Python's own way out, which frees one by one what the system frees at once: 0.1 s of a comparison. And after
    an interrupt in exec(), as when a dataclass is made during an import, that ends the process by a signal, though the
    interrupt was caught.
    """
    import threading  # noqa: PLC0415

    if status != _INTERRUPTED and any(not t.daemon for t in threading.enumerate() if t is not threading.main_thread()):
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue
    os._exit(status)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process. For when nothing is left to be cleaned up, and for a second Ctrl-C."""
    _say("Interrupted.")
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and end the process if it has not ended in time."""
    _handle_with(_end_at_once)
    for work in (_announce, _end_in_time):
        _start(work)
    # In a callback of Python's own it goes no further, and a traceback would be printed: the process ends in time.
    sys.unraisablehook = lambda _: None
    raise KeyboardInterrupt


def _start(work: Callable[[], None]) -> None:
    """Start a thread that does not keep the process alive."""
    import threading  # noqa: PLC0415

    threading.Thread(target=work, daemon=True).start()


def _announce() -> None:
    """Say that the command is stopping. A thread of its own, because a terminal may not take what is written."""
    time.sleep(_SILENT_SECONDS)
    _say("Stopping ...")


def _end_in_time() -> None:
    """End the process after the grace period. It may be in a step that nothing can break."""
    time.sleep(_GRACE_SECONDS)
    _start(lambda: _say("Interrupted.", "\x1b[?25h"))
    time.sleep(_SILENT_SECONDS)
    os._exit(_INTERRUPTED)


def _say(words: str, show_cursor: str = "") -> None:
    """Print a line on stderr if it can be written. A live display hides the cursor, which must be shown again."""
    try:
        sys.stderr.write(f"{show_cursor if sys.stderr.isatty() else ''}vrt-lite: {words}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError, RuntimeError):
        return  # it was closed, or another thread is writing to it


if __name__ == "__main__":
    main()
