"""Keeps back what a judge writes of alignment where it does not judge that: its digits there mean nothing."""

from __future__ import annotations

import re

from vrt_lite.interfaces import Event, Observe, Wrote
from vrt_lite.protocol.verdict import NOT_JUDGED

_VALUE = re.compile(r"\bTA[ \t]{0,8}[=:]?[ \t]{0,8}\d+(?: by \d+)?")
_BEGINNING = re.compile(r"(?:\bTA[ \t]{0,8}[=:]?[ \t]{0,8}(?:\d+(?: (?:b(?:y(?: \d*)?)?)?)?)?|\w+)\Z")
"""The end of a text that may become a value with what is written next; also a word that may go on."""


def withhold_alignment(text: str) -> str:
    """The text with "TA not judged" for each value of alignment: "TA=1", "TA 0", "TA=2 by 3"."""
    return _VALUE.sub(f"TA {NOT_JUDGED}", text)


def observe_without_alignment(observe: Observe) -> Observe:
    """An observer that passes everything on to `observe`, but withholds alignment in what is written.

    What may be the beginning of a value waits for the rest of it.
    """
    held = ""

    def pass_on(event: Event) -> None:
        nonlocal held
        if isinstance(event, Wrote):
            held += event.text
            beginning = _BEGINNING.search(held)
            end = beginning.start() if beginning else len(held)
            written, held = withhold_alignment(held[:end]), held[end:]
            if written:
                observe(Wrote(written))
            return
        if held:
            written, held = withhold_alignment(held), ""
            observe(Wrote(written))
        observe(event)

    return pass_on
