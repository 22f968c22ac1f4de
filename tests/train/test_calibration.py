"""Temperatures: found again where they are known, and written to a profile that keeps all else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from train.assessment.outcomes import CaseOutcome
from train.calibration import describe_fits, find_temperature, fit_temperatures, write_temperatures
from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models import find
from vrt_lite.profile import default_profile, load_profile
from vrt_lite.protocol.messages import KEYS, Odds
from vrt_lite.protocol.verdict import TIE_SUFFIX, UNREAD_SUFFIX, choose_temperature, soften


def draw(pairs: int, temperature: float, seed: int) -> list[tuple[Odds, int]]:
    """Probabilities that are too certain by a temperature: labels follow the softened ones."""
    rng = np.random.default_rng(seed)
    drawn: list[tuple[Odds, int]] = []
    for logits in rng.normal(0, 2.0 * temperature, (pairs, 3)):
        shares = np.exp(logits - logits.max())
        tie, one, two = (shares / shares.sum()).tolist()
        odds: Odds = (tie, one, two)
        drawn.append((odds, int(rng.choice(3, p=np.array(soften(odds, temperature)) / sum(soften(odds, temperature))))))
    return drawn


def outcomes(by_key: dict[str, list[tuple[Odds, int]]]) -> list[CaseOutcome]:
    """Cases with these probabilities and labels by key."""
    made: list[CaseOutcome] = []
    for number in range(len(by_key["VQ"])):
        odds = {key: rows[number][0] for key, rows in by_key.items()}
        labels = {key: rows[number][1] for key, rows in by_key.items()}
        winners = {key: int(np.argmax(share)) for key, share in odds.items()}
        made.append(CaseOutcome(f"case {number}", labels, winners, odds))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0, 12.0])
def test_a_known_temperature_is_found_again(temperature: float) -> None:
    assert find_temperature(draw(2_000, temperature, 1)) == pytest.approx(temperature, rel=0.1)


def test_the_found_temperature_has_the_least_loss() -> None:
    drawn = draw(300, 2.0, 2)

    def loss(temperature: float) -> float:
        return -sum(math.log(soften(odds, temperature)[label]) for odds, label in drawn)

    best = find_temperature(drawn)
    assert all(loss(best) <= loss(best * factor) for factor in (0.3, 0.9, 0.999, 1.001, 1.1, 3.0))


def test_each_dimension_has_its_own_and_the_error_shrinks_on_other_pairs() -> None:
    wanted = {"VQ": 4.0, "MQ": 8.0, "OA": 2.0}
    drawn = {key: draw(4_000, value, seed) for seed, (key, value) in enumerate(wanted.items())}
    fits = fit_temperatures(outcomes(drawn), {})
    assert set(fits) == {*wanted, *(key + TIE_SUFFIX for key in wanted)}
    for name, of in fits.items():
        assert of.temperature == pytest.approx(wanted[name.removesuffix(TIE_SUFFIX)], rel=0.2)
        assert of.after < 0.06 < of.before
    for key in wanted:  # half of the ties and half of the winners, each rounded down
        assert fits[key].pairs + fits[key + TIE_SUFFIX].pairs in (1_999, 2_000)
    assert len(describe_fits(fits).splitlines()) == 7
    # Fitted again, with the temperatures in force, nothing changes.
    current = {key: of.temperature for key, of in fits.items()}
    softened = {
        key: [(soften(odds, choose_temperature(current, key, np.argmax(odds))), label) for odds, label in rows]  # type: ignore[arg-type]
        for key, rows in drawn.items()
    }
    again = fit_temperatures(outcomes(softened), current)
    for key, value in current.items():
        assert again[key].temperature == pytest.approx(value, rel=1e-3)
        assert again[key].before == pytest.approx(again[key].after, abs=1e-3)


def test_ties_that_are_right_less_often_become_less_certain() -> None:
    """The same probabilities in ties and in winners: half of the ties are right, and nearly all winners."""
    tie: Odds = (0.9, 0.06, 0.04)
    one: Odds = (0.06, 0.9, 0.04)
    rows = [row for at in range(100) for row in ((tie, at % 4 // 2), (one, int(at % 20 > 1)))]
    fits = fit_temperatures(outcomes({"VQ": [*rows[::2], *rows[1::2]]}), {})
    assert soften(tie, fits["VQ_tie"].temperature)[0] == pytest.approx(0.5, abs=0.1)
    assert soften(one, fits["VQ"].temperature)[1] == pytest.approx(0.9, abs=0.05)
    assert fits["VQ_tie"].after < 0.1 < fits["VQ_tie"].before - 0.2


def test_a_case_without_verdict_label_or_probability_does_not_count() -> None:
    odds: Odds = (0.1, 0.8, 0.1)
    cases = [
        CaseOutcome("no verdict", {"VQ": 1}),
        CaseOutcome("no label", {}, {"VQ": 1}, {"VQ": odds}),
        CaseOutcome("no odds", {"VQ": 1}, {"VQ": 1}),
        CaseOutcome("alone", {"VQ": 1}, {"VQ": 1}, {"VQ": odds}),
    ]
    assert fit_temperatures(cases, {}) == {}


def test_a_profile_keeps_all_but_its_temperatures(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    own = Path(find("vrt-tiny-2").text).parent / "profile.toml"
    path.write_bytes(own.read_bytes())
    before = load_profile(path)
    write_temperatures(tmp_path, {"VQ": 2.5, "OA": 1.25})
    first = load_profile(path)
    assert dict(first.temperatures) == {"VQ": 2.5, "OA": 1.25}
    assert {name for name in before.__dataclass_fields__ if getattr(before, name) != getattr(first, name)} == {
        "temperatures"
    }
    assert first.sha256 != before.sha256
    write_temperatures(tmp_path, dict.fromkeys(KEYS, 3.0))
    assert dict(load_profile(path).temperatures) == dict.fromkeys(KEYS, 3.0)
    write_temperatures(tmp_path, {"VQ": 2.5, "OA": 1.25})
    assert load_profile(path).sha256 == first.sha256
    kept, _, _ = own.read_text(encoding="utf-8").partition("[temperatures]")
    assert path.read_text(encoding="utf-8").startswith(kept.rstrip())


@pytest.mark.parametrize(
    "text", ["temperatures = { VQ = 9.0 }\n", "temperatures.VQ = 9.0\n", "[temperatures] # x\nVQ=9\n"]
)
def test_every_way_to_write_temperatures_is_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(f'name = "x"\n{text}[clock]\nrule = "exact"\n', encoding="utf-8")
    assert load_profile(path).temperatures["VQ"] == 9
    write_temperatures(tmp_path, {"TA": 2.0})
    after = load_profile(path)
    assert (dict(after.temperatures), after.name, after.clock.rule) == ({"TA": 2.0}, "x", "exact")
    assert after.dimensions == default_profile().dimensions


def test_a_missing_profile_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        write_temperatures(tmp_path, {"TA": 2.0})
    path = tmp_path / "profile.toml"
    path.write_text("temperatures = {\nVQ = 9.0 }\n", encoding="utf-8")
    with pytest.raises((UsageError, ModelError)):
        write_temperatures(tmp_path, {"TA": 2.0})


def test_pairs_whose_caption_is_not_understood_have_their_own() -> None:
    rows = [*draw(2_000, 2.0, 5), *draw(2_000, 6.0, 6)]
    cases = outcomes({"VQ": rows})
    unread = {case.key for case in cases[2_000:]}
    fits = fit_temperatures(cases, {}, unread=unread)
    assert set(fits) == {"VQ", "VQ_tie", "VQ_unread", "VQ_tie_unread"}
    for name, of in fits.items():
        assert of.temperature == pytest.approx(6.0 if name.endswith(UNREAD_SUFFIX) else 2.0, rel=0.2)
        assert of.after < 0.06
    assert set(fit_temperatures(cases[2_000:], {}, unread=unread)) == {"VQ_unread", "VQ_tie_unread"}
