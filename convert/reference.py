"""The reference: transformers' Qwen2.5-VL in F32 on the CPU, a back end that gives the engine's `Reading` as well.

Everything here is the reference's own: its tokenizer, its image processor (the PIL one, which is what videos
went through as well when these checkpoints were trained), its vision tower, its positions, its language
model. How a turn is drawn and ended is the engine's, so that two turns differ by their logits alone. Of vrt-lite it
knows what a conversation is, and refuses to know how an engine evaluates one.

Two generations of transformers, told apart by what they do with time. 4.57, which these checkpoints were trained
around, casts a patch's seconds to an integer: the profile's "truncate". 5.x multiplies first: "exact"; and its next
position after a video ignores t, so that positions are the engine's only while t stays below rows or columns.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrt_lite.backends.llamacpp import NEVER_WRITTEN
from vrt_lite.backends.llamacpp.reading import FRAME, Reading
from vrt_lite.backends.llamacpp.sampling import Sampler, loops, odds
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import Conversation, Generated, Image, Odds, Reply, StopReason, Text, Video

PATCH, MERGE = 14, 2
ENDS = ("<|im_end|>", "<|endoftext|>")
"""Tokens that end a turn."""
_LOOP_CHECK_EVERY = 32
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
    if transformers.__version__.partition(".")[0] not in ("4", "5"):
        raise UsageError(f"transformers is {transformers.__version__}, needs 4.57 to 5.x: install '.[parity]' anew.")
    return torch, transformers


class Reference:
    """A checkpoint folder, loaded by transformers; the pixel ranges are the profile's, as is the clock, if given.

    Raises ModelError for a checkpoint that transformers cannot load, UsageError for a clock that it does not know.
    """

    def __init__(self, folder: Path, *, profile: Profile, clock: Clock | None = None) -> None:
        self._torch, transformers = load_extra()
        self.version = str(transformers.__version__)
        self._truncates = self.version.startswith("4.")
        self._clock = clock or Clock("truncate" if self._truncates else "exact")
        if self._clock.rule == "exact" and self._truncates:
            raise UsageError(f"The profile's clock is exact, transformers {self.version} truncates: install 5.x.")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self._image_id, self._video_id = self.token("<|image_pad|>"), self.token("<|video_pad|>")
        mine = _read_json(folder / "preprocessor_config.json")
        colours = {key: mine[key] for key in ("image_mean", "image_std")}
        ranges = ((profile.min_pixels, profile.max_pixels), (profile.tool_min_pixels, profile.tool_max_pixels))
        self._processors = [
            self._image_processor()(**colours, min_pixels=least, max_pixels=most) for least, most in ranges
        ]
        config = transformers.Qwen2_5_VLConfig(**self._config(_read_json(folder / "config.json")))
        kind = transformers.Qwen2_5_VLForConditionalGeneration
        try:
            self._model = kind.from_pretrained(
                folder, config=config, dtype=self._torch.float32, attn_implementation="eager", local_files_only=True
            ).eval()
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(f"transformers cannot load {folder}: {str(error).splitlines()[0]}") from error
        if clock is not None:
            rate = clock.tokens_per_second * (clock.seconds_per_patch if clock.rule == "fixed" else 1)
            # Past its setter: 5.x allows whole numbers only, and multiplies by any.
            vars(self._model.config.vision_config)["tokens_per_second"] = rate
        self._banned = [self.token(name) for name in NEVER_WRITTEN]
        self._ends = [self.token(name) for name in ENDS]
        self._digits = [self.token(digit) for digit in "012"]

    def token(self, name: str) -> int:
        """The id of a token by its text; ModelError if the vocabulary lacks it."""
        found = self._tokenizer.encode(name, add_special_tokens=False)
        if len(found) != 1:
            raise ModelError(f"The checkpoint's tokenizer has no token {name}: it is no Qwen2.5-VL model.")
        return int(found[0])

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def resized(self, frame: Pixels, *, called: bool = False) -> Pixels:
        """A frame, shown first or `called` by the tool, before the processor normalises it: (height, width, 3)."""
        patches, grid = self._patches([frame, frame], called=called, do_rescale=False, do_normalize=False)
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

    def write(self, conversation: Conversation, frames: FrameStore, *, tokens: int, least: float = 0.0) -> Written:
        """The next turn, greedily, of at most `tokens`; stops early where the margin falls under `least`."""
        turn = self._turn(conversation, frames)
        sampler = Sampler(temperature=0.0, seed=0, banned=self._banned)
        chosen: list[int] = []
        margin = float("inf")
        logits = next(turn)
        while True:
            token = sampler.pick(logits)
            second, first = np.sort(logits)[-2:]
            margin = min(margin, float(first - second) / float(np.abs(logits[np.isfinite(logits)]).max()))
            if token in self._ends or margin < least:
                break
            chosen.append(token)
            if len(chosen) == tokens:
                break
            logits = turn.send(token)
        return Written(tuple(chosen), margin)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """The judge's next turn, as `vrt_lite.interfaces.Backend` has it; `frames` are displayed ones, as in `read`.

        It holds nothing from one turn to the next and tells `observe` nothing.
        """
        turn = self._turn(conversation, frames)
        sampler = Sampler(temperature=sampling.temperature, seed=sampling.seed, banned=self._banned)
        tokens: list[int] = []
        digits: dict[int, Odds] = {}
        text = ""
        stop: StopReason = "limit"
        logits = next(turn)
        while True:
            token = sampler.pick(logits)
            if token in self._ends:
                stop = "end"
                break
            tokens.append(token)
            text = self.text(tokens)
            if token in self._digits:
                digits[len(text) - 1] = odds(logits, self._digits)
            if sampling.concluded(text):
                stop = "end"
                break
            if len(tokens) % _LOOP_CHECK_EVERY == 0 and loops(tokens):
                stop = "loop"
                break
            if len(tokens) == sampling.max_new_tokens:
                break
            logits = turn.send(token)
        return Reply(text, tuple(tokens), stop, digits)

    def _turn(self, conversation: Conversation, frames: FrameStore) -> Generator[NDArray[np.float32], int, None]:
        """What follows the conversation, and then every token that is sent: logits over the vocabulary."""
        prepared = self._prepare(conversation, frames)
        position = int(prepared.positions.max()) + 1
        inputs = {**prepared.inputs, "position_ids": prepared.positions, "use_cache": True, "logits_to_keep": 1}
        while True:
            with self._torch.no_grad():
                out = self._model(**inputs)
            token = yield out.logits[0, -1].numpy().copy()
            inputs = {
                "input_ids": self._torch.tensor([[token]]),
                "position_ids": self._torch.full((3, 1, 1), position),
                "past_key_values": out.past_key_values,
            }
            position += 1

    def _image_processor(self) -> Any:
        """The class that resizes with PIL; 5.x keeps the plain name for one that resizes with torchvision."""
        package = "transformers.models.qwen2_vl"
        if self._truncates:
            return importlib.import_module(f"{package}.image_processing_qwen2_vl").Qwen2VLImageProcessor
        return importlib.import_module(f"{package}.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil

    def _config(self, values: dict[str, Any]) -> dict[str, Any]:
        """config.json as this transformers reads it, old layout or new; the ids of pads are the tokenizer's."""
        ids = {
            "image_token_id": self._image_id,
            "video_token_id": self._video_id,
            "vision_start_token_id": self.token("<|vision_start|>"),
            "vision_end_token_id": self.token("<|vision_end|>"),
        }
        text = dict(values.get("text_config") or {})
        if self._truncates and (rope := text.pop("rope_parameters", None)):
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
                cells, grid = self._patches(frames.pixels(shown), called=shown[0].called)
                patches[type(piece)].append(cells)
                grids[type(piece)].append(grid)
                pad = self._video_id if isinstance(piece, Video) else self._image_id
                ids += [pad] * (int(np.prod(grid)) // MERGE**2)
                seconds += [self._told(piece.seconds_per_patch)] if isinstance(piece, Video) else []
        inputs: dict[str, Any] = {"input_ids": torch.tensor([ids])}
        for kind, pixels, grid in (
            (Image, "pixel_values", "image_grid_thw"),
            (Video, "pixel_values_videos", "video_grid_thw"),
        ):
            if patches[kind]:
                inputs[pixels] = torch.from_numpy(np.concatenate(patches[kind]))
                inputs[grid] = torch.tensor(grids[kind])
        return _Prepared(inputs, self._positions(inputs, seconds))

    def _told(self, seconds: float) -> float:
        """A patch's seconds, so that this transformers keeps the profile's clock; a fixed one is in its rate."""
        match self._clock.rule:
            case "fixed":
                return 1.0
            case "truncate":
                return float(int(seconds))
            case "exact":
                return seconds

    def _positions(self, inputs: dict[str, Any], seconds: Sequence[float]) -> Any:
        torch, ids = self._torch, inputs["input_ids"]
        kinds = {} if self._truncates else {"mm_token_type_ids": (ids == self._image_id) + 2 * (ids == self._video_id)}
        positions, _ = self._model.model.get_rope_index(
            ids,
            image_grid_thw=inputs.get("image_grid_thw"),
            video_grid_thw=inputs.get("video_grid_thw"),
            second_per_grid_ts=torch.tensor(seconds) if seconds else None,
            **kinds,
        )
        return positions

    def _patches(
        self, frames: Sequence[Pixels], *, called: bool, **steps: bool
    ) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Flat patches of one video, or of one image, and the grid (time, rows, columns).

        The processor gets every frame as an image, which it shows twice; of every two frames the halves are joined.
        """
        shown: list[NDArray[np.float32]] = []
        rows = columns = 0
        for frame in frames:
            done = self._processors[called].preprocess([frame], return_tensors="np", **steps)
            _, rows, columns = map(int, done["image_grid_thw"][0])
            shown.append(done["pixel_values"].reshape(rows * columns, 3, 2, PATCH**2)[:, :, 0])
        shown += shown[-1:] * (len(shown) % 2)
        pairs = [np.stack(shown[i : i + 2], axis=2) for i in range(0, len(shown), 2)]
        flat = np.concatenate(pairs).reshape(-1, 3 * 2 * PATCH**2)
        return flat.astype(np.float32), (len(pairs), rows, columns)

    def _embeddings(self, inputs: dict[str, Any], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of all frames, in the order shown; the reference keeps images and videos apart."""
        found = np.empty((len(ids), self._model.config.text_config.hidden_size), np.float32)
        with self._torch.no_grad():
            for pad, pixels, grid in (
                (self._image_id, "pixel_values", "image_grid_thw"),
                (self._video_id, "pixel_values_videos", "video_grid_thw"),
            ):
                if pixels in inputs:
                    seen = self._model.model.visual(inputs[pixels], grid_thw=inputs[grid])
                    # 5.x puts what the merger gave among other things.
                    found[ids == pad] = getattr(seen, "pooler_output", seen).numpy()
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
