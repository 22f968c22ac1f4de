"""Progress: a bar tells a hook that the page sets."""

from collections.abc import Callable

PROGRESS_BAR_HOOK: Callable[[int, int], None] | None = None


class ProgressBar:
    def __init__(self, total: int) -> None:
        self.total = total

    def update_absolute(self, value: int, total: int | None = None) -> None:
        self.total = total or self.total
        if PROGRESS_BAR_HOOK:
            PROGRESS_BAR_HOOK(min(value, self.total), self.total)
