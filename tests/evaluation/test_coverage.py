"""What a judge did not judge is in no figure of an evaluation, and every place that shows figures says so."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from hypothesis import given
from hypothesis import strategies as st
from judgements import verdict_of, with_odds
from msgspec.structs import replace
from reports import Report

from vrt_lite import Figures, Result, ScriptedBackend, Store, evaluate
from vrt_lite.errors import Warned
from vrt_lite.evaluation.compute import compute_figures
from vrt_lite.models import find
from vrt_lite.protocol.messages import KEYS, Odds, Reply
from vrt_lite.records.figures import Coverage
from vrt_lite.records.labelled import EvalAbout, EvalCase, Order, Orders
from vrt_lite.show.evaluation_sections import draw_plots, list_charts, show_figures
from vrt_lite.viewer import write_report

READ = "A blue star moves up."
SCOPE = find(None).profile.scope
SURE: tuple[Odds, ...] = ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.1, 0.1, 0.8))


def answer(ta: int, vq: int, mq: int, oa: int) -> Reply:
    """A final answer with certain probabilities."""
    text = f"<final answer>TA={ta}, VQ={vq}, MQ={mq}, OA={oa}</final answer>"
    return with_odds(text, *(SURE[winner] for winner in (ta, vq, mq, oa)))


FIRST = answer(1, 1, 1, 1)
FIRST_BUT_ALIGNMENT = answer(0, 1, 1, 1)


class Made:
    """The figures that the bundled judge's profile gets from a table, and all that shows them."""

    def __init__(
        self, folder: Path, rows: Sequence[Mapping[str, str]], replies: Sequence[Reply], order: Orders = "given"
    ) -> None:
        for n, name in enumerate("ab"):
            write_clip(folder / f"{name}.mp4", frames=2 + n, size=(56, 56))
        table = folder / "pairs.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["a", "b", *dict.fromkeys(key for row in rows for key in row)])
            writer.writeheader()
            writer.writerows({"a": "a.mp4", "b": "b.mp4", **row} for row in rows)
        with Store(folder / "runs.sqlite") as store:
            made = evaluate(table, backend=ScriptedBackend(replies), order=order, store=store)
            self.figures = made.figures
            self.scope = store.run(made.run).read_about(EvalAbout, "an evaluation").scope
            write_report(store.run(made.run), folder / "r.html")
        self.json = json.loads(json.dumps(made.figures.to_json()))
        self.terminal = shown(self.figures)
        self.page = re.sub(r"[|\n]+", "|", Report(folder / "r.html").words)
        self.plots = [path.stem for path in draw_plots(self.figures, folder / "plots")]

    def rows(self, name: str) -> list[str]:
        """The lines of the terminal that begin with a name, | between their cells."""
        return [re.sub(r" {2,}", "|", line.strip()) for line in self.terminal.splitlines() if line.startswith(name)]


def shown(figures: Figures) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        show_figures(figures, judge="a judge", run="a run")
    return out.getvalue()


def unread(number: int) -> str:
    return f"A fox runs over snow, take {number}."


def test_a_dimension_that_no_pair_was_judged_in_has_no_figure(tmp_path: Path) -> None:
    """Every label of alignment is a tie, and so is what the judge says where it cannot read: that once scored 100."""
    rows = [{"prompt": unread(n), "overall": "A", "TA": "same"} for n in range(8)]
    made = Made(tmp_path, rows, [FIRST_BUT_ALIGNMENT] * 8)
    assert made.json["accuracy"]["TA"] is made.json["confusion"]["TA"] is None
    assert made.json["coverage"] == {
        "OA": {"pairs": 8, "labelled": 8, "not_judged": 0, "failed": 0},
        "TA": {"pairs": 0, "labelled": 8, "not_judged": 8, "failed": 0},
    }
    # No other line of a table, and no other note, speaks of alignment: the overall comes before it and ends the table.
    assert made.rows("Prompt alignment (TA)") == [
        "Prompt alignment (TA)|0 of 8|not judged",
        "Prompt alignment (TA): 8 of 8 pairs not judged; they are left out of its figures",
    ]
    told = [line for line in made.terminal.splitlines() if not line.startswith("judge: ")]  # its scope names it too
    assert len(re.findall("alignment", "\n".join(told).replace("alignment (TA) is not judged", ""))) == 2
    assert "|Prompt alignment (TA)|0 of 8|not judged|" in made.page
    assert made.plots == ["accuracy-OA"]
    share = "|100.0 (68-100)" * 2
    assert made.rows("Overall ") == [f"Overall|8 of 8{share}|0.0 / 0.0|100.0 / 100.0", f"Overall{share}"]


def test_figures_are_of_the_one_pair_that_was_judged(tmp_path: Path) -> None:
    """Six ties that nobody said are as labelled; the one that was judged is not. Two failed, and are wrong alone."""
    rows = [{"prompt": unread(n), "overall": "A", "TA": "same"} for n in range(6)]
    rows.append({"prompt": READ, "overall": "A", "TA": "A"})
    gone = [{"prompt": READ, "TA": "B", "b": "gone.mp4"}, {"prompt": unread(7), "TA": "same", "b": "gone.mp4"}]
    made = Made(tmp_path, [*rows, *gone], [FIRST_BUT_ALIGNMENT] * 7)
    of = made.figures.accuracy["TA"]
    assert of
    assert (of.pairs, of.labelled, of.not_judged, of.failed, of.prompts, of.probabilities) == (1, 9, 6, 2, 1, 1)
    shares = (of.tau, of.diff, of.sign, of.calibrated)
    assert {(share.right, share.of) for share in shares} == {(0, 1)}
    # The labelled tie that failed is in no diff.
    assert [(share.right, share.of) for share in (of.tau_all, of.diff_all)] == [(0, 3), (0, 2)]
    assert "Prompt alignment (TA): 2 failed counted as wrong: tau 0.0" in made.terminal
    # Its baselines are of the same pair, whose label is A; those of the table are named as such.
    assert (of.baselines.pairs, of.baselines.tie.tau.right, of.baselines.commonest.tau.answer) == (1, 0, 1)
    assert made.figures.baselines["TA"].tie.tau.right == 7
    assert made.figures.confusion["TA"] == ((0, 0, 1), (0, 0, 0), (0, 0, 0))
    name, line = "Prompt alignment (TA)", "0.0 (0-79)"
    assert made.rows(f"{name} ") == [f"{name}|1 of 9|{line}|{line}|0.0 / 0.0|100.0 / 100.0", f"{name}|{line}|{line}"]
    assert f"|{name}|1 of 9|{line}|" in made.page
    assert f"|{name}: 6 of 9 pairs not judged; they are left out of its figures|" in made.page
    drawn = {chart.title: {row.label: row.words for row in chart.rows} for chart in list_charts(made.figures)}
    assert drawn[f"accuracy, {name} (1 of 9)"]["tau"] == f"{line} of 1"
    assert drawn["accuracy, Overall"]["tau"] == "100.0 (65-100) of 7"
    assert "tau 100.0" not in "".join(line for line in made.terminal.splitlines() if "alignment" in line)
    # The scope, and the warnings of the judgements.
    warning = "in 6 judgement(s): The judge does not understand this prompt: prompt alignment (TA) is not judged."
    assert made.scope == made.figures.scope == made.json["scope"] == SCOPE != ""
    assert f"judge: a judge, {SCOPE}" in made.terminal.splitlines()
    assert f"warning: {warning}" in made.terminal.split("ACCURACY")[0].splitlines()
    assert f"vrt-tiny-2, {SCOPE}|" in made.page
    assert warning in made.page
    counts = {of["kind"]: of["judgements"] for of in made.json["conditions"]["warnings"]}
    assert counts["alignment_not_judged"] == 6
    assert "judge: a judge\n" in shown(replace(made.figures, scope=""))


@pytest.mark.parametrize("order", ["both", "random"])
def test_a_table_of_nothing_but_what_is_not_judged(tmp_path: Path, order: Orders) -> None:
    rows = [{"prompt": unread(n), "TA": "AB"[n % 2], "group": "foxes"} for n in range(4)]
    made = Made(tmp_path, rows, [FIRST] * 8, order)
    assert made.json["accuracy"] == made.json["confusion"] == {"TA": None}
    assert made.figures.pairs.judged == 4
    assert "tau 1" not in made.terminal and "tau 0" not in made.terminal
    assert made.rows("group foxes ") == ["group foxes|0 of 4|not judged"]
    assert "|group foxes|0 of 4|not judged|" in made.page
    assert made.plots == []
    assert "An evaluation" in made.page and "judged as people did" not in made.page
    if order == "both":
        orders = made.json["orders"]
        assert orders["disagree"]["TA"] is orders["effect"]["tau"] is orders["averaged"]["tau"]["value"] is None
        assert made.rows("averaged ") == ["averaged|0 of 4|not judged"]
        for told in (made.terminal, made.page):
            assert "TA not judged, VQ 100.0 (51-100) of 4" in told


def test_the_parts_are_about_a_dimension_that_was_judged_and_named(tmp_path: Path) -> None:
    rows = [{"prompt": unread(n), "TA": "A", "VQ": "A", "group": "foxes"} for n in range(4)]
    rows.append({"prompt": unread(4), "TA": "A", "VQ": "A", "b": "gone.mp4"})
    made = Made(tmp_path, rows, [FIRST] * 3 + [answer(1, 2, 1, 1)])
    assert made.figures.main == "VQ"
    assert made.rows("SUBSET, ")[0].startswith("SUBSET, VISUAL QUALITY (VQ)|JUDGED|TAU")
    assert made.rows("group foxes ")[0].startswith("group foxes|4 of 4|75.0 ")
    assert "75.0 % judged as people did, Visual quality (VQ) (4 of 5 pairs)" in made.page
    assert "|Subset, Visual quality (VQ)|" in made.page
    assert made.figures.confusion["VQ"] == ((3, 1, 0), (0, 0, 0), (0, 0, 0))


# Figures of made-up results

Judged = Mapping[str, int]
Case = tuple[EvalCase, Result | None]


def figures_of(cases: Sequence[Case], order: Orders = "given") -> Figures:
    about = EvalAbout(set="own", title="own", order=order, chosen=len(cases))
    return compute_figures([case for case, _ in cases], {of.key: of for _, of in cases if of}, about)


def case_of(row: int, labels: Judged, judged: Judged | None, order: Order = "given", group: str = "") -> Case:
    """A pair with its labels, and the winners of what was judged; None if it failed."""
    key = f"{row} {order}"
    about: Any = {"prompt": f"p{row // 2}", "prompt_characters": row % 7, "clip_seconds": float(row), "group": group}
    if judged is None:
        return EvalCase(row, key, order, labels, missing="gone", **about), None
    verdict = verdict_of(judged, {key: SURE[winner] for key, winner in judged.items()})
    result = Result(key, "a", "b", "p", verdict, rounds=1, tokens=10, seconds=1.0)
    return EvalCase(row, key, order, labels, key=key, **about), result


MARKS = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 2))
PAIRS = st.lists(st.tuples(MARKS, st.none() | MARKS.map(lambda marks: {"OA": 1, **marks})), max_size=50)


@given(PAIRS)
def test_what_was_not_judged_changes_no_figure(pairs: list[tuple[dict[str, int], dict[str, int] | None]]) -> None:
    """Every figure is the one of the same pairs without the labels of what was not judged."""
    alone = [({k: v for k, v in labels.items() if judged is None or k in judged}, judged) for labels, judged in pairs]
    figures = figures_of([case_of(row, *pair) for row, pair in enumerate(pairs)])
    expected = figures_of([case_of(row, *pair) for row, pair in enumerate(alone)])
    for key, coverage in figures.coverage.items():
        labelled = [judged for labels, judged in pairs if key in labels]
        count, failed = sum(judged is not None and key in judged for judged in labelled), labelled.count(None)
        assert coverage == Coverage(count, len(labelled), len(labelled) - count - failed, failed)
        own, other = figures.accuracy[key], expected.accuracy.get(key)
        assert (own is None) == (count == 0)
        assert other is None if own is None else other == replace(own, labelled=count + failed, not_judged=0)
        assert figures.confusion[key] == expected.confusion.get(key)
    assert (figures.position, figures.cost) == (expected.position, expected.cost)
    assert figures.main in (*(key for key, of in figures.accuracy.items() if of), *list(figures.coverage)[:1], "OA")
    shown(figures)


def test_a_part_says_how_much_of_it_was_judged() -> None:
    """48 pairs, of which each of the last group lacks alignment: bands, subsets and groups cover what they can."""
    judged = [{"OA": 1, "TA": 1}] * 44 + [{"OA": 1}] * 4
    cases = [case_of(row, {"TA": 1}, of, group="late" if row >= 43 else "early") for row, of in enumerate(judged)]
    cases.append(case_of(48, {"VQ": 1}, {"OA": 1, "TA": 1}, group="labelled in nothing of this"))
    figures = figures_of(cases)
    assert [(of.pairs, of.labelled) for of in figures.bands["clip"]] == [(12, 12), (12, 12), (12, 12), (8, 12)]
    assert {of.name: (of.pairs, of.not_judged) for of in figures.groups} == {"early": (43, 0), "late": (1, 4)}
    [clips] = [of for of in figures.subsets if of.of == "clip"]
    assert (clips.pairs, clips.labelled, clips.tau.of, clips.baselines.pairs) == (1, 5, 1, 1)
    assert re.search(r"^clip 36 to 47 s +8 of 12 +100\.0 ", shown(figures), re.MULTILINE)
    # With fewer than 40 judged there are no quarters, however many are labelled.
    few = [case_of(row, {"TA": 1}, of) for row, of in enumerate(judged[:39] + judged[-4:])]
    assert figures_of(few).bands["clip"] == ()


def test_orders_are_joined_where_both_judged() -> None:
    """Row 0 is judged in both orders, row 1 only with A first, row 2 in neither, and of row 3 one order failed."""
    both: list[tuple[Judged | None, Judged | None]] = [
        ({"OA": 1, "TA": 1}, {"OA": 2, "TA": 1}),  # of B and A: TA for B
        ({"OA": 1, "TA": 1}, {"OA": 2}),
        ({"OA": 1}, {"OA": 2}),
        (None, {"OA": 2, "TA": 2}),
    ]
    cases = [case_of(row, {"TA": 1}, given) for row, (given, _) in enumerate(both)]
    cases += [case_of(row, {"TA": 1}, swapped, "swapped") for row, (_, swapped) in enumerate(both)]
    figures = figures_of(cases, "both")
    assert figures.coverage == {"TA": Coverage(2, 4, 1, 1)}
    orders = figures.orders
    assert orders and orders.averaged and orders.effect and orders.disagree
    assert [(of.pairs, of.not_judged, of.failed) for of in (orders.given, orders.swapped)] == [(2, 1, 1), (2, 2, 0)]
    averaged = orders.averaged
    assert (averaged.pairs, averaged.not_judged, averaged.undecided, averaged.tau.right) == (2, 2, 1, 1)
    assert (orders.effect.pairs, orders.effect.tau) == (1, -1.0)
    disagree = {key: share and (share.right, share.of) for key, share in orders.disagree.items()}
    assert disagree == {"OA": (0, 3), "TA": (1, 1), "VQ": None, "MQ": None}
    assert "both: OA 0.0 (0-56) of 3, TA 100.0 (21-100) of 1, VQ not judged, MQ not judged" in shown(figures)


def test_an_undecided_verdict_is_judged_and_never_right() -> None:
    """A judge whose winner was taken back names nobody: that is neither a tie nor a win of the one shown second."""
    (case, result), *cases = (case_of(row, {"OA": 0}, {"OA": 0}) for row in range(3))
    assert result
    figures = figures_of([(case, replace(result, verdict=verdict_of({"OA": 0}, leans={"OA": 1}))), *cases])
    of = figures.accuracy["OA"]
    assert of and (of.pairs, of.undecided, of.tau.right) == (3, 1, 2)
    assert figures.position.verdicts.of == 0
    assert "Overall: 1 of 3 pairs undecided, which never counts as right" in shown(figures)


def test_a_hostile_warning_stays_text() -> None:
    case, result = case_of(0, {"OA": 1}, {"OA": 1})
    assert result
    hostile = replace(result, warnings=(Warned("clip", "\x1b[31m\u202ex"),))
    text = shown(replace(figures_of([(case, hostile)]), scope="\x1b[2J"))
    assert "warning: \\x1b[31m\\u202ex" in text
    assert not {"\x1b", "\u202e"} & set(text)
