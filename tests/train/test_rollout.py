"""Rollouts: what is written at random is found as likely again, and depends on its seed alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from taught_judge import PROFILE, case, script  # noqa: E402

from train.policy.rendering import segments  # noqa: E402
from train.policy.rollout import Rollout, open_policy, rollouts  # noqa: E402
from train.policy.writing import Policy  # noqa: E402
from vrt_lite.errors import NoVerdictError  # noqa: E402
from vrt_lite.interfaces import FrameStore, Sampling, ignore  # noqa: E402
from vrt_lite.judge import judge_with  # noqa: E402
from vrt_lite.protocol.messages import FrameRef, Image, Text, shown_first  # noqa: E402  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
CASES = [case(seed) for seed in range(2)]


@pytest.fixture(scope="module")
def policy(taught: Path):
    with open_policy(taught, PROFILE, batch=8) as opened:
        yield opened


def _made(policy: Policy, *, temperature: float = 1.0, samples: int = 6, seed: int = 1, **options: object):
    found = rollouts(policy, CASES, PROFILE, samples=samples, temperature=temperature, seed=seed, **options)
    return sorted(found, key=lambda r: (r.case.key, r.number))


def _again(policy: Policy, rollout: Rollout, temperature: float) -> list[float]:
    """Log-probabilities of all that was drawn, from whole segments read at once."""
    found: list[float] = []
    ended = (w.ended for w in rollout.written)
    with rollout.case.open(PROFILE) as frames:
        for segment in segments(rollout.visible, rollout.replies):
            inputs = policy.collate([policy.renderer.render(segment, frames)])
            with torch.no_grad():
                logps, _ = policy.logprobs(policy.model, inputs, temperature=temperature)
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


def test_different_numbers_draw_differently(policy: Policy) -> None:
    digits = {r.replies[-1].text for r in _made(policy)}
    assert len(digits) > 1


def test_greedy_is_what_the_loop_gets_one_reply_at_a_time(policy: Policy) -> None:
    for rollout in _made(policy, temperature=0.0, samples=1):
        with rollout.case.open(PROFILE) as frames:
            trial = judge_with(rollout.case.pair, PROFILE, policy, frames)
        assert tuple(r.reply.text for r in trial.rounds) == tuple(reply.text for reply in rollout.replies)
        assert rollout.trial is not None
        for key, preference in trial.verdict.preferences.items():
            other = rollout.trial.verdict.preferences[key]
            assert preference.odds == pytest.approx(other.odds, abs=1e-5)
            assert sum(preference.odds) == pytest.approx(1.0)
            assert max(range(3), key=preference.odds.__getitem__) == preference.winner == other.winner


def test_a_rollout_tells_its_marks_and_rounds(policy: Policy) -> None:
    long = next(r for r in _made(policy) if len(r.replies) == 3)
    assert long.replies[0].text.replace("2, VQ", "1, VQ")[:14] == script(1, calls=2)[0][:14]
    assert len(long.rounds) == len(long.visible) == len(long.marks) == 3
    assert long.marks[0] is not None
    assert long.marks[0].confidence == 1


class _Watched:
    """A frame store that notes what was asked of it."""

    def __init__(self, frames: FrameStore) -> None:
        self.frames, self.asked = frames, list[FrameRef]()

    def pixels(self, frames):
        self.asked += frames
        return self.frames.pixels(frames)


def test_views_change_what_a_call_brings_and_nothing_else(policy: Policy) -> None:
    import contextlib

    watched: list[_Watched] = []

    @contextlib.contextmanager
    def opened(profile):
        with case(0).open(profile) as frames:
            watched.append(_Watched(frames))
            yield watched[-1]

    pair = replace(case(0), key="shuffled", open=opened)
    first = {f for clip in (0, 1) for f in shown_first(PROFILE.workspace, PROFILE.first_frames, clip)}
    seen = {}
    for view in ("asked", "random", "none"):
        watched.clear()
        made = list(rollouts(policy, [pair], PROFILE, samples=8, temperature=1.0, seed=5, view=view))
        asked = {p.frame for r in made for v in r.visible for m in v for p in m.parts if isinstance(p, Image)}
        seen[view] = (asked, set(watched[0].asked) - first, {len(r.rounds) for r in made})
    assert seen["asked"][0] == seen["asked"][1] != set()
    assert seen["random"][0] <= seen["asked"][0]
    assert seen["random"][1].isdisjoint(first)
    assert seen["random"][1] != seen["random"][0]
    assert seen["none"] == (set(), set(), {1})


def test_without_the_tool_a_recommendation_stands(policy: Policy) -> None:
    made = _made(policy, view="none")
    sources = {r.trial.verdict.source for r in made if r.trial}
    assert "recommended" in sources


def test_no_verdict_is_a_rollout_without_a_trial(policy: Policy) -> None:
    short = replace(PROFILE, max_new_tokens=4)
    [made] = rollouts(policy, CASES[:1], short, samples=1, temperature=1.0, seed=0)
    assert made.trial is None
    assert len(made.rounds) == len(made.replies) == 2
    assert [w.ended for w in made.written] == [False, False]
    with CASES[0].open(short) as frames, pytest.raises(NoVerdictError):
        judge_with(CASES[0].pair, short, policy, frames)


def test_a_reply_is_over_when_its_answer_is(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.policy.writing._CHECK_EVERY", 4)
    with CASES[0].open(PROFILE) as frames:
        visible = _made(policy, samples=1)[0].visible[0]
        stopped = policy.reply(visible, frames, sampling=Sampling(48, concluded=lambda t: True), observe=ignore)
    assert (len(stopped.tokens), stopped.stop) == (4, "end")
