"""What vLLM makes of our requests: its own request class, renderer, processor and positions, without its engine.

Skipped where vLLM is not: `make vllm` sets it up and runs this.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chat_server import says, serving
from judgements import FINAL, call
from numpy.typing import NDArray

from vrt_lite.backends import open_remote
from vrt_lite.judge import Pair, judge_with
from vrt_lite.profile import Clock, Profile
from vrt_lite.protocol.messages import FrameRef, shown_first
from vrt_lite.settings import Remote

vllm = pytest.importorskip("vllm", reason="vLLM is not here: make vllm")
pytest.importorskip("torch")

SIZES = ((84, 112), (196, 56))
CLOCKS = (Clock("truncate"), Clock("exact"))
LENGTHS = ((4.0, 10.0), (4.0, 9.0), (3.0, 3.0), (1.0, 61.7), (2.5, 0.4), (600.0, 7.3))


class Noise:
    """A frame store of noise: no two frames alike, and nothing that a lossy codec could keep."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        drawn = []
        for frame in frames:
            width, height = SIZES[frame.clip]
            generator = np.random.default_rng(100 * frame.clip + frame.index)
            drawn.append(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
        return drawn


def recorded(lengths: tuple[float, float], profile: Profile, version: str) -> list[dict[str, Any]]:
    """The requests of a verdict of two rounds."""
    extra = {"/version": {"version": version}}
    with (
        serving(says(call(5, 60)), says(FINAL), extra=extra) as server,
        open_remote(Remote(server.url), profile=profile) as backend,
    ):
        judge_with(Pair("A fox.", lengths), profile, backend, Noise())
        assert not backend.warnings
    return server.bodies


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """vLLM's configuration and renderer for a folder of the bundled judge."""
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    import torch
    import vllm_checkpoint
    from vllm.config import DeviceConfig, ModelConfig, VllmConfig
    from vllm.renderers.hf import HfRenderer
    from vllm.tokenizers import cached_tokenizer_from_config

    torch.set_num_threads(1)
    folder = str(vllm_checkpoint.make(tmp_path_factory.mktemp("judge") / "folder"))
    limits = {"image": 8, "video": 2}
    config = ModelConfig(
        model=folder, tokenizer=folder, max_model_len=8192, dtype="float32", limit_mm_per_prompt=limits
    )
    whole = VllmConfig(model_config=config, device_config=DeviceConfig(device="cpu"))
    return SimpleNamespace(config=config, renderer=HfRenderer(whole, cached_tokenizer_from_config(config)))


def processed(body: dict[str, Any], loaded: Any) -> Any:
    """What the model would be given: token ids, media, and the places of the media among the tokens."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request, config, renderer = ChatCompletionRequest(**body), loaded.config, loaded.renderer
    assert set(body) <= set(ChatCompletionRequest.model_fields), "vLLM knows every field"
    params = request.build_chat_params(None, "auto")
    if "default_mm_processor_kwargs" in inspect.signature(params.with_defaults).parameters:
        media = config.get_multimodal_config().media_io_kwargs
        own = request.mm_processor_kwargs
        params = params.with_defaults({}, default_media_io_kwargs=media, default_mm_processor_kwargs=own)
    _, prompt = renderer.render_messages(request.messages, params)
    if "prompt_token_ids" not in prompt:
        prompt = renderer._tokenize_prompt(prompt, request.build_tok_params(config))
    if not prompt.get("mm_processor_kwargs"):
        prompt["mm_processor_kwargs"] = request.mm_processor_kwargs
    prompt["media_io_kwargs"] = params.media_io_kwargs
    # Each request as if it were the first: what is found in a cache comes without its pixels.
    renderer.clear_mm_cache()
    return renderer._process_tokens(prompt)


def unpatched(values: Any, grid: Sequence[int]) -> NDArray[np.uint8]:
    """Frames (count, height, width, 3) out of the processor's patches, in which it has not yet scaled the colours."""
    t, h, w = (int(n) for n in grid)
    patches = np.asarray(values).reshape(t, h // 2, w // 2, 2, 2, 3, 2, 14, 14)
    frames = patches.transpose(0, 6, 1, 3, 7, 2, 4, 8, 5).reshape(2 * t, 14 * h, 14 * w, 3)
    assert np.array_equal(frames, np.round(frames))
    return frames.astype(np.uint8)


def positions_of(out: Any, loaded: Any) -> NDArray[np.int64]:
    """vLLM's positions on the three axes, shape (3, tokens)."""
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration as Model
    from vllm.multimodal.inputs import MultiModalFeatureSpec

    features = [
        MultiModalFeatureSpec(
            data=item, modality=kind, identifier="x", mm_position=out["mm_placeholders"][kind][number]
        )
        for kind, items in out["mm_kwargs"].items()
        for number, item in enumerate(items)
    ]
    shim = SimpleNamespace(config=loaded.config.hf_config)
    shim.iter_mm_grid_thw = lambda found: Model.iter_mm_grid_thw(shim, found)
    found, _ = Model.get_mrope_input_positions(shim, out["prompt_token_ids"], features)
    return np.asarray(found)


def own_positions(ids: Sequence[int], media: Sequence[tuple[int, tuple[int, ...], int, int]]) -> NDArray[np.int64]:
    """Ours: text advances by one; a video or an image has its steps, rows and columns, and ends at the largest."""
    parts: list[NDArray[np.int64]] = []
    start = at = 0
    for offset, steps, rows, columns in [*media, (len(ids), (), 0, 0)]:
        parts.append(np.tile(np.arange(start, start + offset - at), (3, 1)))
        start += offset - at
        t, y, x = np.meshgrid(np.array(steps), np.arange(rows), np.arange(columns), indexing="ij")
        parts.append(start + np.stack([t.ravel(), y.ravel(), x.ravel()]).astype(np.int64))
        start += max(*steps, rows - 1, columns - 1) + 1 if steps else 0
        at = offset + len(steps) * rows * columns
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.rule)
@pytest.mark.parametrize("first_frames", [4, 5, 6])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_vllm_shows_the_same_pixels_at_the_same_positions(
    lengths: tuple[float, float], first_frames: int, clock: Clock, loaded: Any
) -> None:
    profile, pair = Profile(clock=clock, first_frames=first_frames), Pair("A fox.", lengths)
    for body in recorded(lengths, profile, vllm.__version__):
        out = processed(body, loaded)
        media: list[tuple[int, tuple[int, ...], int, int]] = []
        for clip in (0, 1):
            item = out["mm_kwargs"]["video"][clip]
            shown = shown_first(profile.workspace, first_frames, clip)
            wanted = Noise().pixels(shown)
            wanted += wanted[-1:] * (len(wanted) % 2)  # The last of an odd number fills its patch alone.
            frames = unpatched(item["pixel_values_videos"].data, item["video_grid_thw"].data)
            assert np.array_equal(frames, np.stack(wanted)), "neither sampled nor resized, and no colour changed"
            steps = clock.steps(len(wanted) // 2, pair.seconds_per_patch(clip, shown, profile.workspace))
            width, height = SIZES[clip]
            offset = out["mm_placeholders"]["video"][clip].offset
            media.append((offset, steps, height // 28, width // 28))
        for number, frame in enumerate((FrameRef(0, 4), FrameRef(1, 11))):
            if "image" in out["mm_kwargs"]:
                item = out["mm_kwargs"]["image"][number]
                frames = unpatched(item["pixel_values"].data, item["image_grid_thw"].data)
                assert np.array_equal(frames[0], Noise().pixels([frame])[0])
                width, height = SIZES[frame.clip]
                media.append((out["mm_placeholders"]["image"][number].offset, (0,), height // 28, width // 28))
        ours = own_positions(out["prompt_token_ids"], sorted(media))
        assert np.array_equal(positions_of(out, loaded), ours)
