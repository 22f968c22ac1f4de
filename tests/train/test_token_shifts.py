"""Shifts change the scores of faults by the same amount in all videos of a row, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("skimage")

from coloured import RECIPE, SUPERVISED, cases  # noqa: E402

from train.cell_words import cell_word_ids  # noqa: E402
from train.lesson_rows import LessonCollator, RepliedCases, render  # noqa: E402
from train.policy.model import load  # noqa: E402
from train.policy.rendering import Renderer  # noqa: E402
from train.recipe import Supervised  # noqa: E402
from train.supervised import supervise  # noqa: E402
from train.token_shifts import TokenShifter, draw_shifts  # noqa: E402
from train.world.labelled_patches import MARKS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def test_what_a_row_shows_is_shifted_alike_and_a_row_without_a_seed_not_at_all(start: Path) -> None:
    _, tokenizer = load(RECIPE, start, trainable=False)
    renderer = Renderer(tokenizer, RECIPE.profile)
    rows = render(cases(1)[0], cases(1)[0].script, renderer, RECIPE.profile) * 3
    seeds = [[1], None, [2]] * (len(rows) // 3)
    shifts = draw_shifts(rows, seeds, most=2.0)["video_shifts"]
    assert shifts.shape == (sum(len(row.video_grids) for row in rows), len(MARKS))
    count = len(rows[0].video_grids)
    assert count == 2
    assert torch.equal(shifts[0], shifts[1])
    assert not shifts[0].eq(0).any()
    many = draw_shifts(rows[:1] * 2000, [[seed] for seed in range(2000)], most=2.0)["video_shifts"]
    assert float(many.square().mean()) == pytest.approx(4 / 3, rel=0.1)  # a deviation of 0 to 2
    assert float(many.mean()) == pytest.approx(0, abs=0.05)


def test_scores_of_faults_are_shifted_by_what_is_given(start: Path) -> None:
    model, tokenizer = load(RECIPE, start, trainable=False)
    torch.nn.init.normal_(model.get_input_embeddings().weight)
    shifter = TokenShifter(model, tokenizer, gain=4.0)
    grids = torch.tensor([[2, 4, 6], [1, 6, 4]])
    pixels = torch.randint(0, 256, (72, 1176), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ids = cell_word_ids(tokenizer)[-len(MARKS) :]
    alone = [ids.count(number) == 1 for number in ids]  # in a small vocabulary two words may begin with the same token
    words = model.get_input_embeddings().weight[ids] / 4
    plain = model.model.visual(pixels, grid_thw=grids).pooler_output
    shifts = torch.stack([torch.linspace(-3, 3, len(MARKS)), torch.zeros(len(MARKS))])
    shifter.waiting = [shifts]
    shifted = model.model.visual(pixels, grid_thw=grids).pooler_output
    found = (shifted - plain) @ words.T
    assert any(alone)
    assert not shifter.waiting
    assert torch.equal(model.model.visual(pixels, grid_thw=grids).pooler_output, plain)
    torch.testing.assert_close(found[:12, alone], shifts[:1, alone].expand(12, -1), rtol=1e-3, atol=1e-3)
    assert torch.equal(shifted[12:], plain[12:])
    outside = torch.linalg.svd(words, full_matrices=True)[2][len(set(ids)) :]
    assert float(((shifted - plain) @ outside.T).abs().max()) < 1e-3


@pytest.mark.parametrize(("key", "moved"), [("footage:train:1", True), ("world:1", False)])
def test_only_rows_of_footage_are_shifted(start: Path, key: str, moved: bool) -> None:
    _, tokenizer = load(RECIPE, start, trainable=False)
    keyed = [replace(case, key=f"{key}{number}") for number, case in enumerate(cases(2))]
    recipe = replace(SUPERVISED, shift=2.0, orders=2, snapshots=1)
    collate = LessonCollator(RepliedCases(keyed, None), tokenizer, RECIPE, recipe, None)
    batch = collate([{"lesson": 0}, {"lesson": 1}])
    for kind in ("image", "video"):
        shifts = batch[f"{kind}_shifts"]
        assert len(shifts) == len(batch[f"{kind}_grid_thw"])
        assert bool((shifts != 0).all()) == bool((shifts != 0).any()) == moved
        assert torch.equal(shifts, collate([{"lesson": 0}, {"lesson": 1}])[f"{kind}_shifts"])
    assert len(batch["short_video_shifts"]) == len(batch["short_video_grid_thw"])
    assert not batch["short_video_shifts"].any()  # these are of the world


def test_a_shift_is_learnt_with_and_leaves_examinations_alone(start: Path, tmp_path: Path) -> None:
    """Losses differ, and no shift is left behind after a forward."""
    keyed = [replace(case, key=f"footage:train:{number}") for number, case in enumerate(cases(8))]

    def losses(name: str, recipe: Supervised) -> list[float]:
        assert supervise(recipe, keyed, start=start, run=tmp_path / name, recipe_all=RECIPE)
        return [json.loads(line)["loss"] for line in (tmp_path / name / "log.jsonl").read_text("utf-8").splitlines()]

    plain, shifted = losses("plain", SUPERVISED), losses("shifted", replace(SUPERVISED, shift=20.0, snapshots=1))
    assert shifted != pytest.approx(plain, rel=1e-4)
    halves = losses("halves", replace(SUPERVISED, shift=20.0, snapshots=1, batch=1, accumulation=4))
    assert halves == pytest.approx(shifted, rel=1e-4)
