"""Labelled patches show shapes where their labels say, and the tower's tokens learn the words of their own cells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("skimage")

from coloured import PRETRAINED, RECIPE, cases  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.cell_words import amplify_words, cell_loss, cell_word_ids, collate_patches, measure_change, patch_loss  # noqa: E402
from train.policy.model import create_checkpoint, load  # noqa: E402
from train.pretrain import pretrain  # noqa: E402
from train.world.draw import COLOURS, DIRECTIONS, FORMS  # noqa: E402
from train.world.labelled_patches import MARKS, NOTHING, UNKNOWN, LabelledPatch, draw_labelled_patch  # noqa: E402
from vrt_lite.profile import CELL  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def drawn() -> list[LabelledPatch]:
    return [draw_labelled_patch(seed) for seed in range(50)]


def test_a_seed_gives_the_same_patch_and_another_seed_another() -> None:
    first, again, other = (draw_labelled_patch(seed) for seed in (3, 3, 4))
    for one, same in zip(first.pictures, again.pictures, strict=True):
        np.testing.assert_array_equal(one, same)
    assert first.pictures[0].shape != other.pictures[0].shape or (first.pictures[0] != other.pictures[0]).any()


def test_the_label_of_a_cell_is_the_colour_that_it_shows(drawn: list[LabelledPatch]) -> None:
    """Without a fault and without a ghost, most covered cells have pixels of their label's colour.

    Labels are boxes, whose corners a star does not reach.
    """
    right = total = 0
    for patch in drawn:
        if (patch.marks == 1).any():
            continue
        pictures = np.stack(patch.pictures).astype(float) / 255
        height, width = pictures.shape[1:3]
        cells = pictures.reshape(2, height // 28, 28, width // 28, 28, 3).transpose(1, 3, 0, 2, 4, 5)
        for cell, looks in zip(cells.reshape(-1, 2 * 28 * 28, 3), patch.looks, strict=True):
            if looks[0] != NOTHING:
                near = np.abs(cell - np.array([*COLOURS.values()][looks[0]])).max(1) < 0.2
                right, total = right + (near.mean() > 0.05), total + 1
    assert total > 40
    assert right / total > 0.75


def test_all_looks_faults_and_ghosts_occur_and_labels_are_in_their_ranges(drawn: list[LabelledPatch]) -> None:
    looks = np.concatenate([patch.looks for patch in drawn])
    for column, options in enumerate((COLOURS, FORMS, DIRECTIONS)):
        assert set(looks[:, column]) == {NOTHING, *range(len(options))}
    assert ((looks == NOTHING).all(1) == (looks == NOTHING).any(1)).all()
    holds = {word for patch in drawn for word, held in zip(MARKS, (patch.marks == 1).any(0), strict=True) if held}
    assert holds == {"ghosts", "blur", "noise", "blocks", "banding", "haze", "halos"}
    assert all((patch.marks[:, MARKS.index("still")] == UNKNOWN).all() for patch in drawn)
    assert 0.1 < np.mean([(patch.marks[:, 0] == 1).any() for patch in drawn]) < 0.6
    for patch in drawn:
        height, width = patch.pictures[0].shape[:2]
        assert patch.looks.shape == (height * width // CELL**2, 3)
        assert patch.marks.shape == (len(patch.looks), len(MARKS))


def test_the_loss_is_a_sum_of_means_over_the_tokens_of_each_patch(drawn: list[LabelledPatch]) -> None:
    """Tokens that score exactly their own words have a small loss; with the labels of others it is large."""
    some = drawn[:6]
    batch = collate_patches([[patch] for patch in some])
    words = len(COLOURS) + len(FORMS) + len(DIRECTIONS) + len(MARKS)
    tokens = torch.full((len(batch["patch_looks"]), words), -20.0)
    covered = batch["patch_looks"][:, 0] != NOTHING
    for column, start in enumerate((0, len(COLOURS), len(COLOURS) + len(FORMS))):
        tokens[covered, start + batch["patch_looks"][covered, column]] = 20.0
    marks = tokens[:, words - len(MARKS) :]
    marks[batch["patch_marks"] != 0] = 20.0  # a word that may hold has no loss
    vectors = torch.eye(words)
    assert float(cell_loss(tokens, vectors, batch)) < 1e-4
    alone = sum(
        float(cell_loss(torch.zeros(len(patch.looks), words), vectors, collate_patches([[patch]]))) for patch in some
    )
    assert float(cell_loss(torch.zeros_like(tokens), vectors, batch)) == pytest.approx(alone, rel=1e-5)
    assert float(cell_loss(tokens.roll(3, 1), vectors, batch)) > 20 * len(some)


def test_a_copy_has_to_score_its_fault_higher_than_the_same_frames_without_it(drawn: list[LabelledPatch]) -> None:
    """What both have in common adds nothing, and a word that may hold has no part in it."""
    words = len(COLOURS) + len(FORMS) + len(DIRECTIONS) + len(MARKS)
    first = words - len(MARKS)
    clean = replace(drawn[0], looks=np.full_like(drawn[0].looks, NOTHING), marks=np.zeros_like(drawn[0].marks))
    marks = clean.marks.copy()
    marks[:, MARKS.index("blur")], marks[:, MARKS.index("still")] = 1, UNKNOWN
    faulty, count = replace(clean, marks=marks, clean=-1), len(clean.marks)

    def loss(scores: dict[str, float], *, common: float = 0.0, clean_at: int = -1) -> float:
        tokens = torch.zeros(2 * count, words)
        for word, score in scores.items():
            tokens[:, first + MARKS.index(word)] = common
            tokens[count:, first + MARKS.index(word)] += score
        return float(cell_loss(tokens, torch.eye(words), collate_patches([[clean, replace(faulty, clean=clean_at)]])))

    def compared(scores: dict[str, float], *, common: float = 0.0) -> float:
        return loss(scores, common=common) - loss(scores, common=common, clean_at=0)

    right, nothing, wrong = (compared({"blur": score}) for score in (3.0, 0.0, -3.0))
    assert right < 0.01 < nothing == pytest.approx(np.log(2) / 2, rel=1e-4)
    assert wrong > 2
    assert compared({"blur": 3.0}, common=-5.0) == pytest.approx(right, abs=1e-4)
    assert compared({"blur": 3.0, "still": -9.0, "noise": 9.0}) == pytest.approx(right, abs=1e-4)


def test_patches_of_a_seed_share_its_weight(drawn: list[LabelledPatch]) -> None:
    words = len(COLOURS) + len(FORMS) + len(DIRECTIONS) + len(MARKS)
    tokens = torch.randn(len(drawn[0].looks), words, generator=torch.Generator().manual_seed(0))
    once = cell_loss(tokens, torch.eye(words), collate_patches([drawn[:1]]))
    thrice = cell_loss(tokens.repeat(3, 1), torch.eye(words), collate_patches([drawn[:1] * 3]))
    assert float(thrice) == pytest.approx(float(once), rel=1e-5)


def test_a_change_counts_in_patches_without_faults_unless_it_names_a_fault(drawn: list[LabelledPatch]) -> None:
    words = len(COLOURS) + len(FORMS) + len(DIRECTIONS) + len(MARKS)
    vectors, count = torch.eye(words + 2)[:words], len(drawn[0].looks)
    batch = collate_patches([[drawn[0], replace(drawn[0], clean=-1)]])

    class Tower:
        """A tower whose tokens of each patch are given."""

        def __init__(self, tokens: torch.Tensor) -> None:
            self.tokens = tokens

        def to(self, _: object) -> Tower:
            return self

        def __call__(self, _: object, *, grid_thw: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(pooler_output=self.tokens[: len(grid_thw) * count])

    def change(where: slice, axis: int) -> float:
        tokens = torch.zeros(2 * count, words + 2)
        tokens[where, axis] = 10.0
        kept = patch_loss(Tower(tokens), vectors, batch, before=Tower(torch.zeros_like(tokens)), keep=1.0)
        return float(kept - patch_loss(Tower(tokens), vectors, batch))

    clean, copy = slice(0, count), slice(count, None)
    assert change(clean, words) == pytest.approx(0.5)
    assert change(clean, 0) == pytest.approx(0.5)
    assert change(copy, words) == change(clean, words - 1) == 0


def test_pretraining_stays_near_its_source_with_keep(tmp_path: Path) -> None:
    start = create_checkpoint(RECIPE, tmp_path / "start", cases(8))
    learnt = replace(PRETRAINED, model=replace(PRETRAINED.model, source=str(start)))

    def change(keep: float) -> float:
        recipe = replace(learnt, pretrain=replace(learnt.pretrain, patches=1, epochs=6, keep=keep))
        assert pretrain(recipe, cases(8), start=start, run=tmp_path / f"run{keep}")
        batch = collate_patches([[draw_labelled_patch(seed)] for seed in range(4)])
        models = [load(RECIPE, folder, trainable=False) for folder in (start, tmp_path / f"run{keep}" / "model")]
        before, after = (
            model.model.visual(batch["patch_pixels"], grid_thw=batch["patch_grids"]).pooler_output
            for model, _ in models
        )
        vectors = models[0][0].get_input_embeddings().weight[cell_word_ids(models[0][1])]
        return float(measure_change(after, before, vectors, batch["patch_grids"]).sum())

    free, kept = change(0.0), change(100.0)
    assert kept < 0.8 * free


def test_pretraining_learns_cells_however_a_step_is_cut(tmp_path: Path) -> None:
    start = create_checkpoint(RECIPE, tmp_path / "start", cases(8))

    def losses(run: str, **changes: int) -> list[float]:
        recipe = replace(PRETRAINED, pretrain=replace(PRETRAINED.pretrain, **changes))
        assert pretrain(recipe, cases(8), start=start, run=tmp_path / run)
        return [json.loads(line)["loss"] for line in (tmp_path / run / "log.jsonl").read_text("utf-8").splitlines()]

    plain, whole = losses("plain"), losses("whole", patches=1)
    assert whole[0] > plain[0] + 1
    assert losses("cut", patches=1, batch=1, accumulation=4) == pytest.approx(whole, rel=1e-5)
    found = [load_file(tmp_path / run / "model" / "model.safetensors") for run in ("plain", "whole")]
    assert any(not torch.equal(found[0][name], found[1][name]) for name in found[0] if "visual." in name)


def test_words_of_tokens_are_amplified_and_the_rest_stays(tmp_path: Path) -> None:
    """Differences between tokens that name words grow by the gain; those across them, and the mean token, stay."""
    start = create_checkpoint(RECIPE, tmp_path / "start", cases(8))
    model, tokenizer = load(RECIPE, start, trainable=True)
    batch = collate_patches([[draw_labelled_patch(seed)] for seed in range(4)])
    pixels, grids = batch["patch_pixels"], batch["patch_grids"]
    visual, vectors = model.model.visual, model.get_input_embeddings().weight.detach()[cell_word_ids(tokenizer)]
    with torch.no_grad():
        before = visual(pixels, grid_thw=grids).pooler_output
        amplify_words(visual, vectors, pixels, grids, gain=4.0)
        after = visual(pixels, grid_thw=grids).pooler_output
    torch.testing.assert_close(after.mean(0), before.mean(0), rtol=0, atol=1e-4)
    colours = vectors[: len(COLOURS)] - vectors[: len(COLOURS)].mean(0)
    apart = [(tokens - tokens.mean(0)) @ colours.T for tokens in (before, after)]
    torch.testing.assert_close(apart[1], 4 * apart[0], rtol=1e-3, atol=1e-4)
    changed = after - before
    outside = torch.linalg.svd(vectors, full_matrices=True)[2][len(vectors) :]
    assert float((changed @ outside.T).abs().max()) < 1e-3 * float(changed.abs().max())
