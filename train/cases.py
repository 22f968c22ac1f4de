"""Cases to learn from and to be measured on: a pair, its labels, and its frames. Knows no torch and no rendering."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.profile import Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.tags import KEYS, Choice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled pair. `labels` are by key (TA, VQ, MQ, OA); a published set may lack some.

    `open` gives its frames, at the size that a profile shows them. `defects` are the kinds that the clips have;
    `evidence` the workspace frames that show what the first ones do not, in the order they are to be asked for;
    `hidden` says that a label cannot be known without them. `script` is what a perfect judge would write, round by
    round, where that is known; `exchanged` makes the same pair with its clips in the other order, which `Exchanged`
    gives the frames of.
    """

    key: str
    pair: Pair
    labels: Mapping[str, Choice]
    open: Callable[[Profile], AbstractContextManager[FrameStore]]
    defects: tuple[str, ...] = ()
    evidence: tuple[FrameRef, ...] = ()
    hidden: bool = False
    script: tuple[str, ...] = ()
    exchanged: Callable[[], Case] | None = None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The frames of a pair whose clips are exchanged, out of the open frames of the pair."""

    frames: FrameStore

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """As `vrt_lite.interfaces.FrameStore` has it."""
        return self.frames.pixels([replace(frame, clip=1 - frame.clip) for frame in frames])


Cases = Sequence[Case]


class OnDemand(Sequence[Case]):
    """Cases that are made when they are asked for: a subclass says how many there are, and makes one."""

    @abstractmethod
    def make(self, place: int) -> Case:
        """The case at a place, from 0 to `len()` - 1."""

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> list[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | list[Case]:
        places = range(len(self))[index]
        return self.make(places) if isinstance(places, int) else [self.make(place) for place in places]


def right(marks: Mapping[str, Choice], labels: Mapping[str, Choice]) -> dict[str, bool]:
    """By key that has a label: whether an answer names the same winner."""
    return {key: marks.get(key) == labels[key] for key in KEYS if key in labels}
