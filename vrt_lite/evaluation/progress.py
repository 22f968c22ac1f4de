"""How far an evaluation is: one line that is written over on a terminal, a line now and then in a pipe.

Knows counts, the running accuracy and the time left; refuses to know how pairs are judged. No rich: nothing is drawn
that a log could not hold.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TextIO

from vrt_lite.display import safe
from vrt_lite.display.plain import name_wait
from vrt_lite.interfaces import Encoding, Event, Loading, Prefill, RoundBegan, RoundEnded, Waiting, Wrote

_EVERY_SECONDS = 0.1
_PIPE_SECONDS = 30.0
_PIPE_SHARE = 0.05


class Progress:
    """Progress on `stream` (stderr); silent for None. `live=False` is for when others write there too.

    A context manager: at its end the terminal's line is taken away again.
    """

    def __init__(self, stream: TextIO | None, *, total: int, live: bool = True) -> None:
        self._stream = stream
        self._live = live and stream is not None and stream.isatty()
        self._total = total
        self._began = time.monotonic()
        self._first: float | None = None
        self._shown = -_PIPE_SECONDS
        self._shown_at = 0
        self._stage = ""
        self._wide = 0
        self.done = self.judged = self.failed = self.tau_right = self.tau_of = self.diff_right = self.diff_of = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._write(f"\r{' ' * self._wide}\r")
        elif self.done != self._shown_at:
            self._say()

    def count(self, label: int | None, verdict: int | None, *, judged: bool) -> None:
        """A pair is done. `label` and `verdict` are the overall ones, None where there is none."""
        self.done += 1
        self.judged += judged
        self.failed += verdict is None
        if label is not None and verdict is not None:
            self.tau_of, self.tau_right = self.tau_of + 1, self.tau_right + (label == verdict)
            if label:
                self.diff_of, self.diff_right = self.diff_of + 1, self.diff_right + (label == verdict)
        self._stage = ""
        self._show(ended=self.done == self._total)

    def observe(self, event: Event) -> None:
        """What the judge does now, for the terminal's line."""
        if self._first is None:
            self._first = time.monotonic()
        match event:
            case Loading(what):
                self._stage = f"loading {what}"
            case Waiting(what, attempt):
                self._wait(name_wait(what, attempt))
            case RoundBegan(_, number, _):
                self._stage = f"round {number}"
            case Encoding() | Prefill() | Wrote() | RoundEnded():
                pass
        if self._live:
            self._show()

    def _wait(self, waited: str) -> None:
        """What is waited for is a line of its own in a pipe: the next one may never come."""
        self._stage = waited
        if not self._live:
            self._write(f"{safe(waited, encoding=self._encoding())}\n")

    def line(self) -> str:
        """The state in words."""
        parts = [f"{self.done} of {self._total}"]
        if self.tau_of:
            parts.append(f"tau {100 * self.tau_right / self.tau_of:.1f}")
        if self.diff_of:
            parts.append(f"diff {100 * self.diff_right / self.diff_of:.1f}")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if left := self._left():
            parts.append(f"{_clock(left)} left")
        return ", ".join([*parts, self._stage] if self._stage and self._live else parts)

    def _left(self) -> float:
        """Seconds that the rest will take, as long as what was judged now took; 0 if that is not known."""
        if not self.judged:
            return 0.0
        since = self._first if self._first is not None else self._began
        return (time.monotonic() - since) / self.judged * (self._total - self.done)

    def _show(self, *, ended: bool = False) -> None:
        now = time.monotonic()
        if self._live:
            if ended or now - self._shown >= _EVERY_SECONDS:
                self._shown = now
                width = shutil.get_terminal_size().columns - 1
                line = safe(self.line(), encoding=self._encoding())[:width]
                self._write(f"\r{line.ljust(self._wide)}")
                self._wide = len(line)
        elif ended or now - self._shown >= _PIPE_SECONDS or self.done - self._shown_at >= _PIPE_SHARE * self._total:
            self._shown = now
            self._say()

    def _say(self) -> None:
        self._shown_at = self.done
        self._write(f"{safe(self.line(), encoding=self._encoding())}\n")

    def _encoding(self) -> str:
        return (self._stream and self._stream.encoding) or "utf-8"

    def _write(self, text: str) -> None:
        # A reader of the progress who left must not cost the verdicts.
        with contextlib.suppress(OSError, ValueError):
            if self._stream:
                self._stream.write(text)
                self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
