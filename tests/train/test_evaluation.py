"""Evaluating a judge on cases: figures against ones worked out by hand, views, and going on after an interruption."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judgements import TIED, TWO, call, with_odds
from numpy.typing import NDArray

from train.assessment import text_tables
from train.assessment.assess import (
    OUTCOMES,
    LoadedJudge,
    agree,
    evaluate,
    gains,
    judge_one,
    load_report,
    report,
    wrap_backend,
    write_report,
)
from train.assessment.compute_figures import agreement, calibration, difference, figures
from train.assessment.outcomes import CaseOutcome, append_outcomes, read_outcomes
from train.training_cases import TrainingCase
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.errors import UsageError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.judge import Pair
from vrt_lite.profile import Profile, default_profile
from vrt_lite.protocol.messages import KEYS, Choice, Conversation, FrameRef, Odds, Reply, shown_first

# TA, VQ, MQ, OA: the label and the verdict; the tenth has none.
DOZEN = (
    ("0121", "0121"),
    ("0121", "0120"),
    ("0102", "0102"),
    ("1111", "1112"),
    ("2222", "0222"),
    ("0000", "0000"),
    ("0000", "0100"),
    ("0011", "0011"),
    ("0022", "0021"),
    ("0202", ""),
    ("1010", "1010"),
    ("0120", "0210"),
)


def choices(digits: str) -> dict[str, Choice]:
    return dict(zip(KEYS, map(int, digits), strict=False))  # type: ignore[arg-type]


def dozen() -> list[CaseOutcome]:
    made = [
        CaseOutcome(f"case {i}", choices(a), choices(b), rounds=1, well_formed=bool(b))
        for i, (a, b) in enumerate(DOZEN)
    ]
    made[0] = replace(made[0], hidden=True, rounds=2, calls=1, defects=("blur",))
    made[1] = replace(
        made[1], hidden=True, rounds=3, calls=1, corrections=1, well_formed=False, defects=("blur", "stutter")
    )
    made[9] = replace(made[9], hidden=True, rounds=4, calls=2, corrections=2, error="no verdict")
    made[4] = replace(made[4], source="recommended")
    return made


def final(digits: str, odds: Odds | None = None) -> Reply:
    text = "<final answer>" + ", ".join(f"{key}={digit}" for key, digit in zip(KEYS, digits, strict=True))
    text += "</final answer>"
    return with_odds(text, odds, odds, odds, odds) if odds else Reply(text)


class Numbered:
    """A frame store whose pictures are their own index."""

    def pixels(self, frames: Sequence[FrameRef]) -> list[NDArray[np.uint8]]:
        return [np.full((28, 28, 3), 100 * frame.clip + frame.index, np.uint8) for frame in frames]


class Looking(ScriptedBackend):
    """A scripted judge that looks at all that it is shown, and keeps the pictures' first values."""

    def __init__(self, replies: Iterable[str | Reply]) -> None:
        super().__init__(replies)
        self.looked: list[list[int]] = []

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        shown = frames.pixels([frame for message in conversation for frame in message.frames])
        self.looked.append([int(picture[0, 0, 0]) for picture in shown])
        return super().reply(conversation, frames, sampling=sampling, observe=observe)


def case(number: int, labels: str = "0212", *, hidden: bool = False) -> TrainingCase:
    @contextlib.contextmanager
    def frames(profile: Profile) -> Generator[FrameStore]:
        yield Numbered()

    return TrainingCase(f"case:{number}", Pair("a fox", (3.0, 3.0)), choices(labels), frames, hidden=hidden)


def scripted(*replies: str | Reply, digest: str = "a judge") -> LoadedJudge:
    return wrap_backend(Looking(replies), default_profile(), name="scripted", digest=digest)


def shares(made: dict[str, dict[str, int]]) -> tuple[int, int]:
    return made["right"], made["of"]  # type: ignore[return-value]


def test_figures_equal_those_worked_out_by_hand() -> None:
    made = figures(dozen())
    assert made["pairs"] == {"judged": 12, "verdicts": 11, "hidden": 3}
    tau = {key: shares(of["tau"]) for key, of in made["accuracy"].items()}
    diff = {key: shares(of["diff"]) for key, of in made["accuracy"].items()}
    assert tau == {"TA": (10, 12), "VQ": (9, 12), "MQ": (10, 12), "OA": (8, 12)}
    assert diff == {"TA": (2, 3), "VQ": (5, 7), "MQ": (7, 8), "OA": (4, 8)}
    assert shares(made["all_right"]) == (5, 12)
    assert shares(made["well_formed"]) == (10, 12)
    assert shares(made["tool_rate"]) == (3, 12)
    assert shares(made["recommended"]) == (1, 11)
    assert (made["rounds"], made["calls"], made["corrections"]) == (1.5, round(4 / 12, 6), 0.25)
    assert made["rounds_histogram"] == {"1": 9, "2": 1, "3": 1, "4": 1}
    overall = made["accuracy"]["OA"]["tau"]
    assert overall["value"] == pytest.approx(2 / 3)
    assert (overall["low"], overall["high"]) == pytest.approx((0.3906, 0.8619), abs=2e-4)  # Wilson's of 8 in 12


def test_figures_by_evidence_and_by_defect() -> None:
    made = figures(dozen())
    hidden, open_ = made["evidence"]["hidden"], made["evidence"]["open"]
    assert (hidden["pairs"], shares(hidden["all_right"]), shares(hidden["OA"])) == (3, (1, 3), (1, 3))
    assert (open_["pairs"], shares(open_["all_right"]), shares(open_["OA"])) == (9, (4, 9), (7, 9))
    by = {name: (of["pairs"], shares(of["all_right"])) for name, of in made["defects"].items()}
    assert by == {"none": (10, (4, 10)), "blur": (2, (1, 2)), "stutter": (1, (0, 1))}
    assert next(iter(by)) == "none"


def test_figures_of_nothing_are_finite_json() -> None:
    made = figures([])
    assert made["all_right"]["value"] is None
    assert "NaN" not in json.dumps(made)


def test_calibration_by_hand() -> None:
    made = calibration([(0.95, True), (0.91, True), (0.97, False), (0.55, True), (0.52, False), (1.0, True)])
    assert [(row["low"], row["pairs"], row["accuracy"]) for row in made["rows"]] == [(0.5, 2, 0.5), (0.9, 4, 0.75)]
    assert [row["confidence"] for row in made["rows"]] == pytest.approx([0.535, 0.9575])
    assert made["ece"] == pytest.approx((2 * 0.035 + 4 * 0.2075) / 6)


def test_calibration_is_of_the_winner_named() -> None:
    odds = {"TA": (0.1, 0.2, 0.7), "VQ": (0.62, 0.2, 0.18)}
    one = CaseOutcome("a", choices("20"), choices("20"), odds)  # TA and VQ alone have labels
    made = figures([one])["calibration"]
    assert made["all"]["pairs"] == 2
    assert made["all"]["ece"] == pytest.approx((0.3 + 0.38) / 2)


def test_differences_are_paired_and_of_hidden_cases() -> None:
    def judged(verdicts: str, hidden: str) -> dict[str, CaseOutcome]:
        return {
            str(i): CaseOutcome(str(i), choices("0000"), choices(digit * 4), hidden=mark == "h")
            for i, (digit, mark) in enumerate(zip(verdicts, hidden, strict=True))
        }

    asked, other = judged("00010", "hhhho"), judged("10110", "hhhho")
    made = difference(asked, other, hidden=True)["all_right"]
    assert (made["pairs"], made["mean"]) == (4, 0.5)
    assert 0 <= made["low"] < 0.5 < made["high"] <= 1
    sure = difference(judged("000", "hhh"), judged("111", "hhh"), hidden=True)["OA"]
    assert (sure["mean"], sure["low"], sure["high"]) == (1, 1, 1)
    assert difference(asked, {}, hidden=True)["all_right"]["mean"] is None


def test_an_outcome_tells_how_the_judge_wrote() -> None:
    asking = judge_one(case(0), default_profile(), Looking([call(7, 8), final("0212", TWO)]))
    assert (asking.rounds, asking.calls, asking.corrections, asking.well_formed) == (2, 1, 0, True)
    assert (asking.source, asking.all_right, asking.odds["MQ"]) == ("final", True, TWO)
    corrected = judge_one(case(0), default_profile(), Looking([call(500), final("0212")]))
    assert (corrected.rounds, corrected.calls, corrected.corrections) == (2, 1, 1)
    assert corrected.all_right and not corrected.well_formed and not corrected.odds
    silent = judge_one(case(0), default_profile(), Looking(["hm", "hm"]))
    assert (silent.winners, silent.all_right, silent.well_formed) == ({}, False, False)
    assert silent.error.startswith("No verdict")


def test_random_frames_stand_in_for_those_asked_for() -> None:
    profile = default_profile()
    first = [100 * clip + frame.index for clip in (0, 1) for frame in shown_first(48, 4, clip)]

    def looked(view: str) -> list[list[int]]:
        backend = Looking([call(6, 7, 60), final("0212")])
        judge_one(case(3), profile, backend, view=view)  # type: ignore[arg-type]
        return backend.looked

    assert looked("asked") == [first, [*first, 5, 6, 111]]
    opening, then = looked("random")
    assert opening == first
    assert then[:8] == first
    assert [value // 100 for value in then[8:]] == [0, 0, 1]
    assert len(set(then)) == 11 and then[8:] != [5, 6, 111]
    assert looked("random") == [opening, then]


def test_without_the_tool_the_recommendation_stands() -> None:
    made = judge_one(case(0), default_profile(), Looking([call(6)]), view="none")
    assert (made.rounds, made.calls, made.source, made.well_formed) == (1, 1, "recommended", True)
    assert made.winners == choices("0212")


def test_an_evaluation_goes_on_where_it_ended(tmp_path: Path) -> None:
    cases = [case(i, hidden=i == 1) for i in range(3)]
    backend = Looking([final("0212", TIED), call(9), final("0210"), final("0212")])
    judging = wrap_backend(backend, default_profile(), name="scripted", digest="a judge")
    seen: list[tuple[int, int]] = []
    legs = []
    for _ in range(3):
        legs.append(
            evaluate(judging, cases, folder=tmp_path, minutes=0, progress=lambda done, of: seen.append((done, of)))
        )
    assert legs[:2] == [None, None]
    assert len(backend.conversations) == 4
    assert seen == [(1, 3), (2, 3), (3, 3)]
    found = legs[2]
    assert found is not None
    assert list(found) == ["case:0", "case:1", "case:2"]
    assert [one.all_right for one in found.values()] == [True, False, True]
    again = evaluate(judging, cases, folder=tmp_path)
    assert again == found  # whatever was kept comes back the same, and the script is used up


def test_a_line_cut_short_is_judged_again(tmp_path: Path) -> None:
    cases = [case(i) for i in range(2)]
    evaluate(scripted(final("0212"), final("0000")), cases, folder=tmp_path)
    file = tmp_path / OUTCOMES
    file.write_bytes(file.read_bytes()[:-20])
    made = evaluate(scripted(final("1111")), cases, folder=tmp_path)
    assert made is not None
    assert [one.winners["OA"] for one in made.values()] == [2, 1]
    assert len(file.read_bytes().splitlines()) == 2


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / OUTCOMES
    file.write_text('{"judge": "a", "view": "asked"}\n{"judge": "a", "view": "asked"}\n')
    with pytest.raises(UsageError, match="line 1"):
        read_outcomes(file)
    file.write_text("nonsense\n{}\n")
    with pytest.raises(UsageError):
        evaluate(scripted(), [case(0)], folder=tmp_path)


def test_outcomes_are_kept_by_judge_view_and_labels(tmp_path: Path) -> None:
    backend = Looking([final("0212"), final("1212"), call(6), final("2222")])
    profile = default_profile()
    one = wrap_backend(backend, profile, name="scripted", digest="one")
    other = wrap_backend(backend, profile, name="scripted", digest="other")
    shorter = wrap_backend(backend, replace(profile, rounds=2), name="scripted", digest="one")
    assert len({one.digest, other.digest, shorter.digest}) == 3
    evaluate(one, [case(0)], folder=tmp_path)
    evaluate(other, [case(0)], folder=tmp_path)
    evaluate(one, [case(0)], folder=tmp_path, view="none")
    made = evaluate(one, [case(0, "2222")], folder=tmp_path)
    assert made is not None and made["case:0"].all_right
    kept = read_outcomes(tmp_path / OUTCOMES)
    winners = {key: found["case:0"].winners["TA"] for key, found in kept.items()}
    assert winners == {(one.digest, "asked"): 2, (other.digest, "asked"): 1, (one.digest, "none"): 0}


def test_two_cases_of_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="case:0"):
        evaluate(scripted(final("0212"), final("0212")), [case(0), case(0)], folder=tmp_path)


def test_a_judge_that_passes_over_a_case_is_noticed(tmp_path: Path) -> None:
    lazy = replace(scripted(), judge=lambda cases, view: iter(()))
    with pytest.raises(RuntimeError, match="case:0"):
        evaluate(lazy, [case(0)], folder=tmp_path)


def test_agreement_lists_what_differs(tmp_path: Path) -> None:
    cases = [case(i) for i in range(3)]
    one = scripted(final("0212"), final("0210"), "hm", "hm", digest="one")
    other = scripted(final("0212"), final("0211"), "hm", "hm", digest="other")
    assert agree(one, other, cases, folder=tmp_path, minutes=0) is None
    made = None
    for _ in range(8):
        made = made or agree(one, other, cases, folder=tmp_path, minutes=0)
    assert made is not None
    assert (made["same"]["right"], made["same"]["of"]) == (1, 3)
    assert made["differ"] == [
        {"key": "case:1", "one": choices("0210"), "other": choices("0211")},
        {"key": "case:2", "one": {}, "other": {}},
    ]
    assert "case:1: TA=0, VQ=2, MQ=1, OA=0 and TA=0, VQ=2, MQ=1, OA=1" in text_tables.agreements(made)
    assert agreement({}, {})["same"]["value"] is None


def test_a_report_is_written_and_read_again(tmp_path: Path) -> None:
    every = {one.key: one for one in dozen()}
    made = report({"asked": every, "random": every}, about={"judge": "scripted", "cases": "by hand"})
    assert set(made["views"]) == {"asked", "random"}
    assert made["differences"]["asked - random"]["all_right"] == {"pairs": 3, "mean": 0, "low": 0, "high": 0}
    assert load_report(write_report(made, tmp_path)) == made
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(UsageError, match="is not a report"):
        load_report(tmp_path / "other.json")


def test_outcomes_are_whole_after_writing_and_reading(tmp_path: Path) -> None:
    odds = {"TA": (0.1, 0.2, 0.7), "OA": (0.5, 0.25, 0.25)}
    full = replace(dozen()[1], odds=odds, seconds=1.5, source="final")
    append_outcomes(tmp_path / "a.jsonl", [full, dozen()[9]], judge="a", view="random")
    assert list(read_outcomes(tmp_path / "a.jsonl")["a", "random"].values()) == [full, dozen()[9]]


def test_tables_say_what_the_figures_are() -> None:
    every = {one.key: one for one in dozen()}
    made = report({"asked": every, "none": every}, about={})
    text = text_tables.stages({"cold start": made, "refine": made})
    assert text.count("cold start") == 1
    assert "| cold start | frames asked for | 12 | 41.7 (19.3-68.0) | 83.3" in text
    assert "|  | no tool | 12 |" in text
    asked = made["views"]["asked"]
    assert "| alignment (TA) | 83.3 (55.2-95.3) | 66.7 (20.8-93.9) | - |" in text_tables.dimensions(asked)
    assert "| hidden evidence | 3 | 33.3" in text_tables.groups(asked)
    assert "| asked - none | 3 | +0.0 (+0.0 to +0.0)" in text_tables.differences(made["differences"])
    assert text_tables.reliability(asked).count("\n") == 2


def test_stages_are_compared_case_by_case(tmp_path: Path) -> None:
    cases = [case(i) for i in range(3)]
    evaluate(scripted(final("0212"), final("0000"), final("1212"), digest="one"), cases, folder=tmp_path / "one")
    evaluate(scripted(*[final("0212")] * 3, digest="other"), cases, folder=tmp_path / "other")
    evaluate(scripted(*[final("2222")] * 3, digest="other"), cases, folder=tmp_path / "other", view="random")
    made = gains({"cold start": tmp_path / "one", "refine": tmp_path / "other"})
    found = {name: of["mean"] for name, of in made["refine - cold start"].items()}
    assert found == pytest.approx({"all_right": 2 / 3, "TA": 1 / 3, "VQ": 1 / 3, "MQ": 1 / 3, "OA": 1 / 3})
    assert "| refine - cold start | 3 | +66.7" in text_tables.differences(made)
    with pytest.raises(UsageError, match="no outcomes"):
        gains({"cold start": tmp_path})
