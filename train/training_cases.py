"""Cases for training and evaluation: a pair, its labels, and its frames."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import Pair
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import KEYS, Choice, FrameRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One labelled pair. `labels` are by key (TA, VQ, MQ, OA); a published set may lack some.

    `open` opens its frames, at the size that a profile shows them. `defects` are the kinds of faults in the clips.
    `evidence` are the workspace frames that show what the first frames do not, in the order in which to call for them.
    `hidden` says that a label cannot be known without them. `script` is what a perfect judge would write, round by
    round, if it is known. `exchanged` builds the case with the clips in the other order; `Exchanged` gives its frames.
    """

    key: str
    pair: Pair
    labels: Mapping[str, Choice]
    open: Callable[[Profile], AbstractContextManager[FrameStore]]
    defects: tuple[str, ...] = ()
    evidence: tuple[FrameRef, ...] = ()
    hidden: bool = False
    script: tuple[str, ...] = ()
    exchanged: Callable[[], TrainingCase] | None = None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The frames of a pair with exchanged clips, taken from the open frames of the pair."""

    frames: FrameStore

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        """Return the pixels of frames, as `vrt_lite.interfaces.FrameStore` requires."""
        return self.frames.pixels([replace(frame, clip=1 - frame.clip) for frame in frames])


Cases = Sequence[TrainingCase]


class LazyCases(Sequence[TrainingCase]):
    """Cases that are built when they are used. A subclass has `__len__` and `make`."""

    @abstractmethod
    def make(self, place: int) -> TrainingCase:
        """Build the case at a place, from 0 to `len()` - 1."""

    @overload
    def __getitem__(self, index: int) -> TrainingCase: ...
    @overload
    def __getitem__(self, index: slice) -> list[TrainingCase]: ...
    def __getitem__(self, index: int | slice) -> TrainingCase | list[TrainingCase]:
        places = range(len(self))[index]
        return self.make(places) if isinstance(places, int) else [self.make(place) for place in places]


def right(marks: Mapping[str, int], labels: Mapping[str, int]) -> dict[str, bool]:
    """Return for each key with a label whether an answer names the right winner."""
    return {key: marks.get(key) == labels[key] for key in KEYS if key in labels}
