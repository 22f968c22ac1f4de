"""Continues the small judge's text model: it learns to read a report of what was measured, and to judge alignment.

    RUN/text/start/        the model to begin with, from train/tiny/start
    RUN/text/state.pt      everything after some steps, so that the same command goes on
    RUN/text/log.jsonl     the loss of the steps
    RUN/text/model/        the result

Only the text model learns; its tower stays. An answer's digits learn the probabilities of what was read, not one digit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from train.data import UNSEEN, append_rows
from train.model import load, save, write_profile
from train.policy_tokenizer import PAD, PolicyTokenizer
from train.rendering import Collator, Rendered, Renderer, segments
from train.tiny.batched_tower import batch_frames
from train.tiny.muon import Muon
from train.tiny.restoring import NewModelShape, restore
from train.tiny.text_cases import TextCase, TextCases, TextPair
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.interfaces import FrameStore
from vrt_lite.judge import judge_with
from vrt_lite.profile import Profile, load_profile
from vrt_lite.protocol import tags
from vrt_lite.protocol.messages import Generated, Odds

HERE: Final = Path(__file__).parent
_PROFILE: Final = HERE.parents[1] / "vrt_lite" / "bundled" / "vrt-tiny-2" / "profile.toml"
NAME: Final = "vrt-tiny-2"
PROFILE: Final = load_profile(_PROFILE)
SHAPE: Final = NewModelShape(
    layers=4,
    width=192,
    heads=3,
    kv_heads=3,
    feed_forward=512,
    tower_depth=3,
    tower_width=128,
    tower_heads=2,
    tower_feed_forward=256,
    tower_full=(2,),
)
PAIRS_A_STEP: Final = 4
PAIRS: Final = 2_400
_RATE, _MUON_RATE, _DECAY, _WARMUP = 7e-4, 2e-3, 0.05, 40
_SAVED_EVERY_SECONDS = 120.0
_LOGGED_EVERY = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A rendered conversation. `odds` has the probabilities of the digits 0, 1 and 2 at some of its tokens."""

    rendered: Rendered
    odds: dict[int, Odds]


def train(
    run: Path, footage: Path | None, *, pairs: int = PAIRS, minutes: float | None = None, say: Callable[[str], None]
) -> bool:
    """Train the text model on `pairs` pairs, to RUN/text/model; False if the `minutes` ended first."""
    began = saved = time.monotonic()
    run = run / "text"
    if (run / "model").is_dir():
        return True
    start = run / "start"
    if not (start / "config.json").is_file():
        restore(SHAPE, PROFILE, str(HERE / "start"), start)
    model, tokenizer = load(start, trainable=True)
    batch_frames(model.model.visual)
    model.model.visual.requires_grad_(False)
    optimizer, steps = _make_optimizer(model), -(-pairs // PAIRS_A_STEP)
    done = _resume(run, model, optimizer)
    _keep_lines(run / "log.jsonl", done // _LOGGED_EVERY)
    losses: list[float] = []
    drawn = _Steps(TextCases(PROFILE, footage), tokenizer, range(done, steps))
    for step, rows in DataLoader(drawn, batch_size=None, num_workers=1):
        share = min((step + 1) / _WARMUP, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = share * (_MUON_RATE if group["muon"] else _RATE)
        with torch.autocast("cpu", torch.bfloat16):
            loss = compute_loss(model, tokenizer, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if len(losses) == _LOGGED_EVERY:
            append_rows(run / "log.jsonl", [{"step": step + 1, "loss": round(float(np.mean(losses)), 4)}])
            say(f"step {step + 1} of {steps}: loss {np.mean(losses):.4f}")
            losses.clear()
        now = time.monotonic()
        over = minutes is not None and now - began > 60 * minutes
        if not losses and (over or now - saved > _SAVED_EVERY_SECONDS):
            _save_state(run, model, optimizer, step + 1)
            saved = now
            if over and step + 1 < steps:
                return False
    save(model, start, run / "model.part")
    write_profile(PROFILE, run / "model.part")
    (run / "model.part").replace(run / "model")
    return True


def render_pair(pair: TextPair, tokenizer: PolicyTokenizer) -> list[Row]:
    """Render what a judge reads and writes of a pair in both orders."""
    return [
        row
        for case, frames in zip(pair.orders, pair.open_frames(), strict=True)
        for row in _render_case(case, pair.profile, frames, tokenizer)
    ]


def _render_case(case: TextCase, profile: Profile, frames: FrameStore, tokenizer: PolicyTokenizer) -> Iterator[Row]:
    script = ScriptedBackend(case.replies)
    judge_with(case.pair, profile, script, UNSEEN)
    for segment in segments(script.conversations, [Generated(reply) for reply in case.replies]):
        rendered = Renderer(tokenizer, profile).render(segment, frames)
        replies = [segment.conversation[number].parts[0] for number in sorted(segment.learned)]
        texts = [part.text for part in replies if isinstance(part, Generated)]
        odds: dict[int, Odds] = {}
        for first, text in zip(_find_replies(rendered.learned), texts, strict=True):
            parsed = tags.parse(text)
            marks = parsed.marks if isinstance(parsed, tags.Answer) else parsed.recommendation
            for key, offset in marks.offsets.items() if marks else ():
                odds[first + len(tokenizer.tokens(text[:offset], special=True))] = case.odds[key]
        yield Row(rendered, odds)


def compute_loss(model: Any, tokenizer: PolicyTokenizer, rows: Sequence[Row]) -> torch.Tensor:
    """Compute the mean loss over the tokens of the replies."""
    batch = Collator(tokenizer.id(PAD))([row.rendered for row in rows])
    labels = batch.pop("labels")[:, 1:]
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])  # padding is on the right: nothing sees it
    columns = (labels != -100).any(0).nonzero()[:, 0]
    logits = model(**batch, use_cache=False, logits_to_keep=columns).logits.float()
    targets = labels[:, columns]
    likely = logits.log_softmax(-1)
    chosen = likely.gather(2, targets.clamp(min=0)[..., None])[..., 0]
    digits = torch.tensor([tokenizer.id(digit) for digit in "012"])
    soft = torch.zeros(*targets.shape, 3)
    where = {int(column): place for place, column in enumerate(columns)}
    for number, row in enumerate(rows):
        for token, odds in row.odds.items():
            soft[number, where[token - 1]] = torch.tensor(odds)
    chosen = torch.where(soft.sum(-1) > 0, (soft * likely[..., digits]).sum(-1), chosen)
    learned = targets != -100
    return -(chosen * learned).sum() / learned.sum()


def _find_replies(learned: NDArray[np.bool_]) -> list[int]:
    """Return the first token of each reply."""
    return [int(place) for place in np.flatnonzero(np.diff(learned.astype(np.int8), prepend=0) == 1)]


def _make_optimizer(model: Any) -> Muon:
    """Make an optimizer whose layers' matrices are Muon's, the rest AdamW's."""
    groups: list[dict[str, Any]] = [{"params": [], "muon": muon} for muon in (False, True)]
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            matrix = weight.ndim == 2 and not name.endswith(("embed_tokens.weight", "lm_head.weight"))
            groups[matrix]["params"].append(weight)
    return Muon(groups, lr=_RATE, betas=(0.9, 0.98), weight_decay=_DECAY)


@dataclass(frozen=True, slots=True)
class _Steps(Dataset[tuple[int, list[Row]]]):
    """The rows of each step, its pairs in both orders, drawn when they are used."""

    cases: TextCases
    tokenizer: PolicyTokenizer
    steps: range

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: int) -> tuple[int, list[Row]]:
        step = self.steps[place]
        drawn = (self.cases.draw(step * PAIRS_A_STEP + number) for number in range(PAIRS_A_STEP))
        return step, [row for pair in drawn for row in render_pair(pair, self.tokenizer)]


def _resume(run: Path, model: Any, optimizer: Muon) -> int:
    """Load the state of a run that has begun; return how many steps it has."""
    if not (run / "state.pt").is_file():
        return 0
    state = torch.load(run / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["steps"])


def _keep_lines(path: Path, count: int) -> None:
    """Keep the first lines of a file: the steps after them are done again."""
    if path.exists():
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))


def _save_state(run: Path, model: Any, optimizer: Muon, steps: int) -> None:
    part = run / "state.part"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}, part)
    part.replace(run / "state.pt")
