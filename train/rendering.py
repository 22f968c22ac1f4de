"""Renders conversations for training: tokens, positions, pictures, and which tokens are the model's own.

Tokens come from the same code that lowers a conversation at inference. Positions advance as in the engine (past a video
by its largest extent). Pictures are bytes in transformers' flat layout, see
`train.tiny.batched_tower`. One renderer serves one profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from train.policy_tokenizer import IMAGE, START, VIDEO, PolicyTokenizer
from vrt_lite.backends.llamacpp.kv_cache import split_runs
from vrt_lite.backends.llamacpp.lower import FrameBlock, Item, lower
from vrt_lite.interfaces import FrameStore
from vrt_lite.profile import CELL, Profile
from vrt_lite.protocol.messages import Conversation, FrameRef, Generated, Image, Message, Video

PATCH, MERGE = 14, 2
PATCH_BYTES = 3 * 2 * PATCH * PATCH
"""Values of one flat patch: channels, two frames, rows, columns."""
TEXT_KIND, IMAGE_KIND, VIDEO_KIND = 0, 1, 2
IGNORED = -100

Pixels = Mapping[FrameRef, NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rounds that one conversation contains. `learned` are the indices of the messages with a loss."""

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
    """Cut a trajectory into segments, so that every reply is in the conversation in which it was written.

    `visible[r]` is what the judge saw before it wrote `replies[r]`. Rounds that only append share a segment. When the
    memory window drops frames, the context changes and a new segment begins.
    """
    found: list[Segment] = []
    first = 0
    for r, (conversation, reply) in enumerate(zip(visible, replies, strict=True)):
        whole = (*conversation, Message("assistant", (reply,)))
        if r + 1 < len(visible) and visible[r + 1][: len(whole)] == whole:
            continue
        found.append(Segment(whole, frozenset(len(visible[i]) for i in range(first, r + 1))))
        first = r + 1
    return found


class Renderer:
    """Renders conversations of one profile."""

    def __init__(self, tokenizer: PolicyTokenizer, profile: Profile) -> None:
        self._tokenizer, self._profile = tokenizer, profile
        self._image, self._video = tokenizer.id(IMAGE), tokenizer.id(VIDEO)
        self._opening = [tokenizer.id(START), *tokenizer.tokens("assistant\n", special=False)]
        self._newline = tokenizer.tokens("\n", special=False)

    def render(self, segment: Segment, frames: FrameStore) -> Rendered:
        """Render a segment, with a loss on its replies. `frames` gives pictures at the model's size."""
        return self._rendered(segment.conversation, frames, segment.learned, opened=False)

    def prompt(self, conversation: Conversation, frames: FrameStore) -> Rendered:
        """Render a conversation up to the beginning of the judge's next turn, without a loss."""
        return self._rendered(conversation, frames, frozenset(), opened=True)

    def _rendered(
        self, conversation: Conversation, frames: FrameStore, learned: frozenset[int], *, opened: bool
    ) -> Rendered:
        pixels = _pixels_of(conversation, frames)
        so_far = _RenderedSoFar(self._image, self._video)
        for index, message in enumerate(conversation):
            items = self._items(message, pixels, so_far)
            end = len(items) - len(self._newline)
            so_far.add(items, range(len(self._opening), end) if index in learned else range(0))
        if opened:
            so_far.add(self._opening, range(0))
        return so_far.rendered()

    def _items(self, message: Message, pixels: Pixels, so_far: _RenderedSoFar) -> list[Item]:
        """Convert one message to tokens and frames, as inference does. No token spans two messages."""

        def block(part: Video | Image) -> FrameBlock:
            flat, grid = _patches_of(part, pixels)
            seconds = part.seconds_per_patch if isinstance(part, Video) else 0.0
            steps = self._profile.clock.steps(grid[0], seconds) if isinstance(part, Video) else (0,)
            so_far.pictures.append((IMAGE_KIND if isinstance(part, Image) else VIDEO_KIND, flat, grid))
            return FrameBlock(("",) * grid[0], steps, grid[1] // MERGE, grid[2] // MERGE)

        return lower((message,), self._tokenizer, block)[: -len(self._opening)]


class _RenderedSoFar:
    """A partly rendered conversation. `pictures` has the kind, patches and grid of each picture, in order."""

    def __init__(self, image: int, video: int) -> None:
        self._pads = {IMAGE_KIND: image, VIDEO_KIND: video}
        self.pictures: list[tuple[int, NDArray[np.uint8], tuple[int, int, int]]] = []
        self._ids: list[NDArray[np.int64]] = []
        self._kinds: list[NDArray[np.int64]] = []
        self._learned: list[NDArray[np.bool_]] = []
        self._positions: list[NDArray[np.int64]] = []
        self._at = self._blocks = 0

    def add(self, items: Sequence[Item], learned: range) -> None:
        """Add a message's items. `learned` is the range of those with a loss; only text has one."""
        marks = np.zeros(len(items), np.bool_)
        marks[learned.start : learned.stop] = True
        start = 0
        for run in split_runs(items):
            count = 1 if isinstance(run, FrameBlock) else len(run)
            self._add(run, marks[start : start + count])
            start += count

    def _add(self, run: list[int] | FrameBlock, marks: NDArray[np.bool_]) -> None:
        if isinstance(run, FrameBlock):
            kind = self.pictures[self._blocks][0]
            self._blocks += 1
            planes = [run.planes(number, self._at)[:3] for number in range(len(run.patches))]
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


def _pixels_of(messages: Sequence[Message], frames: FrameStore) -> Pixels:
    """Read all frames of messages, in one request, so that a store can decode both clips at once."""
    shown = list(dict.fromkeys(frame for message in messages for frame in message.frames))
    return dict(zip(shown, frames.pixels(shown), strict=True)) if shown else {}


def _patches_of(part: Video | Image, pixels: Pixels) -> tuple[NDArray[np.uint8], tuple[int, int, int]]:
    """Return flat patches (count, 1176) of a part, and its grid. An odd last frame, or an image, is used twice."""
    shown = part.frames if isinstance(part, Video) else (part.frame,)
    shown = (*shown, shown[-1]) if len(shown) % 2 else shown
    return patches([pixels[frame] for frame in shown])


def patches(frames: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], tuple[int, int, int]]:
    """Return flat patches (count, 1176) of an even number of frames (height, width, 3), and their grid.

    The layout is that of transformers' image processor of Qwen2-VL: cell by cell, in a cell patch by patch, and in a
    patch channel, frame, row, column.
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

    def __call__(self, rows: Sequence[Rendered]) -> dict[str, torch.Tensor]:
        """Return a batch of (rows, longest); positions are (3, rows, longest)."""
        shape = (len(rows), max(len(row.ids) for row in rows))
        ids, labels = np.full(shape, self._pad, np.int64), np.full(shape, IGNORED, np.int64)
        mask, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        positions = np.zeros((3, *shape), np.int64)
        for i, row in enumerate(rows):
            n = len(row.ids)
            ids[i, :n], mask[i, :n], kinds[i, :n] = row.ids, 1, row.kinds
            labels[i, :n] = np.where(row.learned, row.ids, IGNORED)
            positions[:, i, :n] = row.positions
        batch = {"input_ids": ids, "attention_mask": mask, "labels": labels, "position_ids": positions}
        batch |= {"mm_token_type_ids": kinds}
        if any(len(row.image_grids) for row in rows):
            batch["pixel_values"] = np.concatenate([row.image_patches for row in rows])
            batch["image_grid_thw"] = np.concatenate([row.image_grids for row in rows])
        if any(len(row.video_grids) for row in rows):
            batch["pixel_values_videos"] = np.concatenate([row.video_patches for row in rows])
            batch["video_grid_thw"] = np.concatenate([row.video_grids for row in rows])
        return {name: torch.from_numpy(values) for name, values in batch.items()}
