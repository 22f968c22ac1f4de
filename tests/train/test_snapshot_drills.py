"""A snapshot drill is the beginning of a whole trace, and its loss is beside that of traces however a step is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("skimage")

from coloured import RECIPE, SUPERVISED, cases  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.lesson_rows import render  # noqa: E402
from train.patch_drills import render_patch  # noqa: E402
from train.policy.policy_tokenizer import PolicyTokenizer  # noqa: E402
from train.policy.rendering import Renderer  # noqa: E402
from train.recipe import Data  # noqa: E402
from train.snapshot_drills import render_snapshot, snapshot_cases  # noqa: E402
from train.supervised import supervise  # noqa: E402
from train.world.draw import COLOURS, DIRECTIONS, FORMS  # noqa: E402
from train.world.labelled_patches import NOTHING, draw_labelled_patch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def test_a_drill_is_the_beginning_of_the_trace_of_another_caption(start: Path) -> None:
    tokenizer, profile = PolicyTokenizer(start / "tokenizer.json"), RECIPE.profile
    renderer = Renderer(tokenizer, profile)
    one = next(case for case in snapshot_cases(Data(), 20) if "shape" in case.pair.caption or "moves" in case.script[0])
    drill = render_snapshot(one, tokenizer, renderer, profile)
    shown = tokenizer.text(drill.ids[~drill.learned].tolist())
    caption = shown.split("Prompt: ")[1].split("\nBetter?")[0]
    assert one.pair.caption not in shown or not one.pair.caption
    other = replace(one, pair=replace(one.pair, caption=caption))
    whole = render(other, one.script, renderer, profile)[0]
    count = len(drill.ids)
    np.testing.assert_array_equal(drill.positions, whole.positions[:, :count])
    np.testing.assert_array_equal(drill.ids[~drill.learned], whole.ids[:count][~drill.learned])
    text = tokenizer.text(drill.ids[drill.learned].tolist())
    assert text.startswith("<snapshot>")
    assert text.endswith("</snapshot>\n")
    assert one.script[0].startswith(text)
    assert drill.learned[-1]
    assert len(drill.video_grids) == 2


def test_a_later_drill_is_the_last_turn_without_those_before_it(start: Path) -> None:
    tokenizer, profile = PolicyTokenizer(start / "tokenizer.json"), RECIPE.profile
    renderer = Renderer(tokenizer, profile)
    one = next(case for case in cases(8) if len(case.script) > 1)
    drill = render_snapshot(one, tokenizer, renderer, profile, later=True)
    text = tokenizer.text(drill.ids[drill.learned].tolist())
    assert one.script[-1].startswith(text)
    assert text.endswith("</snapshot>\n")
    whole = render(one, one.script, renderer, profile)[-1]
    shown, every = (np.concatenate([row.video_patches, row.image_patches]) for row in (drill, whole))
    np.testing.assert_array_equal(shown, every[len(every) - len(shown) :])
    assert len(shown) > 0
    assert len(drill.ids) < len(whole.ids)
    assert tokenizer.text(drill.ids[~drill.learned].tolist()).count("<|im_start|>") == 2


def test_the_lines_of_a_patch_drill_are_about_its_shapes(start: Path) -> None:
    tokenizer = PolicyTokenizer(start / "tokenizer.json")
    renderer = Renderer(tokenizer, RECIPE.profile)
    seen = 0
    for seed in range(12):
        drill, patch = render_patch(seed, tokenizer, renderer), draw_labelled_patch(seed)
        text = tokenizer.text(drill.ids[drill.learned].tolist())
        lines = [line.split() for line in text.splitlines()]
        assert tokenizer.text(drill.ids.tolist()).endswith(f"<snapshot>\n{text}")
        options = ((*COLOURS,), FORMS, (*DIRECTIONS,))
        looks = {tuple(look) for look in patch.looks.tolist() if look[0] != NOTHING}
        named = [tuple(options[i].index(word) for i, word in enumerate((line[3], line[4], line[6]))) for line in lines]
        colours = [look[0] for look in looks]
        assert set(named) == {look for look in looks if colours.count(look[0]) == 1}
        assert len(named) == len(set(named))
        assert drill.video_grids.shape == (1, 3)
        assert len(drill.ids) == drill.positions.shape[1] == len(drill.kinds)
        seen += len(named)
    assert seen > 12


@pytest.mark.parametrize("kind", ["snapshots", "patches"])
def test_drills_have_a_loss_beside_the_traces(start: Path, tmp_path: Path, kind: str) -> None:
    def losses(run: str, **changes: int) -> list[float]:
        recipe = replace(SUPERVISED, **changes)
        assert supervise(recipe, cases(8), start=start, run=tmp_path / run, recipe_all=RECIPE)
        return [json.loads(line)["loss"] for line in (tmp_path / run / "log.jsonl").read_text("utf-8").splitlines()]

    plain, drilled = losses("plain"), losses("drilled", **{kind: 1})
    assert drilled[0] > plain[0] + 1
    assert losses("cut", **{kind: 1}, batch=1, accumulation=4) == pytest.approx(drilled, rel=1e-5)
    found = [load_file(tmp_path / run / "model" / "model.safetensors") for run in ("plain", "drilled")]
    assert any(not torch.equal(found[0][name], found[1][name]) for name in found[0])
