"""A campaign notices what a program must not do, and tells the same story again from its seed."""

from __future__ import annotations

import sys
import time
from collections import Counter
from itertools import islice

import pytest
from campaign_attacks import ATTACKS, WEIGHTS
from run_campaign import list_cases, run_cases

PLANTED = {
    "crash": "ended with status",
    "hang": "at work for more than 8 s",
    "memory": "took 1.2",
    "elsewhere": "written outside of its folder: ['stray']",
    "unexpected": "status 1 of",
    "traceback": "Traceback",
    "unprintable": "not printable",
    "error": "KeyError: 'nothing'",
}


@pytest.mark.skipif(sys.platform == "win32", reason="ends in other words there")
def test_what_a_program_must_not_do_is_noticed() -> None:
    cases = [f"{kind} 1.{number}" for number, kind in enumerate(["good", *PLANTED, "good"])]
    said: list[str] = []
    until = time.monotonic() + 200
    counts, failures = run_cases(iter(cases), "planted_attacks", until=until, workers=1, seconds=8, report=said.append)
    assert counts == Counter(["good", *PLANTED, "good"])
    assert [failure.case.split()[0] for failure in failures] == list(PLANTED)
    for failure, words in zip(failures, PLANTED.values(), strict=True):
        assert words in failure.what, failure
    assert len(said) == len(failures)


def test_the_cases_of_a_seed_are_always_the_same_and_have_each_kind() -> None:
    assert list(islice(list_cases(WEIGHTS, 7), 100)) == list(islice(list_cases(WEIGHTS, 7), 100))
    assert list(islice(list_cases(WEIGHTS, 7), 100)) != list(islice(list_cases(WEIGHTS, 8), 100))
    assert {case.split()[0] for case in islice(list_cases(WEIGHTS, 7), len(WEIGHTS))} == set(ATTACKS) == set(WEIGHTS)


def test_the_program_withstands_one_attack_of_each_kind() -> None:
    cases = islice(list_cases(WEIGHTS, 1), len(WEIGHTS))
    counts, failures = run_cases(cases, "campaign_attacks", until=time.monotonic() + 200, workers=2)
    assert counts.total() == len(WEIGHTS)
    assert not failures
