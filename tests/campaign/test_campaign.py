"""The program withstands one attack of each kind; `make campaign` makes many."""

from __future__ import annotations

import time
from itertools import islice

from campaign_attacks import ATTACKS
from run_campaign import list_cases, run_cases


def test_the_program_withstands_one_attack_of_each_kind() -> None:
    cases = islice(list_cases(1), len(ATTACKS))
    counts, failed = run_cases(cases, until=time.monotonic() + 200, workers=2)
    assert set(counts) == set(ATTACKS)
    assert not failed
