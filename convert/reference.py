"""The reference: transformers' Qwen2.5-VL in F32 on the CPU, giving the same `Reading` as the engine does.

Everything here is the reference's own: its tokenizer, its image processor (the PIL one, which is what videos
went through as well when these checkpoints were trained), its vision tower, its positions, its language
model. Of vrt-lite it knows what a conversation is, and refuses to know how an engine evaluates one.

Written for transformers 4.57, whose clock is the one of the profile's "truncate". Known of 5.x: it loads the same
checkpoints and names the weights the same; its clock is the profile's "exact" and its next position ignores
t, so that positions agree only while t stays within rows and columns and a patch lasts whole seconds; the PIL image
processor is under another name. Until it was tried, anything but 4.57 to 4.x is refused.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp.reading import FRAME, Reading
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.interfaces import FrameStore
from vrt_lite.protocol.messages import Conversation, Generated, Image, Text, Video

PATCH, MERGE = 14, 2
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Written:
    """Greedy tokens, and the least lead of a chosen token's logit over the next best, relative to the largest."""

    tokens: tuple[int, ...]
    margin: float


@dataclass(frozen=True)
class _Prepared:
    """A conversation as the model's own inputs; `positions` as the reference computes them, (3, 1, n)."""

    inputs: dict[str, Any]
    positions: Any


def load_extra() -> tuple[Any, Any]:
    """The modules torch and transformers; UsageError, naming the extra, if they are not there."""
    try:
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(f'{error.name} is missing: install the extra with pip install -e ".[parity]".') from error
    if not transformers.__version__.startswith("4."):
        raise UsageError(f"transformers is {transformers.__version__}, needs 4.57 or a later 4.x: its clock differs.")
    return torch, transformers


class Reference:
    """A checkpoint folder, loaded by transformers; pixel range and, if given, the clock's rate are the profile's."""

    def __init__(
        self, folder: Path, *, min_pixels: int, max_pixels: int, tokens_per_second: float | None = None
    ) -> None:
        self._torch, transformers = load_extra()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        name = "transformers.models.qwen2_vl.image_processing_qwen2_vl"
        self._tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self._image_id, self._video_id = self.token("<|image_pad|>"), self.token("<|video_pad|>")
        mine = _read_json(folder / "preprocessor_config.json")
        colours = {key: mine[key] for key in ("image_mean", "image_std")}
        sizes = {"min_pixels": min_pixels, "max_pixels": max_pixels}
        self._processor = importlib.import_module(name).Qwen2VLImageProcessor(**colours, **sizes)
        config = transformers.Qwen2_5_VLConfig(**self._config(_read_json(folder / "config.json")))
        kind = transformers.Qwen2_5_VLForConditionalGeneration
        try:
            self._model = kind.from_pretrained(
                folder, config=config, dtype=self._torch.float32, attn_implementation="eager", local_files_only=True
            ).eval()
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(f"transformers cannot load {folder}: {str(error).splitlines()[0]}") from error
        if tokens_per_second is not None:
            self._model.config.vision_config.tokens_per_second = tokens_per_second

    def token(self, name: str) -> int:
        """The id of a token by its text; ModelError if the vocabulary lacks it."""
        found = self._tokenizer.encode(name, add_special_tokens=False)
        if len(found) != 1:
            raise ModelError(f"The checkpoint's tokenizer has no token {name}: it is no Qwen2.5-VL model.")
        return int(found[0])

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def resized(self, frame: Pixels) -> Pixels:
        """A frame as the processor hands it on before it normalises: (height, width, 3)."""
        patches, grid = self._patches([frame, frame], do_rescale=False, do_normalize=False)
        _, rows, columns = grid
        cells = patches.reshape(rows // MERGE, columns // MERGE, MERGE, MERGE, 3, 2, PATCH, PATCH)[..., 0, :, :]
        pixels = cells.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * PATCH, columns * PATCH, 3)
        return pixels.astype(np.uint8)

    def read(self, conversation: Conversation, frames: FrameStore) -> Reading:
        """The conversation read. `frames` gives pictures as they are displayed; resizing them is done here."""
        prepared = self._prepare(conversation, frames)
        ids = prepared.inputs["input_ids"][0].numpy()
        shown = (ids == self._image_id) | (ids == self._video_id)
        with self._torch.no_grad():
            logits = self._model(**prepared.inputs, position_ids=prepared.positions).logits[0]
        return Reading(
            np.where(shown, FRAME, ids),
            prepared.positions[:, 0].numpy(),
            self._embeddings(prepared.inputs, ids),
            logits[self._torch.from_numpy(~shown)].numpy(),
        )

    def write(
        self,
        conversation: Conversation,
        frames: FrameStore,
        *,
        tokens: int,
        banned: Sequence[int],
        ends: Sequence[int],
        least: float = 0.0,
    ) -> Written:
        """The next turn, greedily: at most `tokens`, never one of `banned`, up to one of `ends`.

        Stops early where the margin falls under `least`.
        """
        prepared = self._prepare(conversation, frames)
        chosen: list[int] = []
        margin, position = float("inf"), int(prepared.positions.max()) + 1
        with self._torch.no_grad():
            out = self._model(**prepared.inputs, position_ids=prepared.positions, use_cache=True)
            while True:
                logits = out.logits[0, -1].numpy().copy()
                logits[list(banned)] = -np.inf
                second, first = np.sort(logits)[-2:]
                margin = min(margin, float(first - second) / float(np.abs(logits[np.isfinite(logits)]).max()))
                token = int(logits.argmax())
                if token in ends or margin < least:
                    break
                chosen.append(token)
                if len(chosen) == tokens:
                    break
                out = self._model(
                    input_ids=self._torch.tensor([[token]]),
                    position_ids=self._torch.full((3, 1, 1), position),
                    past_key_values=out.past_key_values,
                )
                position += 1
        return Written(tuple(chosen), margin)

    def _config(self, values: dict[str, Any]) -> dict[str, Any]:
        """config.json as 4.57 reads it; what 5.x moved goes back, and the ids of pads are the tokenizer's."""
        ids = {
            "image_token_id": self._image_id,
            "video_token_id": self._video_id,
            "vision_start_token_id": self.token("<|vision_start|>"),
            "vision_end_token_id": self.token("<|vision_end|>"),
        }
        text = dict(values.get("text_config") or {})
        if rope := text.pop("rope_parameters", None):
            text["rope_theta"] = rope["rope_theta"]
            text["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
        return {**values, **ids, **({"text_config": text} if text else {})}

    def _prepare(self, conversation: Conversation, frames: FrameStore) -> _Prepared:
        torch = self._torch
        ids: list[int] = []
        patches: dict[type, list[NDArray[np.float32]]] = {Image: [], Video: []}
        grids: dict[type, list[tuple[int, int, int]]] = {Image: [], Video: []}
        seconds: list[float] = []
        for piece in _template(conversation):
            if isinstance(piece, str):
                ids += self._tokenizer.encode(piece, add_special_tokens=False)
            elif isinstance(piece, tuple):
                ids += piece
            else:
                shown = piece.frames if isinstance(piece, Video) else (piece.frame,)
                cells, grid = self._patches(frames.pixels(shown))
                patches[type(piece)].append(cells)
                grids[type(piece)].append(grid)
                pad = self._video_id if isinstance(piece, Video) else self._image_id
                ids += [pad] * (int(np.prod(grid)) // MERGE**2)
                seconds += [piece.seconds_per_patch] if isinstance(piece, Video) else []
        inputs: dict[str, Any] = {"input_ids": torch.tensor([ids])}
        for kind, pixels, grid in (
            (Image, "pixel_values", "image_grid_thw"),
            (Video, "pixel_values_videos", "video_grid_thw"),
        ):
            if patches[kind]:
                inputs[pixels] = torch.from_numpy(np.concatenate(patches[kind]))
                inputs[grid] = torch.tensor(grids[kind])
        positions, _ = self._model.model.get_rope_index(
            inputs["input_ids"],
            inputs.get("image_grid_thw"),
            inputs.get("video_grid_thw"),
            second_per_grid_ts=torch.tensor(seconds) if seconds else None,
        )
        return _Prepared(inputs, positions)

    def _patches(self, frames: Sequence[Pixels], **steps: bool) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Flat patches of one video, or of one image, and the grid (time, rows, columns)."""
        size = dict(self._processor.size)
        settings: dict[str, Any] = {
            key: getattr(self._processor, key)
            for key in ("resample", "rescale_factor", "image_mean", "image_std", "patch_size")
        }
        settings |= {"temporal_patch_size": 2, "merge_size": MERGE, "do_resize": True}
        settings |= {"do_rescale": True, "do_normalize": True} | steps
        flat, grid = self._processor._preprocess(list(frames), size=size, **settings)
        return flat.astype(np.float32), grid

    def _embeddings(self, inputs: dict[str, Any], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of all frames, in the order shown; the reference keeps images and videos apart."""
        found = np.empty((len(ids), self._model.config.text_config.hidden_size), np.float32)
        with self._torch.no_grad():
            for pad, pixels, grid in (
                (self._image_id, "pixel_values", "image_grid_thw"),
                (self._video_id, "pixel_values_videos", "video_grid_thw"),
            ):
                if pixels in inputs:
                    found[ids == pad] = self._model.model.visual(inputs[pixels], grid_thw=inputs[grid]).numpy()
        return found[(ids == self._image_id) | (ids == self._video_id)]


def _template(conversation: Conversation) -> list[str | tuple[int, ...] | Video | Image]:
    """The ChatML of the family's published template, frames where their pads go; ends where the judge begins."""
    pieces: list[str | tuple[int, ...] | Video | Image] = []
    for message in conversation:
        text = f"<|im_start|>{message.role}\n"
        for part in message.parts:
            match part:
                case Text(said) | Generated(said, ()):
                    text += said
                case Generated(_, tokens):
                    pieces += [text, tokens]
                    text = ""
                case Video() | Image():
                    pieces += [text + "<|vision_start|>", part]
                    text = "<|vision_end|>"
        pieces.append(text + "<|im_end|>\n")
    return [*pieces, "<|im_start|>assistant\n"]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
