"""Conversations as what a model learns from: tokens, positions, pictures, and which tokens are its own.

Tokens are those that inference lowers a conversation to, by the same code; positions advance as the engine's do
(past a video by its largest extent); pictures are bytes in transformers' flat layout, see `train.policy.vision`. Knows
one profile's way of talking; refuses to know models, cases and losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from train.policy.tokenizer import IMAGE, START, VIDEO, Tokenizer
from vrt_lite.backends.llamacpp.held import runs
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower
from vrt_lite.backends.llamacpp.positions import patch_positions
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import Profile
from vrt_lite.protocol.frames import FrameRef
from vrt_lite.protocol.messages import Conversation, Generated, Image, Message, Video
from vrt_lite.resize import CELL

PATCH, MERGE = 14, 2
PATCH_BYTES = 3 * 2 * PATCH * PATCH
"""Values of one flat patch: channels, two frames, rows, columns."""
TEXT_KIND, IMAGE_KIND, VIDEO_KIND = 0, 1, 2
IGNORED = -100

Pixels = Mapping[FrameRef, NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of rounds that one reading covers. `learned` are indices of the messages that carry loss."""

    conversation: Conversation
    learned: frozenset[int]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation of n tokens. `learned` marks a reply's tokens and the <|im_end|> behind it.

    `positions` are (3, n): t, y, x. `kinds` are transformers' mm_token_type_ids: 0 text, 1 image, 2 video. Patches
    are (count, 1176) bytes; grids are (pictures, 3): temporal patches, rows and columns of patches.
    """

    ids: NDArray[np.int64]
    learned: NDArray[np.bool_]
    positions: NDArray[np.int64]
    kinds: NDArray[np.int64]
    image_patches: NDArray[np.uint8]
    image_grids: NDArray[np.int64]
    video_patches: NDArray[np.uint8]
    video_grids: NDArray[np.int64]


def segments(visible: Sequence[Conversation], replies: Sequence[Generated]) -> list[Segment]:
    """Every reply in the conversation that it was written in; rounds that only append share a segment.

    `visible[r]` is what the judge saw before it wrote `replies[r]`. Where the window forgot frames, what follows
    was written in another context, and a new segment begins.
    """
    found: list[Segment] = []
    first = 0
    for r, (seen, reply) in enumerate(zip(visible, replies, strict=True)):
        whole = (*seen, Message("assistant", (reply,)))
        if r + 1 < len(visible) and visible[r + 1][: len(whole)] == whole:
            continue
        found.append(Segment(whole, frozenset(len(visible[i]) for i in range(first, r + 1))))
        first = r + 1
    return found


class Renderer:
    """Renders conversations of one profile."""

    def __init__(self, tokenizer: Tokenizer, profile: Profile) -> None:
        self._tokenizer, self._profile = tokenizer, profile
        self._image, self._video = tokenizer.id(IMAGE), tokenizer.id(VIDEO)
        self._opening = [tokenizer.id(START), *tokenizer.tokens("assistant\n", special=False)]
        self._newline = tokenizer.tokens("\n", special=False)

    def render(self, segment: Segment, frames: FrameStore) -> Rendered:
        """A segment, its replies learned. `frames` gives pictures at the model's size."""
        return self._rendered(segment.conversation, frames, segment.learned, opened=False)

    def prompt(self, conversation: Conversation, frames: FrameStore) -> Rendered:
        """A conversation up to where the judge's next turn begins; nothing is learned."""
        return self._rendered(conversation, frames, frozenset(), opened=True)

    def _rendered(
        self, conversation: Conversation, frames: FrameStore, learned: frozenset[int], *, opened: bool
    ) -> Rendered:
        pixels = pixels_of(conversation, frames)
        told = _Told(self._image, self._video)
        for index, message in enumerate(conversation):
            items = self._items(message, pixels, told)
            end = len(items) - len(self._newline)
            told.tell(items, range(len(self._opening), end) if index in learned else range(0))
        if opened:
            told.tell(self._opening, range(0))
        return told.rendered()

    def _items(self, message: Message, pixels: Pixels, told: _Told) -> list[Item]:
        """One turn as inference lowers it. No token spans two turns."""

        def block(part: Video | Image) -> FrameBlock:
            flat, grid = pictured(part, pixels)
            seconds = part.seconds_per_patch if isinstance(part, Video) else 0.0
            steps = self._profile.clock.steps(grid[0], seconds) if isinstance(part, Video) else (0,)
            told.pictures.append((IMAGE_KIND if isinstance(part, Image) else VIDEO_KIND, flat, grid))
            return FrameBlock(("",) * grid[0], steps, grid[1] // MERGE, grid[2] // MERGE)

        return lower((message,), self._tokenizer, block)[: -len(self._opening)]


class _Told:
    """What has been rendered so far; `pictures` are the kind, patches and grid of each, in the order told."""

    def __init__(self, image: int, video: int) -> None:
        self._pads = {IMAGE_KIND: image, VIDEO_KIND: video}
        self.pictures: list[tuple[int, NDArray[np.uint8], tuple[int, int, int]]] = []
        self._ids: list[NDArray[np.int64]] = []
        self._kinds: list[NDArray[np.int64]] = []
        self._learned: list[NDArray[np.bool_]] = []
        self._positions: list[NDArray[np.int64]] = []
        self._at = self._blocks = 0

    def tell(self, items: Sequence[Item], learned: range) -> None:
        """Add a turn; `learned` counts its items. Only text is learned."""
        marks = np.zeros(len(items), np.bool_)
        marks[learned.start : learned.stop] = True
        seen = 0
        for run in runs(items):
            count = 1 if isinstance(run, FrameBlock) else len(run)
            self._add(run, marks[seen : seen + count])
            seen += count

    def _add(self, run: list[int] | FrameBlock, marks: NDArray[np.bool_]) -> None:
        if isinstance(run, FrameBlock):
            kind = self.pictures[self._blocks][0]
            self._blocks += 1
            planes = [patch_positions(self._at, step, run.rows, run.columns)[:3] for step in run.steps]
            self._ids.append(np.full(run.tokens, self._pads[kind], np.int64))
            self._kinds.append(np.full(run.tokens, kind, np.int64))
            self._learned.append(np.zeros(run.tokens, np.bool_))
            self._positions.append(np.concatenate(planes, axis=1).astype(np.int64))
            self._at += run.positions
        else:
            self._ids.append(np.array(run, np.int64))
            self._kinds.append(np.full(len(run), TEXT_KIND, np.int64))
            self._learned.append(marks)
            self._positions.append(np.tile(np.arange(self._at, self._at + len(run), dtype=np.int64), (3, 1)))
            self._at += len(run)

    def rendered(self) -> Rendered:
        flat = {kind: [p for k, p, _ in self.pictures if k == kind] for kind in self._pads}
        grids = {kind: [g for k, _, g in self.pictures if k == kind] for kind in self._pads}
        empty = np.empty((0, PATCH_BYTES), np.uint8)
        return Rendered(
            np.concatenate(self._ids),
            np.concatenate(self._learned),
            np.concatenate(self._positions, axis=1),
            np.concatenate(self._kinds),
            np.concatenate([empty, *flat[IMAGE_KIND]]),
            np.array(grids[IMAGE_KIND], np.int64).reshape(-1, 3),
            np.concatenate([empty, *flat[VIDEO_KIND]]),
            np.array(grids[VIDEO_KIND], np.int64).reshape(-1, 3),
        )


def pixels_of(messages: Sequence[Message], frames: FrameStore) -> Pixels:
    """All that messages show, in one request, which lets a store decode both clips at once."""
    shown = list(dict.fromkeys(frame for message in messages for frame in message.frames))
    return dict(zip(shown, frames.pixels(shown), strict=True)) if shown else {}


def pictured(part: Video | Image, pixels: Pixels) -> tuple[NDArray[np.uint8], tuple[int, int, int]]:
    """Flat patches (count, 1176) of a part, and its grid. An image, or a last frame without a partner, is doubled."""
    shown = part.frames if isinstance(part, Video) else (part.frame,)
    shown = (*shown, shown[-1]) if len(shown) % 2 else shown
    return patches([pixels[frame] for frame in shown])


def patches(frames: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], tuple[int, int, int]]:
    """Flat patches (count, 1176) of an even number of frames (height, width, 3), and their grid.

    The layout of transformers' image processor of Qwen2-VL: cell by cell, in a cell patch by patch, and in a patch
    channel, frame, row, column.
    """
    height, width = frames[0].shape[:2]
    if height % CELL or width % CELL:
        raise ValueError(f"a frame of {width}x{height} is not of the model's size: multiples of {CELL} are needed")
    rows, columns, times = height // CELL, width // CELL, len(frames) // 2
    cells = np.stack(frames).reshape(times, 2, rows, MERGE, PATCH, columns, MERGE, PATCH, 3)
    flat = np.ascontiguousarray(cells.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)).reshape(-1, PATCH_BYTES)
    return flat, (times, rows * MERGE, columns * MERGE)


class Collator:
    """Makes a batch of rendered conversations: the keyword arguments of the model's forward, padded on the right."""

    def __init__(self, pad_id: int) -> None:
        self._pad = pad_id

    def __call__(self, rows: Sequence[Rendered | Mapping[str, object]]) -> dict[str, torch.Tensor]:
        """A batch of (rows, longest); positions are (3, rows, longest). A mapping holds one or more as "rendered"."""
        told = list(_flat(rows))
        shape = (len(told), max(len(row.ids) for row in told))
        ids, labels = np.full(shape, self._pad, np.int64), np.full(shape, IGNORED, np.int64)
        mask, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        positions = np.zeros((3, *shape), np.int64)
        for i, row in enumerate(told):
            n = len(row.ids)
            ids[i, :n], mask[i, :n], kinds[i, :n] = row.ids, 1, row.kinds
            labels[i, :n] = np.where(row.learned, row.ids, IGNORED)
            positions[:, i, :n] = row.positions
        batch = {"input_ids": ids, "attention_mask": mask, "labels": labels, "position_ids": positions}
        batch |= {"mm_token_type_ids": kinds}
        if any(len(row.image_grids) for row in told):
            batch["pixel_values"] = np.concatenate([row.image_patches for row in told])
            batch["image_grid_thw"] = np.concatenate([row.image_grids for row in told])
        if any(len(row.video_grids) for row in told):
            batch["pixel_values_videos"] = np.concatenate([row.video_patches for row in told])
            batch["video_grid_thw"] = np.concatenate([row.video_grids for row in told])
        return {name: torch.from_numpy(values) for name, values in batch.items()}


def _flat(rows: Sequence[Rendered | Mapping[str, object]]) -> Iterator[Rendered]:
    for row in rows:
        held = row["rendered"] if isinstance(row, Mapping) else row
        if isinstance(held, Rendered):
            yield held
        else:
            yield from held  # type: ignore[misc]
