"""A new tower's first lessons: what is to be seen, before it is talked about.

VR-Thinker begins with a tower that has seen millions of pictures. A new one has seen none, and of the words of a whole
trace only few depend on pictures: it would learn next to nothing from them. So it first learns from what is shown of
one clip in one turn, and from what the script's snapshot says of it:

* **words**: its tokens, held against the text's own word vectors, say of each word whether that line has it. Some
  tokens show it and most do not, so a word's odds are a soft maximum over them (log-sum-exp pooling, arXiv 1411.6228),
  beginning from how common it is. So the tower speaks the words that the text model reads and writes.
* **which**: of two clips that are shown side by side, a word that only one line has is that clip's. Where the two are
  one picture but for a fault, all else cancels out.
* **measures**: each of its tokens tells, on fixed axes, what a ruler tells of its cell: light, contrast at three
  scales, what is flat, what changes from frame to frame (after MaskFeat, arXiv 2112.09133).

The tower and the word vectors learn, nothing else. At the end its tokens are centred and made as long as words
are (`_settle`). Knows transformers' Trainer; refuses to know what a case shows.
"""

from __future__ import annotations

import itertools
import math
import re
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import Trainer, TrainingArguments

from train.cases import Case, Cases
from train.cells import MEASURES, measures
from train.checkpoints import MODEL, Journal, Leg, arguments, documents_of
from train.curriculum import Curriculum
from train.policy.model import load
from train.policy.rendering import IGNORED, MERGE, pictured, pixels_of
from train.policy.tokenizer import Tokenizer
from train.recipe import Recipe
from train.supervised import Tutor, order, schedule
from train.traces import LOG, replay
from vrt_lite.errors import UsageError
from vrt_lite.judge import Round
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Image, Part, Video

_SAMPLED, _READ = 64, 500
"""Cases that say how common measures are; and words, which cost no drawing: of each lesson."""
_WEIGHT = 0.3
"""Of a measure, beside the words."""
_WHICH = 2.0
"""Of a word that one of two lines has."""
_SHARPNESS = 4.0
"""Of the soft maximum: 0 would be the mean."""


@dataclass(frozen=True, slots=True)
class View:
    """What a turn shows of a clip, patches (count, 1176) and grids (pictures, 3), and what the judge says of it."""

    patches: NDArray[np.uint8]
    grids: NDArray[np.int64]
    said: str
    turn: int = 0


def pretrain(
    recipe: Recipe,
    cases: Cases,
    *,
    start: Path | str,
    run: Path,
    curriculum: Curriculum | None = None,
    minutes: float | None = None,
    every: float | None = None,
) -> bool:
    """Train the tower of the model in `start` into RUN/model; True when it is there, False if the leg ended first.

    The next call goes on from the last checkpoint, as in `train.supervised`. With a `curriculum` its lessons are learnt
    instead of `cases`.
    """
    began = time.monotonic()
    if (run / MODEL).is_dir():
        return True
    run.mkdir(parents=True, exist_ok=True)
    own = recipe.pretrain
    numbers = order(len(cases), own, seed=recipe.model.seed)
    steps = len(numbers) // (own.batch * own.accumulation)
    model, tokenizer = load(recipe, start, trainable=True)
    sampled = [v for n in range(min(_SAMPLED, len(cases))) for v in views(cases[n], recipe.profile)]
    usual = _usual(curriculum.by_lesson if curriculum else [cases], sampled, recipe.profile, tokenizer)
    _look(model, usual)
    leg = Leg(minutes, model=model, every=every, began=began)
    step = own.batch * own.accumulation
    callbacks: list[Any] = [leg, Journal(run / LOG, samples_a_step=step)]
    syllabus = None
    if curriculum:
        syllabus = curriculum.syllabus(len(numbers), own)
        ask = partial(_which, profile=recipe.profile, tokenizer=tokenizer, said=usual.said)
        callbacks.append(curriculum.examination(own, syllabus, ask, run))
        cases = curriculum.lessons(numbers)
        numbers = np.arange(len(cases))
    trainer = _Tutor(
        model,
        args=TrainingArguments(
            **arguments(recipe, run=run, steps=steps, on_processor=True), **schedule(own, recipe, steps=steps)
        ),
        train_dataset=[{"case": int(number)} for number in numbers],
        data_collator=_Teacher(cases, recipe.profile, tokenizer, usual.said),
        callbacks=callbacks,
    )
    trainer.documents, trainer.recipe, trainer.syllabus = documents_of(start, model), own, syllabus
    return trainer.complete(leg, finish=partial(_settle, views=sampled))


def views(case: Case, profile: Profile) -> Iterator[View]:
    """What the script of a case has a line about, turn by turn and clip by clip."""
    visible, trial = replay(case, case.script, profile)
    with case.open(profile) as frames:
        pixels = pixels_of([conversation[-1] for conversation in visible], frames)
        for number, (conversation, turn) in enumerate(zip(visible, trial.rounds, strict=True)):
            for clip, said in enumerate(_lines(turn)):
                told = [pictured(part, pixels) for part in conversation[-1].parts if _clip(part) == clip]
                if said and told:
                    patched, grids = np.concatenate([flat for flat, _ in told]), np.array([grid for _, grid in told])
                    yield View(patched, grids, said, number)


def _lines(turn: Round) -> list[str]:
    """What a turn's snapshot says of each clip; "" where it has no line."""
    lines, names = turn.parsed.notes.snapshot.splitlines(), ("Video 1:", "Video 2:")
    return [next((line.removeprefix(name) for line in lines if line.startswith(name)), "") for name in names]


def _clip(part: Part) -> int | None:
    """Which clip a part shows; None for text."""
    return part.frames[0].clip if isinstance(part, Video) else part.frame.clip if isinstance(part, Image) else None


def _words(said: str, tokenizer: Tokenizer) -> list[int]:
    """The different tokens of a line; no digits: a frame's number is not to be seen."""
    return sorted(set(tokenizer.tokens(re.sub(r"\d+", "", said), special=False)))


@dataclass(frozen=True, slots=True)
class _Usual:
    """Of some cases: the tokens that are said, each one's log-odds, mean and deviation of each measure."""

    said: NDArray[np.int64]
    odds: Tensor
    mean: Tensor
    deviation: Tensor


def _usual(told: Sequence[Cases], seen: Sequence[View], profile: Profile, tokenizer: Tokenizer) -> _Usual:
    """Words from the scripts of `told`, measures from `seen`. UsageError if no script says a word of what is shown."""
    counts, lines = np.zeros(len(tokenizer)), 0
    for cases in told:
        for case in (cases[number] for number in range(min(_READ, len(cases)))):
            for said in (
                said for turn in replay(case, case.script, profile)[1].rounds for said in _lines(turn) if said
            ):
                counts[_words(said, tokenizer)] += 1
                lines += 1
    if not lines:
        raise UsageError("There is nothing to pretrain on: no script has a snapshot with a line on a video.")
    said = np.flatnonzero(counts)
    share = (counts[said] + 0.5) / (lines + 1)
    measured = torch.cat([measures(torch.from_numpy(view.patches)) for view in seen])
    odds = torch.from_numpy(np.log(share / (1 - share))).float()
    return _Usual(said, odds, measured.mean(0), measured.std(0) + 1e-3)


class _Teacher:
    """The collator: cases are drawn where they are batched, in a worker if there are any."""

    def __init__(self, cases: Cases, profile: Profile, tokenizer: Tokenizer, said: NDArray[np.int64]) -> None:
        self._cases, self._profile, self._tokenizer, self._said = cases, profile, tokenizer, said

    def __call__(self, rows: Sequence[Mapping[str, int]]) -> dict[str, Tensor]:
        """What `_batch` makes of the views of these cases."""
        seen = [list(views(self._cases[row["case"]], self._profile)) for row in rows]
        return _batch(seen, self._tokenizer, self._said)


def _batch(seen: Sequence[Sequence[View]], tokenizer: Tokenizer, said: NDArray[np.int64]) -> dict[str, Tensor]:
    """Of the views of some cases, one after the other: patches and grids, number of pictures, what is said.

    `beside` are the pairs of views that a turn shows side by side; a label each is there to be counted.
    """
    told = [view for case in seen for view in case]
    number = {id(view): place for place, view in enumerate(told)}
    beside = [(number[id(a)], number[id(b)]) for case in seen for a, b in itertools.pairwise(case) if a.turn == b.turn]
    batch = {
        "pixel_values_videos": np.concatenate([view.patches for view in told]),
        "video_grid_thw": np.concatenate([view.grids for view in told]),
        "pictures": np.array([len(view.grids) for view in told]),
        "said": np.array([np.isin(said, _words(view.said, tokenizer)) for view in told], np.float32),
        "beside": np.array(beside, np.int64).reshape(-1, 2),
        "labels": np.tile(np.array([[IGNORED, 0]]), (len(told), 1)),  # the Trainer counts a step's, past the first
    }
    return {name: torch.from_numpy(values) for name, values in batch.items()}


class _Tutor(Tutor, Trainer):
    """The Trainer, with a loss that is one mean over a step's views, however they are spread."""


def _look(model: Any, usual: _Usual) -> None:
    """Let a model's forward be this stage's loss; what has no part in it stays as it is."""
    model.requires_grad_(False)
    model.model.visual.requires_grad_(True)
    words = model.get_input_embeddings().weight.requires_grad_(True)
    chance = torch.Generator().manual_seed(0)
    axes = torch.randn(words.shape[1], MEASURES, generator=chance) / words.shape[1] ** 0.5
    said = torch.from_numpy(usual.said)

    def forward(_: Any, *, labels: Tensor, num_items_in_batch: Any = None, **given: Tensor) -> dict[str, Tensor]:
        patches, grids = given["pixel_values_videos"], given["video_grid_thw"]
        tokens = model.model.visual(patches, grid_thw=grids).pooler_output.float()
        mean, deviation, onto, odds = (x.to(tokens.device) for x in (usual.mean, usual.deviation, axes, usual.odds))
        with torch.autocast(tokens.device.type, enabled=False):
            wrong = (tokens @ onto - (measures(patches) - mean) / deviation).square().sum(1)
            named = _named(tokens, words[said].float(), grids, given["pictures"])
        told = given["said"]
        losses = functional.binary_cross_entropy_with_logits(named + odds, told, reduction="none").sum(1)
        losses = losses + _WEIGHT * torch.stack([part.mean() for part in wrong.split(_sizes(grids, given["pictures"]))])
        a, b = given["beside"].T
        apart = told[a] - told[b]
        which = (functional.softplus(-apart * (named[a] - named[b])) * apart.abs()).sum()
        loss = losses.sum() + _WHICH * which
        return {"loss": loss / (len(labels) if num_items_in_batch is None else num_items_in_batch)}

    model.forward = types.MethodType(forward, model)


def _sizes(grids: Tensor, pictures: Tensor) -> list[int]:
    """How many tokens each view has."""
    return [int(of.sum()) for of in (grids.prod(1) // MERGE**2).split(pictures.tolist())]


def _named(tokens: Tensor, words: Tensor, grids: Tensor, pictures: Tensor) -> Tensor:
    """How much each view's tokens name each word, (views, words): a soft maximum, 0 for tokens that say nothing."""
    shown = _SHARPNESS * tokens @ words.T
    parts = shown.split(_sizes(grids, pictures))
    return torch.stack([part.logsumexp(0) - math.log(len(part)) for part in parts]) / _SHARPNESS


@torch.no_grad()
def _which(
    model: Any, cases: Sequence[Case], *, profile: Profile, tokenizer: Tokenizer, said: NDArray[np.int64]
) -> list[bool]:
    """Of each case: whether the words that one of two lines has are named more by that clip than by the other."""
    words, found = model.get_input_embeddings().weight[torch.from_numpy(said)].float(), []
    for case in cases:
        batch = _batch([list(views(case, profile))], tokenizer, said)
        grids = batch["video_grid_thw"]
        tokens = model.model.visual(batch["pixel_values_videos"].to(words.device), grid_thw=grids).pooler_output.float()
        named = _named(tokens, words, grids, batch["pictures"]).cpu()
        a, b = batch["beside"].T
        found.append(bool(((batch["said"][a] - batch["said"][b]) * (named[a] - named[b])).sum() > 0))
    return found


@torch.no_grad()
def _settle(model: Any, views: Sequence[View]) -> None:
    """Take from the tower's tokens what those of all these views have in common, and make them as long as words are.

    Half of a token's length says nothing; and what the text model's layers add to a token is lost beside a long one.
    """
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
