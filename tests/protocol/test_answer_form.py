"""Replies of published judges, read as their authors' parsers read them, and forms that a profile may not have."""

from __future__ import annotations

import re

import pytest

from vrt_lite.errors import ModelError
from vrt_lite.profile import parse_profile
from vrt_lite.protocol.answer_form import (
    AnswerForm,
    ClipScore,
    Head,
    Template,
    Total,
    compare_scores,
    compile_template,
    find_pair_end,
    normalise,
    pair_odds,
    read_pair,
    read_scores,
)
from vrt_lite.protocol.messages import Odds
from vrt_lite.protocol.tags import AFTERWORD, Answer, Malformed

PLAIN = AnswerForm(choice={"OA": Template(r"Video {choice} is better", tie="Both videos")})
THINK = AnswerForm(choice={"OA": Template(r"<answer>\s*Video {choice}")})
FLEX = AnswerForm(choice={"OA": Template(r'"winner":\s*"Video {choice}')})
SHARES = AnswerForm(
    choice={"TA": Template(r"Alignment Score:\s*Video 1:\s*{one}"), "OA": Template(r"Style Score:\s*Video 1:\s*{one}")}
)
POINT = AnswerForm(
    form="clip",
    score={
        "VQ": Template(r"visual quality:\s*{score}", least=1, most=4),
        "TA": Template(r"text-to-video alignment:\s*{score}", least=1, most=4),
        "OA": Template(r"Final Score:\s*{score}", least=1, most=10),
    },
)
_CATEGORIES = (
    '{"prompt": "A fox", "categories": [{"name": "A", "dims": [{"name": "x", "score_1": 4, "score_2": 6}], '
    '"cat_reason": "Video 1 is better lit", "cat_winner": "Video 1"}], "reason": "Video 1 moves more"'
)

PAIRS: list[tuple[AnswerForm, str, int | None]] = [
    # UnifiedReward 1.0: 'Video 1 is better' in output, else 'Video 2 is better' in output, else the same.
    (PLAIN, "Video 1 is better", 1),
    (PLAIN, "Video 2 is better", 2),
    (PLAIN, "Video 2 is better than Video 1.", 2),
    (PLAIN, "**Video 1 is better**", 1),
    (PLAIN, "Overall, Video 2 is better because its fox runs.", 2),
    (PLAIN, "Both videos are equally good.", 0),
    (PLAIN, "Video  1  is\nbetter", 1),
    (PLAIN, "", None),
    (PLAIN, "Video 12 is better", None),
    (PLAIN, "Video 1/2 is better", None),
    (PLAIN, "Video 1 is better. Video 2 is better.", None),
    (PLAIN, "Both videos are good, but Video 1 is better", None),
    (PLAIN, "Video 1 is not better", None),
    # UnifiedReward-Think: the same words in <answer>; what is thought is no answer.
    (THINK, "<think>Video 1 (8/10)</think><answer>Video 1 is better</answer>", 1),
    (THINK, "<think>…</think><answer>\nVideo 2 is better\n</answer>", 2),
    (THINK, "<think>I could say <answer>Video 1 is better</answer></think><answer>Video 2 is better</answer>", 2),
    (THINK, "<think>no end <answer>Video 1 is better</answer>", 1),
    (THINK, "<think>…</think><answer>Video 2 is bet", 2),
    (THINK, "<think>…</think><ANSWER>video 2 is better</ANSWER>", 2),
    (THINK, "<think>…</think><answer>Both videos are equally good</answer>", None),
    (THINK, "<think>…</think>Video 1 is better", None),
    (THINK, "<think>…</think><answer>Video 1 is better</answer><answer>Video 2 is better</answer>", None),
    (THINK, "<think>…</think><answer>Video 1 is better</answer> <answer>Video 1 is better</answer>", 1),
    # UnifiedReward-Flex: JSON with a winner.
    (FLEX, "```json\n" + _CATEGORIES + ', "winner": "Video 1"}\n```', 1),
    (FLEX, _CATEGORIES + ',\n  "winner" : "Video 2"}', None),
    (FLEX, _CATEGORIES + ', "winner": "Video 1 (better composition)"}', 1),
    (FLEX, _CATEGORIES + ', "winner": "Video 2 > Video 1"}', 2),
    (FLEX, _CATEGORIES + ', "winner": "Video 1/2"}', None),
    (FLEX, _CATEGORIES, None),
    (FLEX, _CATEGORIES.replace("A fox", r"\"winner\": \"Video 1\"") + ', "winner": "Video 2"}', 2),
    (FLEX, _CATEGORIES + ', "winner": "Video 1", "winner": "Video 2"}', None),
    # UnifiedReward 2.0: shares that sum to 1.
    (SHARES, "Alignment Score:\n Video 1: 0.4\n Video 2: 0.6\n\nStyle Score:\n Video 1: 0.5264\n Video 2: 0.4736", 1),
    (SHARES, "Alignment Score:\n Video 1: 0.4\nStyle Score:\n Video 1: 0.1", 2),
    (SHARES, "Alignment Score:\n Video 1: 0.4\nStyle Score:\n Video 1: 0.5", 0),
    (SHARES, "Alignment Score:\n Video 1: 0.4\nStyle Score:\n Video 1: 7", None),
    (SHARES, "Alignment Score:\n Video 1: 0.4", None),
]


def read_overall(reply: str, form: AnswerForm) -> int | None:
    read = read_pair(reply, form)
    return read.marks.choices["OA"] if isinstance(read, Answer) else None


@pytest.mark.parametrize(("form", "reply", "overall"), PAIRS)
def test_a_published_reply_about_a_pair_and_its_mirror(form: AnswerForm, reply: str, overall: int | None) -> None:
    assert read_overall(reply, form) == overall
    if form is not SHARES:
        exchanged = reply.translate(str.maketrans("12", "21")).replace("2/1", "1/2")
        assert read_overall(exchanged, form) == (overall and 3 - overall)


def test_a_reply_is_over_behind_its_answer_wherever_it_is_cut() -> None:
    more = " and on" * 60
    whole = f"<think><answer>Video 1 is</answer>{more}</think> <answer>Video 2 is better</answer>{more}"
    end = find_pair_end(whole, THINK)
    assert end == whole.rindex("2 is") + AFTERWORD
    ends = [find_pair_end(whole[:length], THINK) for length in range(len(whole))]
    assert ends == [None] * end + [end] * (len(whole) - end)


SHARED = "Alignment Score:\n Video 1: 0.4\nStyle Score:\n Video 1: 0.75"


@pytest.mark.parametrize(
    ("form", "reply", "given", "expected"),
    [
        (PLAIN, "Video 2 is better", {0: (0.2, 0.4, 0.4), 6: (0.5, 0.1, 0.4)}, {6: (0.2, 0.16, 0.64)}),
        (PLAIN, "Video 2 is better", {6: (0.5, 0.1, 0.4)}, {}),  # how likely a tie was is not known
        (PLAIN, "Both videos", {0: (0.9, 0.05, 0.05)}, {0: (0.9, 0.05, 0.05)}),
        (THINK, "<answer>Video 2", {14: (0.5, 0.1, 0.4)}, {14: (0, 0.2, 0.8)}),
        (SHARES, SHARED, {}, {SHARED.index("0.4"): (0.0, 0.4, 0.6), SHARED.index("0.75"): (0.0, 0.75, 0.25)}),
    ],
)
def test_probabilities_come_from_the_choice_the_word_before_or_the_share(
    form: AnswerForm, reply: str, given: dict[int, Odds], expected: dict[int, Odds]
) -> None:
    read = read_pair(reply, form)
    assert isinstance(read, Answer)
    assert pair_odds(reply, read, given, form) == {at: pytest.approx(odds) for at, odds in expected.items()}


SCORES: list[tuple[str, tuple[float, ...] | None]] = [
    ("visual quality: 4\ntext-to-video alignment: 1\nFinal Score: 6", (4, 1, 6)),
    ("visual quality: 4\ntemporal consistency: 2\ntext-to-video alignment: 1\nFinal Score: 6.5", (4, 1, 6.5)),
    ("Visual quality:4 text-to-video alignment:1 Final score:6/10", (4, 1, 6)),
    ("visual quality: 4\ntext-to-video alignment: 1\n", None),
    ("visual quality: 5\ntext-to-video alignment: 1\nFinal Score: 6", None),
    ("visual quality: 4\ntext-to-video alignment: 1\nFinal Score: 6\nFinal Score: 7", None),
]


@pytest.mark.parametrize(("reply", "expected"), SCORES)
def test_a_published_reply_about_a_clip(reply: str, expected: tuple[float, ...] | None) -> None:
    read = read_scores(reply, POINT)
    assert (None if isinstance(read, Malformed) else tuple(score.value for score in read.values())) == expected


HEADS = AnswerForm(
    form="clip",
    head={"VQ": Head("<|VQ|>", mean=3.0, std=2.0, tie=1.609), "TA": Head("<|TA|>", mean=1.0, std=0.5, tie=1.609)},
    overall=Total(("VQ", "TA")),
)


def test_heads_are_normalised_and_compared_by_their_loss() -> None:
    one, two = normalise({"VQ": 5.0, "TA": 1.0}, HEADS), normalise({"VQ": 2.0, "TA": 1.5}, HEADS)
    assert not isinstance(one, Malformed) and not isinstance(two, Malformed)
    assert [score.value for score in one.values()] == [1.0, 0.0, 1.0]
    verdict = compare_scores(one, two)
    # sigmoid(3 - ln 5), sigmoid(-3 - ln 5): the raw scores differ by 3.
    assert verdict.preferences["VQ"].odds == pytest.approx((0.19045, 0.80071, 0.00984), abs=2e-3)
    assert (verdict.overall.winner, verdict.overall.odds) == (1, None)  # the sum has no scale
    for raw in ({"VQ": float("nan"), "TA": 1.0}, {"VQ": float("inf"), "TA": 1.0}, {"TA": 1.0}):
        assert isinstance(normalise(raw, HEADS), Malformed)


@pytest.mark.parametrize("values", [(-7.25, 2.7), (1 / 3, -0.1), (0.0, 0.0), (1e6, 0.1)])
def test_exchanged_clips_exchange_the_verdict(values: tuple[float, float]) -> None:
    one, two = ({"OA": ClipScore(value, 1.3, 0.7)} for value in values)
    verdict = compare_scores(one, two)
    assert compare_scores(two, one) == verdict.mirrored()
    assert verdict.overall.odds and sum(verdict.overall.odds) == pytest.approx(1)


@pytest.mark.parametrize("form", [PLAIN, THINK, FLEX, SHARES, POINT])
def test_no_text_makes_a_template_go_back(form: AnswerForm) -> None:
    """Every repeat of a pattern is bounded and possessive."""
    for template in (*form.choice.values(), *form.score.values()):
        pattern = compile_template(template.text).pattern
        repeats = re.sub(r"\{\d+,\d+\}\+|-\?\+|\(\?:[^)]*\)\?\+|\(\?[P!<]", "", pattern)
        assert not re.search(r"(?<!\\)[*+?]", repeats), pattern
    text = "<answer> Video " * 20_000 + '"winner": ' * 20_000 + "9" * 100_000
    assert isinstance(read_scores(text, form) if form is POINT else read_pair(text, form), Malformed)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ('form = "loop"', "answer.form"),
        ('form = "pair"', "choice"),
        ('form = "pair"\n[answer.choice.TA]\ntext = "{choice}"', "OA"),
        ('form = "pair"\n[answer.choice."\\u001b[2J"]\ntext = "{choice}"', "40 letters"),
        ('form = "pair"\n[answer.choice.OA]\ntext = "Video"', "answer.choice.OA.text"),
        ('form = "pair"\n[answer.choice.OA]\ntext = "{score}"', "answer.choice.OA.text"),
        ('form = "pair"\n[answer.choice.OA]\ntext = 3', "answer.choice.OA.text"),
        ('form = "pair"\n[answer.choice.OA]\nwords = "{choice}"', "answer.choice.OA.words"),
        ('form = "pair"\n[answer.head.OA]\ntoken = "x"', "choice"),
        ('form = "clip"\n[answer.score.OA]\ntext = "{score}"\n[answer.head.VQ]\ntoken = "x"', "score or head"),
        ('form = "clip"\n[answer.score.OA]\ntext = "{score}"\nleast = 2', "least"),
        ('form = "clip"\n[answer.head.OA]\ntoken = "x"\nstd = 0', "answer.head.OA"),
        ('form = "clip"\n[answer.head.VQ]\ntoken = "x"\n[answer.overall]\nsum = ["MQ"]', "answer.overall.sum"),
        ('form = "clip"\nframes = 300\n[answer.score.OA]\ntext = "{score}"', "frames"),
        ('form = "clip"\nframes = 5\nfps = 2.0\n[answer.score.OA]\ntext = "{score}"', "frames"),
        ("choice = 3", "answer.choice"),
    ],
)
def test_a_form_that_cannot_be_used_is_named(answer: str, named: str) -> None:
    with pytest.raises(ModelError, match=named.replace(".", r"\.")):
        parse_profile(f"[answer]\n{answer}", "test")


def test_a_profile_says_what_is_shown_and_answered() -> None:
    assert parse_profile('name = "x"', "test").keys == ("TA", "VQ", "MQ", "OA")
    text = '[answer]\nfps = 2.0\nframes = 24\n[answer.choice.OA]\ntext = "Video {choice}"'
    profile = parse_profile(text, "test")
    assert profile.keys == ("OA",)
    assert (profile.rounds, profile.system_prompt, profile.workspace) == (1, "", 24)
    assert [profile.count_first(seconds, 900) for seconds in (0.5, 2.0, 5.0, 5.2, 60.0)] == [4, 4, 10, 10, 24]


@pytest.mark.parametrize(
    ("frames", "fps", "nearest", "down"),
    [
        *((2, 24, 2, 2), (3, 24, 2, 2), (5, 2, 4, 4), (7, 2, 6, 6), (8, 8, 4, 4), (17, 8, 4, 4), (23, 24, 4, 4)),
        *((25, 5, 10, 10), (27, 10, 6, 4), (41, 8, 10, 10), (49, 16, 6, 6), (81, 16, 10, 10), (97, 24, 8, 8)),
        *((100, 30, 6, 6), (120, 24, 10, 10), (129, 24, 10, 10), (193, 25, 16, 14), (300, 30, 20, 20)),
    ],
)
def test_as_many_frames_are_shown_as_by_qwen_vl_utils(frames: int, fps: int, nearest: int, down: int) -> None:
    """The counts are those of its `smart_nframes` at 2 frames a second: of version 0.0.8, and of 0.0.14."""
    for rounding, shown in (("nearest", nearest), ("down", down)):
        text = f'[answer]\nfps = 2.0\nframes = 96\nrounding = "{rounding}"\n[answer.choice.OA]\ntext = "{{choice}}"'
        profile = parse_profile(text, "test")
        for seconds in (frames / fps, frames / fps - 0.002):  # as Matroska rounds the times
            assert profile.count_first(seconds, frames) == shown
