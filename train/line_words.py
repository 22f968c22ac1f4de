"""What the tower's tokens say in words: which words the line about a clip has, and which of two clips has them.

Only some tokens show a word, so the score of a word is a soft maximum over a clip's tokens of their products with its
word vector (log-sum-exp pooling, arXiv 1411.6228), starting from how common the word is. Pretraining learns this alone;
the cold start can learn it beside its traces, in which only few words depend on pictures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from train.clip_views import clip_of, lines_in, lines_of, words_of
from train.policy.policy_tokenizer import PolicyTokenizer
from train.policy.rendering import MERGE, Segment
from train.traces import replay
from train.training_cases import Cases
from vrt_lite.errors import UsageError
from vrt_lite.profile import Profile
from vrt_lite.protocol.messages import Generated, Video

SHARPNESS = 1.0
"""Sharpness of the soft maximum; 0 would be the mean."""
_WHICH = 2.0
"""Weight of the loss of a word that only one of two lines has."""
_READ = 500
"""Cases of each lesson for the statistics of words, which need no rendering."""


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """The tokens of the lines of some cases, and the log-odds of each."""

    word_ids: NDArray[np.int64]
    odds: Tensor


def count_words(lessons: Sequence[Cases], profile: Profile, tokenizer: PolicyTokenizer) -> WordStatistics:
    """Count the words in the scripts of `lessons`. Raises UsageError if no script describes what is shown."""
    counts, lines = np.zeros(len(tokenizer)), 0
    for cases in lessons:
        for case in (cases[number] for number in range(min(_READ, len(cases)))):
            turns = replay(case, case.script, profile)[1].rounds
            for line in (line for turn in turns for line in lines_of(turn) if line):
                counts[words_of(line, tokenizer)] += 1
                lines += 1
    if not lines:
        raise UsageError("There is nothing to pretrain on: no script has a snapshot with a line on a video.")
    word_ids = np.flatnonzero(counts)
    share = (counts[word_ids] + 0.5) / (lines + 1)
    return WordStatistics(word_ids, torch.from_numpy(np.log(share / (1 - share))).float())


def mark_words(lines: Iterable[str], tokenizer: PolicyTokenizer, word_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Mark the words of each line, (lines, words): 1 where the line has the word."""
    marks = [np.isin(word_ids, words_of(line, tokenizer)) for line in lines]
    return np.array(marks, np.float32).reshape(-1, len(word_ids))


def pool_scores(shown: Sequence[Tensor], *, sharpness: float = SHARPNESS) -> Tensor:
    """Pool the products (tokens, words) of each view to one score a word, (views, words)."""
    return torch.stack([(sharpness * part).logsumexp(0) - math.log(len(part)) for part in shown]) / sharpness


def word_loss(named: Tensor, odds: Tensor, words: Tensor, beside: Tensor) -> Tensor:
    """Compute the sum of the losses of words, and of which clip has them, over views with the scores `named`.

    `named` and `words` are (views, words): a score, and 1 if the view's line has the word. `odds` are log-odds by word;
    `beside` are pairs of views side by side, (pairs, 2).
    """
    losses = functional.binary_cross_entropy_with_logits(named + odds, words, reduction="none").sum()
    a, b = beside.T
    apart = words[a] - words[b]
    return losses + _WHICH * (functional.softplus(-apart * (named[a] - named[b])) * apart.abs()).sum()


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of a reply about a clip, the turn that it is about, and the videos that show it, by number."""

    line: str
    turn: int
    videos: tuple[int, ...]


def line_views(segment: Segment) -> Iterator[LineView]:
    """Yield the lines of a segment's learned replies, with the videos of the turn before. Videos count from 0."""
    shown = 0
    for index, message in enumerate(segment.conversation):
        videos = {shown + n: part for n, part in enumerate(p for p in message.parts if isinstance(p, Video))}
        shown += len(videos)
        reply = segment.conversation[index + 1].parts[0] if index + 1 in segment.learned else None
        for clip, line in enumerate(lines_in(reply.text) if isinstance(reply, Generated) else ()):
            own = tuple(number for number, part in videos.items() if clip_of(part) == clip)
            if line and own:
                yield LineView(line, index, own)


INPUTS = ("word_views", "words", "words_beside")
"""The names of what `collate_words` adds to a batch."""


def collate_words(
    rows: Sequence[Sequence[LineView]], videos: Sequence[int], tokenizer: PolicyTokenizer, word_ids: NDArray[np.int64]
) -> dict[str, Tensor]:
    """Build a batch's part for the loss of words, from the views of each row and the number of its videos.

    `word_views` has for each video of the batch the number of its view, or -1; `words` are (views, words), and
    `words_beside` are pairs of views of one turn, (pairs, 2).
    """
    of_video, beside, lines = np.full(sum(videos), -1, np.int64), [], []
    starts = np.cumsum([0, *videos])
    for start, row in zip(starts[:-1], rows, strict=True):
        first = len(lines)
        for number, view in enumerate(row, start=first):
            of_video[start + np.array(view.videos)] = number
            lines.append(view.line)
        beside += [(first + a, first + b) for a, b in combinations(range(len(row)), 2) if row[a].turn == row[b].turn]
    arrays = (of_video, mark_words(lines, tokenizer, word_ids), np.array(beside, np.int64).reshape(-1, 2))
    return {name: torch.from_numpy(array) for name, array in zip(INPUTS, arrays, strict=True)}


def batch_loss(tokens: Tensor, vectors: Tensor, odds: Tensor, grids: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Compute the sum of the losses of words over a batch's views.

    `tokens` are the tower's, (tokens, width), of the videos with `grids`; `vectors` are those of the words.
    """
    view = batch["word_views"].repeat_interleave(grids.prod(1) // MERGE**2)
    count = len(batch["words"])
    if not count:
        return tokens.sum() * 0
    with torch.autocast(tokens.device.type, enabled=False):
        products = tokens.float() @ vectors.T
        named = pool_scores([products[view == number] for number in range(count)])
        return word_loss(named, odds, batch["words"], batch["words_beside"])
