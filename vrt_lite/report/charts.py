"""The small drawings of a report, as inline SVG that stretches: every x is a percentage, so no script lays it out.

Knows shares and positions; refuses to know what they mean. A drawing is named, or hidden beside its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from vrt_lite.protocol.verdict import Preference
from vrt_lite.report.nodes import Element, h

ROW = 20


def percent(share: float) -> str:
    """A probability to read: never a false 0 % or 100 %."""
    if 0 < share < 0.0005:
        return "<0.1\u00a0%"
    if 0.9995 <= share < 1:
        return ">99.9\u00a0%"
    return f"{share:.1%}".replace("%", "\u00a0%").replace(".0\u00a0", "\u00a0" if share in (0, 1) else ".0\u00a0")


def seconds(moment: float) -> str:
    """A moment or a length of time to read."""
    return f"{moment:.2f}\u00a0s" if moment < 600 else f"{int(moment // 60)}:{moment % 60:04.1f}\u00a0min"


def odds_bar(preference: Preference) -> Element | None:
    """Video 1 from the left, video 2 from the right, a tie between them."""
    if preference.odds is None:
        return None
    tie, one, two = preference.odds
    parts = (("one", 0.0, one), ("tie", one, tie), ("two", 1 - two, two))
    return h(
        "svg",
        [h("rect", class_=name, x=_x(at), y=0, width=_x(width), height="100%") for name, at, width in parts if width],
        class_="odds",
        aria_hidden="true",
    )


def moments(at: Sequence[float], length: float, *, label: str, video: int) -> Element:
    """Where in a clip of `length` seconds some frames lie; the line `head` is moved while the clips play."""
    return h(
        "svg",
        h("line", class_="track", x1="0", x2="100%", y1="50%", y2="50%"),
        [h("line", class_="mark", x1=_x(m / length), x2=_x(m / length), y1="3", y2=ROW - 3) for m in at if length],
        h("line", class_="head", x1="0", x2="0", y1="0", y2="100%"),
        class_=f"moments v{video}",
        role="img",
        aria_label=label,
        data_video=video,
    )


def interval(low: float, value: float, high: float, *, within: tuple[float, float], label: str) -> Element:
    """A value and its interval on a scale that several share, with the scale's zero."""
    span = within[1] - within[0] or 1.0

    def x(number: float) -> str:
        return _x(min(max((number - within[0]) / span, 0.0), 1.0))

    return h(
        "svg",
        h("line", class_="zero", x1=x(0), x2=x(0), y1="0", y2="100%") if within[0] <= 0 <= within[1] else None,
        h("line", class_="span", x1=x(low), x2=x(high), y1="50%", y2="50%"),
        [h("line", class_="end", x1=x(end), x2=x(end), y1="6", y2="18") for end in (low, high)],
        h("circle", class_="dot", cx=x(value), cy="50%", r="5"),
        class_="interval",
        role="img",
        aria_label=label,
    )


def _x(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"
