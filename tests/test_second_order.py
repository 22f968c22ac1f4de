"""`--orders auto`: the second order is judged only if the first leaves a doubt, and the verdict says so."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import says, serving
from judgements import FINAL, ONE, TIED, TWO, call, check_record, sure, with_odds
from web.conftest import CIRCLE, PROMPT, STAR

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.errors import UsageError
from vrt_lite.forecast import announce, predict_like
from vrt_lite.interfaces import Event, Predicted, TimeRange
from vrt_lite.models import find
from vrt_lite.modes import LocalMode
from vrt_lite.protocol.messages import Odds, Reply
from vrt_lite.protocol.verdict import SkippedOrder
from vrt_lite.records.judgement import Judgement
from vrt_lite.settings import Settings
from vrt_lite.show.judge_view import JudgeView
from vrt_lite.show.pair_words import verdict_lines
from vrt_lite.video import open_clip
from vrt_lite.viewer.run_view import prepare_pair

SETTINGS = Settings(both_orders="auto", confidence=0.9)
NOT_NEEDED = "second order not needed: the probability 0.93 reaches the confidence 0.9"


def answer(winner: int, *overall: float) -> Reply:
    """A final answer with this overall choice, and these odds of it."""
    text = f"<think>T</think><final answer>TA=0, VQ=2, MQ=1, OA={winner}</final answer>"
    tie, one, two = overall
    return with_odds(text, TIED, TWO, ONE, (tie, one, two))


def judged(*replies: str | Reply, settings: Settings = SETTINGS) -> tuple[Judgement, int]:
    """The judgement of a script, by its own probabilities, and how many replies it took."""
    backend = ScriptedBackend(replies)
    with Judge(settings=settings, backend=backend, measures=False) as judge:
        judge.mode.profile = replace(judge.mode.profile, temperatures={})
        judgement = judge.compare(STAR, CIRCLE, prompt=PROMPT)
    plain = json.loads(json.dumps(judgement.to_json()))
    check_record(plain)
    assert Judgement.from_json(plain) == judgement
    return judgement, len(backend.conversations)


@pytest.mark.parametrize(("winner", "odds"), [(2, TWO), (1, (0.05, 0.9, 0.05)), (0, (0.93, 0.03, 0.04))])
def test_a_certain_first_order_is_enough(winner: int, odds: Odds) -> None:
    judgement, asked = judged(answer(winner, *odds))
    assert (asked, judgement.winner, len(judgement.orders)) == (1, winner, 1)
    assert judgement.skipped_order == SkippedOrder(odds[winner], 0.9)
    assert (judgement.settings.both_orders, judgement.settings.confidence) == ("auto", 0.9)
    assert (judgement.warnings, judgement.warning_kinds) == ((), ())


def doubtful() -> Iterator[Any]:
    recommended, rounds = call(9), find().profile.rounds
    digits = [recommended.index(f"{key}=") + 3 for key in ("TA", "VQ", "MQ", "OA")]
    reply = Reply(recommended, odds=dict(zip(digits, (TIED, TWO, ONE, TWO), strict=True)))
    # The replies, how many of them are of the first order, and the winner.
    yield pytest.param([answer(2, 0.1, 0.011, 0.889), answer(1, 0.1, 0.8, 0.1)], 1, 2, id="both agree")
    yield pytest.param([answer(2, 0.1, 0.2, 0.7)] * 2, 1, 0, id="opposite winners")
    yield pytest.param([answer(2, 0.01, 0.98, 0.01), sure()], 1, 0, id="a sampled choice that is not the likeliest")
    yield pytest.param([FINAL, FINAL], 1, 0, id="no probabilities")
    yield pytest.param([*[reply] * rounds, sure()], rounds, 0, id="no final answer")


@pytest.mark.parametrize(("replies", "first", "winner"), list(doubtful()))
def test_a_doubtful_first_order_is_judged_again_as_with_both_orders(
    replies: list[str | Reply], first: int, winner: int
) -> None:
    judgement, asked = judged(*replies)
    assert (asked, judgement.winner, judgement.skipped_order) == (first + 1, winner, None)
    assert "skipped_order" not in judgement.to_json()
    both, _ = judged(*replies, settings=Settings(both_orders=True))
    assert (judgement.verdict, judgement.disagreements) == (both.verdict, both.disagreements)


@pytest.mark.parametrize("confidence", [0.51, 0.95])
def test_the_confidence_is_the_border(confidence: float) -> None:
    settings = replace(SETTINGS, confidence=confidence)
    for one, asked in ((confidence, 1), (round(confidence - 1e-6, 9), 2)):
        assert judged(answer(1, 0.0, one, round(1 - one, 9)), sure(), settings=settings)[1] == asked


def test_an_order_that_fails_is_no_order_that_was_skipped() -> None:
    retries = find().profile.retries + 1
    for replies in (("",) * retries + (sure(),), (answer(2, 0.3, 0.1, 0.6),)):
        judgement, _ = judged(*replies)
        assert (len(judgement.orders), judgement.skipped_order) == (1, None)
        assert judgement.warning_kinds == ("one_order",)


@pytest.mark.parametrize("settings", [{"both_orders": "maybe"}, {"confidence": 0.5}, {"confidence": 1.0}])
def test_other_values_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is not possible; give"):
        Judge(settings=Settings(**settings))


def test_the_record_the_terminal_and_the_report_say_it() -> None:
    judgement, _ = judged(sure())
    assert NOT_NEEDED in verdict_lines(judgement)
    assert NOT_NEEDED in prepare_pair(judgement)["words"]["lines"]
    assert not any("second order" in line for line in verdict_lines(judged(sure(), settings=Settings())[0]))
    for impossible in (0.5, 2.0):
        skipped = {"probability": impossible, "confidence": 0.9}
        with pytest.raises(UsageError, match="no judgement of vrt-lite"):
            Judgement.from_json({**judgement.to_json(), "skipped_order": skipped})


# The command line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--orders=maybe", "'--orders': 'maybe' is not one of 'one', 'both', 'auto'."),
        ("--orders=", "'' is not one of 'one', 'both', 'auto'."),
        ("--orders auto --skip-second-at 1", "1.0 is not in the range 0.5<x<1."),
        ("--skip-second-at 0.8", "--skip-second-at 0.8 is about --orders auto: give both."),
        ("--orders both --skip-second-at 0.8", "--skip-second-at 0.8 is about --orders auto: give both."),
    ],
)
def test_what_is_refused(words: str, expected: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", STAR, CIRCLE, *words.split()]) == 2
    assert expected in capfd.readouterr().err


def test_the_command_asks_again_only_in_doubt(capfd: pytest.CaptureFixture[str]) -> None:
    def orders(*options: str) -> list[Any]:
        given = [STAR, CIRCLE, "-p", PROMPT, "--no-measures", "--json", "--orders", "auto", *options]
        assert run(["compare", *given]) == 0
        record = json.loads(capfd.readouterr().out)
        check_record(record)
        return [len(record["orders"]), record.get("skipped_order", {}).get("confidence"), record["warnings"]]

    assert orders("--skip-second-at", "0.51") == [1, 0.51, []]
    assert orders() == [2, None, []]  # calibrated, the bundled judge is never that certain
    with serving(says(FINAL)) as server:
        assert orders("--backend", server.url)[0] == 2, "it gives no probabilities"
        assert len(server.bodies) == 2


# The time that is announced


def test_the_time_of_a_second_order_is_announced_beside_that_of_one() -> None:
    mode = LocalMode(find(), Settings(), digest=str, jobs=1, verbose=False)
    with Judge(settings=Settings(cache=False), measures=False) as judge:
        judge.compare(STAR, CIRCLE, prompt=PROMPT)
    one = predict_like(mode, Path(STAR))
    assert one
    said: list[Event] = []
    plan = mode.plan()
    assert plan
    with open_clip(Path(STAR)) as clip:
        size = clip.info.width, clip.info.height
    for orders in (False, True, "auto"):
        announce(plan, size, said.append, both_orders=orders)
    both = TimeRange(one.least, 2 * one.most)
    assert said == [Predicted(one), Predicted(both), Predicted(one, both)]
    pipe = io.StringIO()
    JudgeView(pipe).observe(Predicted(TimeRange(120.0, 240.0), TimeRange(120.0, 480.0)))
    assert pipe.getvalue() == "this will take 2 to 4 min here, or 2 to 8 min with a second order\n"
