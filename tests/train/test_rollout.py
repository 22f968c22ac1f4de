"""Rollouts: what is written at random is found as likely again, and depends on its seed alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from taught_judge import PROFILE, RECIPE, case  # noqa: E402

from train.rendering import segments  # noqa: E402
from train.rollout import Rollout, roll_out  # noqa: E402
from train.sample import open_policy  # noqa: E402
from train.writing import Policy  # noqa: E402
from vrt_lite.errors import NoVerdictError  # noqa: E402
from vrt_lite.interfaces import Sampling, ignore  # noqa: E402
from vrt_lite.judge import judge_with  # noqa: E402
from vrt_lite.protocol.messages import Text  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(2)]


@pytest.fixture(scope="module")
def policy(taught: Path):
    return open_policy(RECIPE, taught)


def _made(policy: Policy, *, temperature: float = 1.0, samples: int = 6, seed: int = 1) -> list[Rollout]:
    queries = {pair.key: pair for pair in CASES}
    found = roll_out(policy, queries, PROFILE, samples=samples, temperature=temperature, seed=seed)
    return [rollout for group in found.values() for rollout in group]


def _again(policy: Policy, rollout: Rollout, temperature: float) -> list[float]:
    """Log-probabilities of all that was drawn, from whole segments read at once."""
    found: list[float] = []
    ended = (w.ended for w in rollout.written)
    with rollout.case.open(PROFILE) as frames:
        for segment in segments(rollout.visible, rollout.replies):
            inputs = policy.collate([policy.renderer.render(segment, frames)])
            with torch.no_grad():
                logps = policy.logprobs(policy.model, inputs, temperature=temperature)
            learned = (inputs["labels"][0, 1:] != -100).tolist()
            ends = [i for i, here in enumerate(learned) if here and not [*learned, False][i + 1]]
            skipped = {i for i, drawn in zip(ends, ended, strict=False) if not drawn}
            found += [logps[0, i].item() for i, here in enumerate(learned) if here and i not in skipped]
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_what_was_drawn_is_as_likely_when_it_is_read_again(policy: Policy, temperature: float) -> None:
    made = _made(policy, temperature=temperature)
    forgot = [r for r in made if len(r.replies) > 2 and Text(PROFILE.forgotten_text) in r.visible[2][3].parts]
    assert forgot, "no rollout had frames to forget"
    assert any(len(segments(r.visible, r.replies)) < len(r.replies) for r in made), "no rounds shared a segment"
    for rollout in made:
        drawn = [p for w in rollout.written for p in w.logprobs]
        assert len(drawn) == sum(len(w.reply.tokens) + w.ended for w in rollout.written)
        assert _again(policy, rollout, temperature) == pytest.approx(drawn, abs=1e-4)


def test_a_token_that_is_never_written_is_never_likely(policy: Policy) -> None:
    vision = policy.tokenizer.id("<|vision_start|>")
    with torch.no_grad():
        policy.model.get_input_embeddings().weight[vision] *= 50.0
    try:
        made = _made(policy, samples=2)
        assert all(vision not in reply.tokens for r in made for reply in r.replies)
        for rollout in made:
            drawn = [p for w in rollout.written for p in w.logprobs]
            assert _again(policy, rollout, 1.0) == pytest.approx(drawn, abs=1e-4)
    finally:
        with torch.no_grad():
            policy.model.get_input_embeddings().weight[vision] /= 50.0


def test_the_same_seed_draws_the_same_whatever_is_drawn_beside_it(policy: Policy) -> None:
    many = {(r.case.key, r.number): r.replies for r in _made(policy)}
    few = {(r.case.key, r.number): r.replies for r in _made(policy, samples=3)}
    assert few == {key: many[key] for key in few}
    narrow = Policy(policy.model, policy.tokenizer, PROFILE, batch=1)
    assert {(r.case.key, r.number): r.replies for r in _made(narrow)} == many
    assert {(r.case.key, r.number): r.replies for r in _made(policy, seed=2)} != many


def test_greedy_is_what_the_loop_gets_one_reply_at_a_time(policy: Policy) -> None:
    for rollout in _made(policy, temperature=0.0, samples=1):
        with rollout.case.open(PROFILE) as frames:
            trial = judge_with(rollout.case.pair, PROFILE, policy, frames)
        assert tuple(r.reply.text for r in trial.rounds) == tuple(reply.text for reply in rollout.replies)
        assert rollout.trial is not None
        assert trial.verdict == rollout.trial.verdict


def test_no_verdict_is_a_rollout_without_a_trial(policy: Policy) -> None:
    short = replace(PROFILE, max_new_tokens=4)
    [made] = roll_out(policy, {"q": CASES[0]}, short, samples=1, temperature=1.0, seed=0)["q"]
    assert made.trial is None
    assert len(made.rounds) == len(made.replies) == 2
    assert [w.ended for w in made.written] == [False, False]
    with CASES[0].open(short) as frames, pytest.raises(NoVerdictError):
        judge_with(CASES[0].pair, short, policy, frames)


def test_a_reply_is_over_when_its_answer_is(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.writing._CHECK_EVERY", 4)
    with CASES[0].open(PROFILE) as frames:
        visible = _made(policy, samples=1)[0].visible[0]
        stopped = policy.reply(visible, frames, sampling=Sampling(48, concluded=lambda t: True), observe=ignore)
    assert (len(stopped.tokens), stopped.stop) == (4, "end")
