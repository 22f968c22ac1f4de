"""Pretrains the vision tower of a new model, before the model learns to write.

VR-Thinker starts with a tower that was trained on millions of pictures. A new tower would learn very little from
traces, because only few words of a trace depend on pictures. So it first learns from the frames of one clip in one
turn, and from the line of the script's snapshot about them:

* **words**: the tower's tokens, compared with the word vectors of the text model, predict for each word whether the
  line contains it. Only some tokens show a word, so its odds are a soft maximum over them (log-sum-exp pooling, arXiv
  1411.6228), starting from how common the word is. In this way the tower uses the words of the text model.
* **which**: for two clips side by side, a word of only one line belongs to that clip. If the two clips differ only in
  a fault, everything else cancels out.
* **measures**: each token predicts, on fixed axes, measures of its cell: light, contrast at three scales, the flat
  share, the change from frame to frame (after MaskFeat, arXiv 2112.09133).

Only the tower and the word vectors learn. At the end the tower's tokens are centred and scaled to the length of word
vectors (`_scale_tokens`).

* **cells**: with `patches` in the recipe, each token of a labelled patch learns the words for its own cell
  (`train.cell_words`). A line does not say where a shape is, and few cells show it. With `keep`, tokens of patches
  without a fault stay near those of the source, except in what names faults.

A model that can already write (a recipe with a `source`) learns words and which again, because traces alone let its
tower forget what a trace rarely depends on. Its word vectors, and the scale of its tokens, stay: its text model knows
them. With `gain` the parts of its tokens that name words are first made so many times larger, and scores are divided by
it: a text model does not learn to read a word that is one twentieth of a token's length.
"""

from __future__ import annotations

import itertools
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Trainer, TrainingArguments

from train.cell_words import amplify_words, cell_word_ids, collate_patches, patch_loss
from train.cells import MEASURES, measures
from train.checkpoints import MODEL, arguments, documents_of
from train.clip_views import ClipView, clip_views
from train.curriculum import Curriculum
from train.line_words import SHARPNESS, count_words, mark_words, pool_scores, word_loss
from train.patch_drills import LabelledPatches
from train.policy.model import load
from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import IGNORED, MERGE
from train.recipe import Supervised, TrainingRecipe
from train.supervised import OrderedTrainer, order_cases, schedule
from train.traces import LOG
from train.trainer_callbacks import Journal, Leg
from train.training_cases import Cases, TrainingCase
from vrt_lite.profile import Profile

_SAMPLED = 64
"""Cases for the statistics of measures."""
_WEIGHT = 0.3
"""Weight of the loss of measures; the loss of words has 1."""
_CELLS = 2.0
"""Weight of the loss of cells, which is a mean over the patches of a step."""
_NEW_SHARPNESS = 4.0
"""Sharpness of the soft maximum for a new model, whose tokens are short."""


def pretrain(
    recipe: TrainingRecipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    curriculum: Curriculum | None = None,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the tower of the model in `start` and write the model to RUN/model. Returns False if the leg ended first.

    The next call continues from the last checkpoint, as in `train.supervised`. With a `curriculum`, its lessons are
    learnt instead of `cases`.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    own = recipe.pretrain
    numbers = order_cases(len(cases), own, seed=recipe.model.seed)
    steps = len(numbers) // (own.batch * own.accumulation)
    model, tokenizer = load(recipe, start, trainable=True)
    sampled = [v for n in range(min(_SAMPLED, len(cases))) for v in clip_views(cases[n], recipe.profile)]
    usual = _collect_statistics(curriculum.by_lesson if curriculum else [cases], sampled, recipe.profile, tokenizer)
    new = not recipe.model.source
    sharpness = _NEW_SHARPNESS if new else SHARPNESS
    cell_words = cell_word_ids(tokenizer)
    source = load(recipe, start, trainable=False)[0] if own.keep else None
    if own.gain != own.source_gain:
        for amplified in (model, source) if source else (model,):
            _amplify(amplified, cell_words, sampled, gain=own.gain / own.source_gain)
    before = source.model.visual if source else None
    _set_forward(model, usual, own, new=new, sharpness=sharpness, cell_words=cell_words, before=before)
    leg = Leg(minutes, model=model, every=every, began=began)
    callbacks: list[Any] = [leg, Journal(run / LOG, samples_a_step=own.batch * own.accumulation)]
    syllabus = None
    if curriculum:
        syllabus = curriculum.syllabus(len(numbers), own)
        named = {"word_ids": usual.word_ids, "sharpness": sharpness / own.gain}
        ask = partial(_which, profile=recipe.profile, tokenizer=tokenizer, **named)
        callbacks.append(curriculum.examination(own, syllabus, ask, run))
        cases = curriculum.lessons(numbers.tolist())
        numbers = np.arange(len(cases))
    trainer = _TowerTrainer(
        model,
        args=TrainingArguments(
            **arguments(recipe, run=run, steps=steps, on_processor=True), **schedule(own, recipe, steps=steps)
        ),
        train_dataset=[{"case": int(number)} for number in numbers],
        data_collator=_ViewCollator(cases, recipe, tokenizer, usual.word_ids),
        callbacks=callbacks,
    )
    trainer.documents, trainer.recipe, trainer.syllabus = documents_of(start, model), own, syllabus
    return trainer.complete(leg, finish=partial(_scale_tokens, views=sampled if new else ()))


@dataclass(frozen=True, slots=True)
class _Statistics:
    """Statistics of some cases: the tokens of their lines with log-odds; mean and deviation of each measure."""

    word_ids: NDArray[np.int64]
    odds: Tensor
    mean: Tensor
    deviation: Tensor


def _collect_statistics(
    lessons: Sequence[Cases], samples: Sequence[ClipView], profile: Profile, tokenizer: PolicyTokenizer
) -> _Statistics:
    """Count words in the scripts of `lessons`, and measure `samples`.

    Raises UsageError if no script describes what is shown.
    """
    counted = count_words(lessons, profile, tokenizer)
    measured = torch.cat([measures(torch.from_numpy(view.patches)) for view in samples])
    return _Statistics(counted.word_ids, counted.odds, measured.mean(0), measured.std(0) + 1e-3)


class _ViewCollator:
    """The collator. It renders the cases, so that they are rendered in the workers."""

    def __init__(
        self, cases: Cases, recipe: TrainingRecipe, tokenizer: PolicyTokenizer, word_ids: NDArray[np.int64]
    ) -> None:
        self._cases, self._profile, self._tokenizer, self._word_ids = cases, recipe.profile, tokenizer, word_ids
        self._patches, self._first = recipe.pretrain.patches, recipe.data.first
        self._source = LabelledPatches(recipe)

    def __call__(self, rows: Sequence[Mapping[str, int]]) -> dict[str, Tensor]:
        """Build the batch of these cases' views."""
        by_case = [list(clip_views(self._cases[row["case"]], self._profile)) for row in rows]
        batch = _batch(by_case, self._tokenizer, self._word_ids)
        seeds = [(self._first + row["case"]) * self._patches + i for row in rows for i in range(self._patches)]
        return batch | collate_patches([self._source.draw(seed) for seed in seeds]) if seeds else batch


def _batch(
    by_case: Sequence[Sequence[ClipView]], tokenizer: PolicyTokenizer, word_ids: NDArray[np.int64]
) -> dict[str, Tensor]:
    """Build a batch of the views of some cases: patches and grids, number of pictures, words of the line.

    `beside` has the pairs of views that a turn shows side by side. `labels` are there only to be counted.
    """
    every_view = [view for case in by_case for view in case]
    number = {id(view): place for place, view in enumerate(every_view)}
    beside = [
        (number[id(a)], number[id(b)]) for case in by_case for a, b in itertools.pairwise(case) if a.turn == b.turn
    ]
    batch = {
        "pixel_values_videos": np.concatenate([view.patches for view in every_view]),
        "video_grid_thw": np.concatenate([view.grids for view in every_view]),
        "pictures": np.array([len(view.grids) for view in every_view]),
        "words": mark_words((view.line for view in every_view), tokenizer, word_ids),
        "beside": np.array(beside, np.int64).reshape(-1, 2),
        "labels": np.tile(
            np.array([[IGNORED, 0]]), (len(every_view), 1)
        ),  # the Trainer counts them, without the first column
    }
    return {name: torch.from_numpy(values) for name, values in batch.items()}


class _TowerTrainer(OrderedTrainer, Trainer):
    """The Trainer, with a loss that is one mean over all views of a step."""


def _set_forward(
    model: Any,
    usual: _Statistics,
    recipe: Supervised,
    *,
    new: bool,
    sharpness: float,
    cell_words: list[int],
    before: Any = None,
) -> None:
    """Replace a model's forward by this stage's loss. Only the tower gets gradients, and a new model's word vectors.

    `before` is the source's tower, from which the tokens of patches without faults should not go away.
    """
    model.requires_grad_(False)
    model.model.visual.requires_grad_(True)
    words = model.get_input_embeddings().weight.requires_grad_(new)
    chance = torch.Generator().manual_seed(0)
    axes = torch.randn(words.shape[1], MEASURES, generator=chance) / words.shape[1] ** 0.5
    word_ids, cell_ids = torch.from_numpy(usual.word_ids), torch.tensor(cell_words)

    def forward(_: Any, *, labels: Tensor, num_items_in_batch: Any = None, **given: Tensor) -> dict[str, Tensor]:
        patches, grids = given["pixel_values_videos"], given["video_grid_thw"]
        tokens = model.model.visual(patches, grid_thw=grids).pooler_output.float()
        mean, deviation, onto, odds = (x.to(tokens.device) for x in (usual.mean, usual.deviation, axes, usual.odds))
        with torch.autocast(tokens.device.type, enabled=False):
            scored = words[word_ids].float() / recipe.gain
            named = _score_words(tokens, scored, grids, given["pictures"], sharpness=sharpness)
            loss = word_loss(named, odds, given["words"], given["beside"])
            if new:
                wrong = (tokens @ onto - (measures(patches) - mean) / deviation).square().sum(1)
                loss = loss + _WEIGHT * sum(part.mean() for part in wrong.split(_sizes(grids, given["pictures"])))
        loss = loss / (len(labels) if num_items_in_batch is None else num_items_in_batch)
        if "patch_pixels" in given:
            vectors = words[cell_ids].float() / recipe.gain
            cells = patch_loss(model.model.visual, vectors, given, before=before, keep=recipe.keep)
            loss = loss + _CELLS * cells / (recipe.patches * recipe.batch * recipe.accumulation)
        return {"loss": loss}

    model.forward = types.MethodType(forward, model)


def _sizes(grids: Tensor, pictures: Tensor) -> list[int]:
    """Return the number of tokens of each view."""
    return [int(of.sum()) for of in (grids.prod(1) // MERGE**2).split(pictures.tolist())]


def _score_words(tokens: Tensor, words: Tensor, grids: Tensor, pictures: Tensor, *, sharpness: float) -> Tensor:
    """Score each word for each view, (views, words): a soft maximum over the view's tokens."""
    parts = (tokens @ words.T).split(_sizes(grids, pictures))
    return pool_scores(parts, sharpness=sharpness)


@torch.no_grad()
def _which(
    model: Any,
    cases: Sequence[TrainingCase],
    *,
    profile: Profile,
    tokenizer: PolicyTokenizer,
    word_ids: NDArray[np.int64],
    sharpness: float,
) -> list[bool]:
    """Return for each case whether the words of only one line have the higher score for the right clip."""
    words, found = model.get_input_embeddings().weight[torch.from_numpy(word_ids)].float(), []
    for case in cases:
        batch = _batch([list(clip_views(case, profile))], tokenizer, word_ids)
        grids = batch["video_grid_thw"]
        tokens = model.model.visual(batch["pixel_values_videos"].to(words.device), grid_thw=grids).pooler_output.float()
        named = _score_words(tokens, words, grids, batch["pictures"], sharpness=sharpness).cpu()
        a, b = batch["beside"].T
        found.append(bool(((batch["words"][a] - batch["words"][b]) * (named[a] - named[b])).sum() > 0))
    return found


def _amplify(model: Any, cell_words: list[int], views: Sequence[ClipView], *, gain: float) -> None:
    """Make the part of the tower's tokens that names words `gain` times larger. The mean token is that of `views`."""
    vectors = model.get_input_embeddings().weight[cell_words]
    pixels, grids = (np.concatenate([getattr(view, name) for view in views]) for name in ("patches", "grids"))
    amplify_words(model.model.visual, vectors, torch.from_numpy(pixels), torch.from_numpy(grids), gain=gain)


@torch.no_grad()
def _scale_tokens(model: Any, views: Sequence[ClipView]) -> None:
    """Subtract the mean of these views' tokens from the tower's tokens, and scale them to the length of word vectors.

    The mean is half of a token's length and has no information. The text model's layers could change a long token only
    a little. Without views nothing changes.
    """
    if not views:
        return
    last = model.model.visual.merger.mlp[-1]
    seen = [
        model.model.visual(torch.from_numpy(view.patches).to(model.device), grid_thw=torch.from_numpy(view.grids))
        for view in views
    ]
    tokens = torch.cat([found.pooler_output.float() for found in seen])
    common = tokens.mean(0)
    words = model.get_input_embeddings().weight.float().norm(dim=1).median()
    share = words / (tokens - common).norm(dim=1).median()
    last.weight.mul_(share)
    last.bias.sub_(common).mul_(share)
