"""The reference: transformers' Qwen2.5-VL or Qwen3-VL in F32 on the CPU, a back end that can return `StageOutputs`.

Everything here is the reference's own: its tokenizer, its image processor (the PIL one, which is what videos
went through as well when these checkpoints were trained), its vision tower, its positions, its language
model. Drawing a turn and ending it is the engine's code, so that two turns differ by their logits alone.

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

from convert.reference_frames import ReferenceFrames, ShownFrames
from convert.stage_outputs import FRAME, StageOutputs
from vrt_lite.backends.llamacpp import NEVER_WRITTEN
from vrt_lite.backends.llamacpp.decoding import Sampler, loops, odds
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import Conversation, Generated, Image, Odds, Reply, StopReason, Text, Video

ENDS = ("<|im_end|>", "<|endoftext|>")
"""Tokens that end a turn."""
_LOOP_CHECK_EVERY = 32


@dataclass(frozen=True)
class GreedyTurn:
    """Greedy tokens, and the smallest margin of a chosen token's logit over the next best, relative to the largest."""

    tokens: tuple[int, ...]
    margin: float


@dataclass(frozen=True)
class _Prepared:
    """A conversation as the model's own inputs; `positions` as the reference computes them, (3, 1, n)."""

    inputs: dict[str, Any]
    positions: Any


def load_extra() -> tuple[Any, Any]:
    """Import torch and transformers. Raises UsageError, which names the extra, if they are not installed."""
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
        self.frames = ReferenceFrames(_read_json(folder / "preprocessor_config.json"), profile)
        values = _read_json(folder / "config.json")
        self._stamps = values.get("model_type") == "qwen3_vl"
        if self._stamps and clock and clock.rule != "text":
            raise UsageError(f'The profile\'s clock is {clock.rule}, but Qwen3-VL reads times: it needs rule = "text".')
        family = "Qwen3VL" if self._stamps else "Qwen2_5_VL"
        config = getattr(transformers, f"{family}Config")(**self._config(values))
        kind = getattr(transformers, f"{family}ForConditionalGeneration")
        try:
            self._model = kind.from_pretrained(
                folder, config=config, dtype=self._torch.float32, attn_implementation="eager", local_files_only=True
            ).eval()
        except (OSError, RuntimeError, ValueError) as error:
            raise ModelError(f"transformers cannot load {folder}: {str(error).splitlines()[0]}") from error
        if clock is not None and not self._stamps:
            rate = clock.tokens_per_second * (clock.seconds_per_patch if clock.rule == "fixed" else 1)
            # The setter of 5.x accepts only whole numbers, although any number works.
            vars(self._model.config.vision_config)["tokens_per_second"] = rate
        self._banned = [self.token(name) for name in NEVER_WRITTEN]
        self._ends = [self.token(name) for name in ENDS]
        self._digits = [self.token(digit) for digit in "012"]

    def token(self, name: str) -> int:
        """Return the id of a token by its text. Raises ModelError if the vocabulary does not have it."""
        found = self._tokenizer.encode(name, add_special_tokens=False)
        if len(found) != 1:
            raise ModelError(f"The checkpoint's tokenizer has no token {name}: it is no Qwen2.5-VL model.")
        return int(found[0])

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def evaluate_stages(self, conversation: Conversation, frames: FrameStore) -> StageOutputs:
        """Read a conversation. Returns the outputs of each stage. `frames` gives pictures that are not resized yet."""
        prepared = self._prepare(conversation, frames)
        ids = prepared.inputs["input_ids"][0].numpy()
        shown = (ids == self._image_id) | (ids == self._video_id)
        with self._torch.no_grad():
            logits = self._model(**prepared.inputs, position_ids=prepared.positions).logits[0]
        return StageOutputs(
            np.where(shown, FRAME, ids),
            prepared.positions[:, 0].numpy(),
            self._embeddings(prepared.inputs, ids),
            logits[self._torch.from_numpy(~shown)].numpy(),
        )

    def write(self, conversation: Conversation, frames: FrameStore, *, tokens: int, least: float = 0.0) -> GreedyTurn:
        """Write the next turn greedily, with at most `tokens`. Stops early if the margin falls below `least`."""
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
        return GreedyTurn(tuple(chosen), margin)

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        """Write the judge's next turn, as `vrt_lite.interfaces.Backend` requires. `frames` are not resized yet.

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
        """Yield the logits after the conversation, and then after every token that is sent."""
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

    def _config(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return config.json in the layout of this transformers version, with the tokenizer's ids of pads."""
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
        seconds: list[float] = []
        everything = ShownFrames()
        for piece in _template(conversation, stamps=self._stamps):
            if isinstance(piece, str):
                ids += self._tokenizer.encode(piece, add_special_tokens=False)
            elif isinstance(piece, tuple):
                ids += piece
            else:
                shown = piece.frames if isinstance(piece, Video) else (piece.frame,)
                tokens = everything.add(piece, *self.frames.patches(frames.pixels(shown), called=shown[0].called))
                pad = self._video_id if isinstance(piece, Video) else self._image_id
                # With times each patch is a span of its own; what opens the first and closes the last is around.
                between = _between(piece) if self._stamps and isinstance(piece, Video) else [""]
                for text in between:
                    ids += [pad] * (tokens // len(between))
                    ids += self._tokenizer.encode(text, add_special_tokens=False)
                seconds += [self._clock_seconds(piece.seconds_per_patch)] if isinstance(piece, Video) else []
        inputs = {"input_ids": torch.tensor([ids]), **everything.inputs(torch)}
        return _Prepared(inputs, self._positions(inputs, seconds))

    def _clock_seconds(self, seconds: float) -> float:
        """Return a patch's seconds for this transformers version, so that it uses the profile's clock."""
        match self._clock.rule:
            case "fixed":
                return 1.0
            case "truncate":
                return float(int(seconds))
            case "exact" | "text":
                return seconds

    def _positions(self, inputs: dict[str, Any], seconds: Sequence[float]) -> Any:
        torch, ids = self._torch, inputs["input_ids"]
        kinds = {} if self._truncates else {"mm_token_type_ids": (ids == self._image_id) + 2 * (ids == self._video_id)}
        positions, _ = self._model.model.get_rope_index(
            ids,
            image_grid_thw=inputs.get("image_grid_thw"),
            video_grid_thw=inputs.get("video_grid_thw"),
            **({} if self._stamps else {"second_per_grid_ts": torch.tensor(seconds) if seconds else None}),
            **kinds,
        )
        return positions

    def _embeddings(self, inputs: dict[str, Any], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute the embeddings of all frames, in the order shown: transformers separates images and videos."""
        found: NDArray[np.float32] | None = None
        with self._torch.no_grad():
            for pad, pixels, grid in (
                (self._image_id, "pixel_values", "image_grid_thw"),
                (self._video_id, "pixel_values_videos", "video_grid_thw"),
            ):
                if pixels in inputs:
                    output: Any = self._model.model.visual(inputs[pixels], grid_thw=inputs[grid])
                    # 5.x puts what the merger gave among other things.
                    merged = getattr(output, "pooler_output", output)
                    deep = getattr(output, "deepstack_features", None) or ()
                    if self._stamps and self._truncates:
                        merged, deep = output
                    values = np.concatenate([merged.numpy(), *(extra.numpy() for extra in deep)], axis=1)
                    found = np.empty((len(ids), values.shape[1]), np.float32) if found is None else found
                    found[ids == pad] = values
        if found is None:
            return np.empty((0, self._model.config.text_config.hidden_size), np.float32)
        return found[(ids == self._image_id) | (ids == self._video_id)]


def _stamps_of(video: Video) -> list[str]:
    """Return the text before each temporal patch, as in Qwen3-VL's processor: the mean time of its two frames."""
    times = [*video.times, *video.times[-1:]] if len(video.times) % 2 else list(video.times)
    return [f"<{(a + b) / 2:.1f} seconds>" for a, b in zip(times[::2], times[1::2], strict=True)]


def _between(video: Video) -> list[str]:
    """Return what follows each temporal patch up to the next; nothing follows the last."""
    return [*(f"<|vision_end|>{stamp}<|vision_start|>" for stamp in _stamps_of(video)[1:]), ""]


def _template(conversation: Conversation, *, stamps: bool) -> list[str | tuple[int, ...] | Video | Image]:
    """Build the ChatML of the published template, with frames in place of their pads, up to the judge's turn."""
    pieces: list[str | tuple[int, ...] | Video | Image] = []
    for message in conversation:
        text = f"<|im_start|>{message.role}\n"
        for part in message.parts:
            match part:
                case Text(written) | Generated(written, ()):
                    text += written
                case Generated(_, tokens):
                    pieces += [text, tokens]
                    text = ""
                case Video() | Image():
                    text += _stamps_of(part)[0] if stamps and isinstance(part, Video) else ""
                    pieces += [text + "<|vision_start|>", part]
                    text = "<|vision_end|>"
        pieces.append(text + "<|im_end|>\n")
    return [*pieces, "<|im_start|>assistant\n"]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}.") from error
