"""The text model's training: what it is shown and learns, and that it is the same in one leg or two."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from train.data import UNSEEN
from train.model import load
from train.policy_tokenizer import PAD
from train.rendering import Collator
from train.strict_format import conforms
from train.tiny import text_model
from train.tiny.text_cases import TextCase, TextCases
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.judge import judge_with
from vrt_lite.protocol import tags
from vrt_lite.protocol.report import MEASURED_KEYS
from vrt_lite.protocol.verdict import likeliest

PROFILE = text_model.PROFILE
CASES = TextCases(PROFILE, None)


def cases(count: int) -> list[TextCase]:
    return [case for pair in map(CASES.draw, range(count)) for case in pair.orders]


def test_a_reply_repeats_the_report_and_calls_for_its_frames() -> None:
    unmeasured, workspace = 0, PROFILE.workspace
    for case in cases(80):
        backend = ScriptedBackend(case.replies)
        trial = judge_with(case.pair, PROFILE, backend, UNSEEN)
        assert conforms(trial.rounds)
        if not case.pair.measured:
            unmeasured += 1
            continue
        for key in ("VQ", "MQ"):
            assert trial.verdict.preferences[key].winner == likeliest(case.pair.measured.odds[key])
        call = trial.rounds[0].parsed
        assert isinstance(call, tags.FrameCall)
        granted = tags.read_call(call.payload, workspace=workspace, limit=PROFILE.frames_per_call)
        assert isinstance(granted, tags.Granted)
        for clip, moments in enumerate(case.pair.measured.moments):
            shares = [frame.index / (workspace - 1) for frame in granted.frames if frame.clip == clip]
            assert all(abs(share - moments[0]) < 0.5 for share in shares) if moments else len(shares) >= 2
    assert unmeasured


def test_the_same_seeds_give_the_same_texts() -> None:
    texts = hashlib.sha256()
    for part in ("train", "test"):
        for number in range(24):
            for case in TextCases(PROFILE, None, part).draw(number).orders:
                texts.update("\n".join((case.pair.caption, *case.replies)).encode())
    assert texts.hexdigest() == "44294135a3fda07196cbd76d5ae1bc67172fed6fc513058b32ae78f4ad63e762"


def test_both_orders_say_the_same() -> None:
    for number in range(40):
        one, two = CASES.draw(number).orders
        assert two.pair == one.pair.swapped()
        for key in MEASURED_KEYS:
            tie, first, second = one.odds[key]
            assert two.odds[key] == pytest.approx((tie, second, first))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one leg: two steps of one pair."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        assert text_model.train(folder, None, pairs=2, say=lambda _: None)
    return folder


def shorten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(text_model, "PAIRS_A_STEP", 1)
    patch.setattr(text_model, "_LOGGED_EVERY", 1)


def test_two_legs_are_one(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    said: list[str] = []
    assert not text_model.train(tmp_path, None, pairs=2, minutes=0, say=said.append)
    assert text_model.train(tmp_path, None, pairs=2, minutes=0, say=said.append)
    assert len(said) == 2
    one, two = ((folder / "text" / "model" / "model.safetensors").read_bytes() for folder in (run, tmp_path))
    assert one == two
    assert (run / "text" / "log.jsonl").read_text("utf-8") == (tmp_path / "text" / "log.jsonl").read_text("utf-8")


def test_the_digits_learn_the_probabilities_that_were_read(run: Path) -> None:
    """Digits of one certain choice cost what any token does; the tower stays as it was."""
    model, tokenizer = load(run / "text" / "start", trainable=True)
    rows = text_model.render_pair(CASES.draw(1), tokenizer)
    for row in rows:
        said = [tokenizer.text([int(row.rendered.ids[place])]) for place in row.odds]
        assert set(said) <= {"0", "1", "2"}
        assert len(said) in (4, 8)
        assert all(row.rendered.learned[place] for place in row.odds)
    certain = [replace(row, odds={place: one_hot(tokenizer, row, place) for place in row.odds}) for row in rows]
    batch = Collator(tokenizer.id(PAD))([row.rendered for row in rows])
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    with torch.no_grad():
        usual = model(**batch, use_cache=False).loss
        assert text_model.compute_loss(model, tokenizer, certain).item() == pytest.approx(usual.item(), rel=1e-4)
        assert text_model.compute_loss(model, tokenizer, rows).item() != pytest.approx(usual.item(), rel=1e-4)
    learnt, _ = load(run / "text" / "model")
    before, after = model.state_dict(), learnt.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert not any("visual" in name for name in changed)


def one_hot(tokenizer: object, row: text_model.Row, place: int) -> tuple[float, float, float]:
    said = int(tokenizer.text([int(row.rendered.ids[place])]))  # type: ignore[attr-defined]
    shares: Sequence[float] = [float(choice == said) for choice in range(3)]
    return shares[0], shares[1], shares[2]
