"""A new model is a whole checkpoint, its fast tower is the stock one, and it reads positions as the engine does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from coloured import PROFILE, SHAPE, SIZES, Frames, case, cases  # noqa: E402
from small_checkpoint import write_checkpoint  # noqa: E402

from convert.stage_outputs import FRAME, StagedBackend  # noqa: E402
from train.model import choose_weight_type, load, write_profile  # noqa: E402
from train.policy_tokenizer import PolicyTokenizer  # noqa: E402
from train.recipe import StartingModel  # noqa: E402
from train.rendering import Collator, Rendered, Renderer  # noqa: E402
from train.sft import render  # noqa: E402
from train.tiny.batched_tower import batch_frames  # noqa: E402
from train.tiny.restoring import NewModelShape, restore  # noqa: E402
from vrt_lite.disk import file_sha256  # noqa: E402
from vrt_lite.errors import ModelError  # noqa: E402
from vrt_lite.profile import Clock, default_profile, load_profile  # noqa: E402
from vrt_lite.protocol.messages import (  # noqa: E402
    FrameRef,
    Image,
    Message,
    Text,
    Video,
)

pytestmark = pytest.mark.filterwarnings("default")
STOCK = transformers.Qwen2_5_VLForConditionalGeneration


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("new") / "start", NewModelShape(**SHAPE), PROFILE, cases(4))


def _rows(tokenizer: PolicyTokenizer, numbers: range) -> list[Rendered]:
    renderer = Renderer(tokenizer, PROFILE)
    return [row for n in numbers for row in render(case(n), renderer, PROFILE)]


def _logits(model: Any, batch: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(**{k: v for k, v in batch.items() if k != "labels"}).logits


def test_a_new_model_is_a_whole_checkpoint(checkpoint: Path) -> None:
    names = {path.name for path in checkpoint.iterdir()}
    documents = {"config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "profile.toml"}
    assert names >= documents
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["text_config"]["rope_parameters"]["mrope_section"] == [4, 6, 6]
    assert config["vision_config"]["fullatt_block_indexes"] == [1]
    assert config["text_config"]["tie_word_embeddings"]
    tokenizer = PolicyTokenizer(checkpoint / "tokenizer.json")
    assert config["image_token_id"] == tokenizer.id("<|image_pad|>")
    assert config["text_config"]["eos_token_id"] == tokenizer.id("<|im_end|>")
    assert load_profile(checkpoint / "profile.toml") == PROFILE
    auto = transformers.AutoTokenizer.from_pretrained(checkpoint)
    text = 'Video 2 of 96: "é"<|im_end|>\n<tool_call>'
    assert auto.encode(text, add_special_tokens=False) == tokenizer.tokens(text, special=True)


def test_every_value_of_a_profile_comes_back(tmp_path: Path) -> None:
    captions = {"sentences": ["[a] {form}"], "form": ["star", "été"]}
    odd = replace(default_profile(), refusals={}, captions=captions)
    odd = replace(odd, name='a "b" \\ c', tool_text="tab\there\nnew", clock=Clock("fixed", 2.5, 1.25))
    write_profile(odd, tmp_path)
    assert load_profile(tmp_path / "profile.toml") == odd


def test_a_folder_without_weights_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    with pytest.raises(ModelError, match="cannot load"):
        load(tmp_path)


def _stock(checkpoint: Path) -> Any:
    return STOCK.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize(
    "grids",
    [[(1, 10, 18)] * 3, [(2, 10, 18), (2, 10, 18)], [(2, 10, 18), (1, 6, 4), (3, 18, 10), (1, 6, 4), (1, 20, 20)]],
)
def test_the_batched_tower_equals_the_stock_one(checkpoint: Path, grids: list[tuple[int, int, int]]) -> None:
    model, _ = load(checkpoint, trainable=True)
    batch_frames(model.model.visual)
    stock = _stock(checkpoint).model.visual
    torch.manual_seed(0)
    for ours, theirs in zip(model.model.visual.parameters(), stock.parameters(), strict=True):
        # Larger than new weights are, so that attention is not flat and windows matter.
        theirs.data.normal_(0, 0.1) if ours.ndim > 1 else None
        ours.data.copy_(theirs.data)
    pixels = torch.randint(0, 256, (sum(t * h * w for t, h, w in grids), 1176), dtype=torch.uint8)
    mean, std = (
        torch.tensor(values).repeat_interleave(392)
        for values in ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    )
    sizes = torch.tensor(grids)
    expected = stock((pixels / 255 - mean) / std, grid_thw=sizes).pooler_output
    found = model.model.visual(pixels, grid_thw=sizes).pooler_output
    assert (found - expected).abs().max() <= 6e-6 * expected.abs().max()
    with torch.no_grad():
        shuffled = model.model.visual(pixels.flip(0), grid_thw=sizes).pooler_output
    assert (shuffled - expected).abs().max() > 1e-2 * expected.abs().max()


def test_a_repeated_frame_is_embedded_once(checkpoint: Path) -> None:
    """Two sizes of the same pixels are different frames: 2x4 and 4x2 patches."""
    model, _ = load(checkpoint, trainable=True)
    batch_frames(model.model.visual)
    visual, count, hooked = model.model.visual, [], []
    visual.register_forward_hook(lambda *_: hooked.append(1))
    visual.blocks[0].register_forward_pre_hook(lambda _, given: count.append(len(given[0])))
    chance = torch.Generator().manual_seed(3)
    a, b = (torch.randint(0, 256, (8, 1176), generator=chance).float() for _ in range(2))
    grids = torch.tensor([(2, 2, 4), (1, 4, 2), (2, 2, 4)])
    found = visual(torch.cat([a, b, a, b, a]), grid_thw=grids).pooler_output
    assert count == [2, 1]
    assert hooked == [1]
    alone = {
        name: visual(part, grid_thw=torch.tensor([grid])).pooler_output
        for name, part, grid in (("a", a, (1, 2, 4)), ("b", b, (1, 2, 4)), ("tall a", a, (1, 4, 2)))
    }
    expected = torch.cat([alone[name] for name in ("a", "b", "tall a", "b", "a")])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    weight = visual.patch_embed.proj.weight
    gradients = [torch.autograd.grad(out.square().sum(), weight, retain_graph=True)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_bfloat16_keeps_a_change_by_one_grey_level(checkpoint: Path) -> None:
    """Bytes are normalised to about -2 to 2, where bfloat16 has steps of up to two grey levels."""
    model, _ = load(checkpoint)
    batch_frames(model.model.visual)
    embedded: list[torch.Tensor] = []
    model.model.visual.blocks[0].register_forward_pre_hook(lambda _, given: embedded.append(given[0]))
    grids = torch.tensor([[1, 2, 4]])
    held = torch.full((8, 1176), 248, dtype=torch.uint8)
    moved = held.clone()
    moved.view(8, 3, 2, 14, 14)[:, :, 1] -= 1
    for patches in (held, moved):
        model.model.visual(patches, grid_thw=grids)
        with torch.autocast("cpu", torch.bfloat16):
            model.model.visual(patches, grid_thw=grids)
    held_exactly, held_rounded, moved_exactly, moved_rounded = (found.float() for found in embedded)
    torch.testing.assert_close(moved_rounded - held_rounded, moved_exactly - held_exactly, rtol=0.05, atol=1e-6)


def test_the_model_reads_as_the_stock_one_does(checkpoint: Path) -> None:
    model, tokenizer = load(checkpoint)
    batch = Collator(tokenizer.id("<|endoftext|>"))(_rows(tokenizer, range(3)))
    stock = _stock(checkpoint)
    mean, std = (
        torch.tensor(values).repeat_interleave(392)
        for values in ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    )
    floats = {k: (v / 255 - mean) / std if k.startswith("pixel") else v for k, v in batch.items()}
    # Transformers' own positions, which the stock model computes when it is given the kinds of tokens.
    seconds = [v.seconds_per_patch for n in range(3) for v in _videos(n)]
    own = {k: v for k, v in floats.items() if k not in ("labels", "position_ids")}
    with torch.no_grad():
        expected = stock(**own, second_per_grid_ts=torch.tensor(seconds)).logits
    real = batch["attention_mask"].bool()
    difference = (_logits(model, batch) - expected).abs()[real].max()
    assert difference <= 1e-5 * expected.abs().max()


def _videos(number: int) -> list[Video]:
    from train.data import replay
    from train.rendering import segments
    from vrt_lite.protocol.messages import Generated

    example = case(number)
    visible, _ = replay(example, example.script, PROFILE)
    found = segments(visible, [Generated(r) for r in example.script])
    return [p for s in found for m in s.conversation for p in m.parts if isinstance(p, Video)]


def test_positions_reach_the_model(checkpoint: Path) -> None:
    model, tokenizer = load(checkpoint)
    batch = Collator(0)(_rows(tokenizer, range(1)))
    before = _logits(model, batch)
    for plane in range(3):
        moved = batch["position_ids"].clone()
        moved[plane] *= 2
        assert (_logits(model, {**batch, "position_ids": moved}) - before).abs().max() > 1e-4
    without = {k: v for k, v in batch.items() if k not in ("position_ids", "mm_token_type_ids")}
    with pytest.raises(AssertionError, match="no positions"):
        _logits(model, without)


def test_padding_changes_nothing(checkpoint: Path) -> None:
    model, tokenizer = load(checkpoint)
    rows = _rows(tokenizer, range(2))
    together = _logits(model, Collator(0)(rows))
    for i, row in enumerate(rows):
        alone = _logits(model, Collator(0)([row]))[0]
        assert (together[i, : len(row.ids)] - alone).abs().max() <= 2e-5 * alone.abs().max()


@pytest.mark.parametrize(("stored", "tolerance"), [("f32", 2e-3), ("f16", 2e-2)])
def test_llama_cpp_reads_the_exported_model_as_training_does(
    checkpoint: Path, tmp_path: Path, stored: str, tolerance: float
) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    from vrt_lite.conversion.convert_folder import export_pair
    from vrt_lite.machine import EngineSettings

    profile = replace(PROFILE, clock=Clock("exact", 2.0))
    text_file, projector, _ = export_pair(checkpoint, tmp_path, text_type=stored, projector_type=stored)
    model, tokenizer = load(checkpoint)
    frames = Frames((40, 200), SIZES[0])
    shown = [tuple(FrameRef(clip, i) for i in range(4)) for clip in (0, 1)]
    text = 'Which? "é" 1234567890 <|im_end|> <tool_call> 東京\n\n  x'
    parts = (Video(shown[0], 20.5), Video(shown[1], 0.7), Text("the caption: "), Text(text, trusted=False))
    conversation = (
        Message("system", (Text("Compare."),)),
        Message("user", (*parts, Image(FrameRef(1, 3)), Text(text))),
    )
    row = Renderer(tokenizer, profile).prompt(conversation, frames)
    settings = EngineSettings(gpu_layers=0, threads=1, exact=True)
    with StagedBackend(text_file, projector, profile=profile, settings=settings) as engine:
        reading = engine.evaluate_stages(conversation, frames)
    np.testing.assert_array_equal(reading.tokens, np.where(row.kinds > 0, FRAME, row.ids))
    np.testing.assert_array_equal(reading.positions, row.positions)
    ours = _logits(model, Collator(0)([row]))[0].numpy()[row.kinds == 0]
    assert np.abs(ours - reading.logits).max() <= tolerance * np.abs(ours).max()


def test_a_checkpoint_comes_back_from_its_pair(checkpoint: Path, tmp_path: Path) -> None:
    """The values that a pair stores, and so the same pair again."""
    pytest.importorskip("gguf")
    from vrt_lite.conversion.convert_folder import export_pair

    written = export_pair(checkpoint, tmp_path / "pair", text_type="q8_0", projector_type="f16", name="small")
    back = restore(NewModelShape(**SHAPE), PROFILE, str(tmp_path / "pair"), tmp_path / "back")
    again = export_pair(back, tmp_path / "again", text_type="q8_0", projector_type="f16", name="small")
    assert [file_sha256(file) for file in again] == [file_sha256(file) for file in written]
    model, tokenizer = load(checkpoint)
    restored, other = load(back)
    weights = restored.state_dict()
    for name, value in model.state_dict().items():
        assert float((weights[name] - value).abs().max()) <= 0.01 * float(value.abs().max()) + 1e-8, name
    text = 'Video 2 of 96: "é"<|im_end|>\n<tool_call>'
    assert other.tokens(text, special=True) == tokenizer.tokens(text, special=True)
    wider = NewModelShape(**{**SHAPE, "feed_forward": 128})
    with pytest.raises(ModelError, match=r"ffn_gate\.weight is .*the recipe's shape needs"):
        restore(wider, PROFILE, str(tmp_path / "pair"), tmp_path / "wider")
    assert not (tmp_path / "wider").exists()


def test_only_what_is_learned_without_copies_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    how = StartingModel(source="x")
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED", raising=False)
    assert choose_weight_type(how, learned=True, gpu=True) is torch.float32
    assert choose_weight_type(how, learned=False, gpu=True) is torch.bfloat16
    assert choose_weight_type(how, learned=False, gpu=False) is torch.float32
    exact = StartingModel(source="x", precision="float32")
    assert choose_weight_type(exact, learned=False, gpu=True) is torch.float32
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert choose_weight_type(how, learned=True, gpu=True) is torch.bfloat16
