"""From a set to figures: a scripted judge over synthesised clips; every figure worked out by hand."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from msgspec.structs import replace
from PIL import Image
from reports import Report
from terminals import Terminal

from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.errors import StoreError, UsageError
from vrt_lite.evaluation.evaluate import PairSelection, evaluate, figures_of, name_run
from vrt_lite.evaluation.metrics import wilson
from vrt_lite.evaluation.sets import choose_pairs, locate_set, read_set
from vrt_lite.protocol.messages import Odds, Reply
from vrt_lite.records.labelled import Orders
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import Run, Store
from vrt_lite.settings import Settings
from vrt_lite.show.evaluation_charts import draw_plots, list_charts
from vrt_lite.show.evaluation_sections import show_figures
from vrt_lite.show.run_views import EvaluationView
from vrt_lite.show.screen import Screen
from vrt_lite.viewer import write_report

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
CALL = (
    "<recommend answer>TA=0, VQ=0, MQ=0, OA=0, CF=2</recommend answer>\n"
    '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'
)

# By set: the verdicts (OA, TA, VQ, MQ) of its pairs in order, and the odds (tie, A, B) of OA where they matter.
GENAI = ("1000", "1000", "0000", "2000", "0000", "2000")
GENAI_ODDS = (
    (0.1, 0.85, 0.05),  # m = +0.8
    (0.3, 0.4, 0.3),  # +0.1
    (0.55, 0.2, 0.25),  # -0.05
    (0.2, 0.25, 0.55),  # -0.3
    (0.5, 0.35, 0.15),  # +0.2
    (0.1, 0.15, 0.75),  # -0.6
)
VIDEOGEN = ("1102", "2121", "1010", "1012", "2221")
MJ = ("1102", "1000", "2200", "0011", "0120")


def verdict(selections: str, odds: Odds | None = None) -> Reply:
    """A final answer of selections in the order OA, TA, VQ, MQ."""
    oa, ta, vq, mq = selections
    text = f"<final answer>TA={ta}, VQ={vq}, MQ={mq}, OA={oa}</final answer>"
    return Reply(text, odds={text.rindex("OA=") + 3: odds} if odds else {})


@pytest.fixture(scope="module")
def many_clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve short clips, each a frame longer than the one before."""
    folder = tmp_path_factory.mktemp("clips")
    return [write_clip(folder / f"{n}.mp4", frames=16 + n, size=(56, 56)) for n in range(12)]


def placed(name: str, tmp_path: Path, many_clips: list[Path]) -> Path:
    """A copy of a fixture set with a clip wherever its table names one."""
    folder = tmp_path / name
    shutil.copytree(HERE / "sets" / name, folder)
    found = read_set(locate_set(folder))
    named = [clip.split("/dir/")[-1] for pair in found.pairs for clip in (pair.a, pair.b)]
    for path, clip in zip(named, many_clips, strict=False):
        to = folder / ("videos" if name == "mj-bench-video" else ".") / path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(clip, to)
    return folder


class NamedJudge(Judge):
    """A judge that is the same whatever its settings."""

    named = "a scripted judge"

    def key(self) -> str:
        return self.named

    def describe(self) -> dict[str, str]:
        return {"--model": "scripted"}


class Asked:
    """One call of evaluate with a scripted judge, and what it left."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        replies: Sequence[str | Reply],
        selection: PairSelection | None = None,
        split: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        selection = selection or PairSelection()
        self.backend = ScriptedBackend(replies)
        self.stream = io.StringIO()
        found = read_set(locate_set(folder, split=split))
        pairs = choose_pairs(found.pairs, limit=selection.limit, sample=selection.sample, seed=selection.seed)
        with (
            NamedJudge("vrt-tiny-0", backend=self.backend, settings=settings, measures=False) as judge,
            EvaluationView(Screen(self.stream), total=len(pairs)) as progress,
        ):
            name = name_run(found, selection, "a")
            made = evaluate(found, selection, store=store, judge=judge, watcher=progress, name=name)
        self.made, self._store = made, store
        self.figures = made.figures.to_json()

    @property
    def run(self) -> Run:
        """The run that keeps it, if anything was judged."""
        return self._store.run(self.made.run)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def shown_of(asked: Asked) -> str:
    """What a pipe gets of a run's figures."""
    out = io.StringIO()
    show_figures(asked.made.figures, stream=out)
    return out.getvalue()


def parts(share: dict[str, Any]) -> tuple[int, int]:
    return share["right"], share["of"]


def measured(figures: dict[str, Any], *measures: str) -> dict[str, list[tuple[int, int]]]:
    return {key: [parts(of[measure]) for measure in measures] for key, of in figures["accuracy"].items()}


def test_genai_bench_by_hand(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    replies = [verdict(selections, odds) for selections, odds in zip(GENAI, GENAI_ODDS, strict=True)]
    asked = Asked(placed("genai-bench", tmp_path, many_clips), store, replies)
    # Votes 1 2 0 0 1 2, verdicts 1 1 0 2 0 2: pairs 1, 3, 6 of six; of the four without a tie 1 and 6.
    # From the margins: calling |m| <= 0.05 a tie gets 1, 3, 5, 6 right; signs get 1, 5, 6 of the four.
    assert measured(asked.figures, "tau", "diff", "calibrated", "sign") == {"OA": [(3, 6), (2, 4), (4, 6), (3, 4)]}
    assert asked.figures["accuracy"]["OA"]["calibrated"]["threshold"] == 0.05
    # Rows: labels A, B, tie; columns: verdicts A, B, tie.
    assert asked.figures["confusion"] == {"OA": [[1, 0, 1], [1, 1, 0], [0, 1, 1]]}
    # Four verdicts are no tie: 1, 1, 2, 2; so are four labels.
    assert [parts(asked.figures["position"][of]) for of in ("verdicts", "labels")] == [(2, 4), (2, 4)]
    # Published figures are of the other split.
    assert asked.figures["split"] == "test_v1"
    assert asked.figures["published"] == {"figures": [], "left_out": [], "other_splits": ["test", "unifiedreward"]}
    # Twelve clips of 16 to 27 frames at 16 a second; the longest tenth of six pairs is one: 27 frames.
    [clips] = [of for of in asked.figures["subsets"] if of["of"] == "clip"]
    assert (clips["from"], clips["pairs"], parts(clips["tau"])) == (27 / 16, 1, (1, 1))


def test_videogen_rewardbench_by_hand(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    asked = Asked(placed("videogen-rewardbench", tmp_path, many_clips), store, [verdict(v) for v in VIDEOGEN])
    assert measured(asked.figures, "tau", "diff") == {
        "OA": [(3, 4), (3, 3)],  # labels 1 2 0 1 -, verdicts 1 2 1 1 2
        "TA": [(3, 5), (2, 4)],  # labels 1 2 1 0 2, verdicts 1 1 0 0 2
        "VQ": [(4, 4), (3, 3)],  # labels 0 2 - 1 2, verdicts 0 2 1 1 2
        "MQ": [(3, 4), (2, 3)],  # labels 1 - 0 2 1, verdicts 2 1 0 2 1
    }
    # No probabilities were given: the soft measures say so, and are of no pair.
    assert asked.figures["accuracy"]["OA"]["probabilities"] == 0
    assert asked.figures["accuracy"]["OA"]["calibrated"]["value"] is None
    # The first two pairs share a prompt.
    assert (asked.figures["accuracy"]["TA"]["pairs"], asked.figures["accuracy"]["TA"]["prompts"]) == (5, 4)
    # The last prompt is the longest: "Made-up prompt" and five times "long"; it has no overall label, so pair 4 leads.
    [prompts] = [of for of in asked.figures["subsets"] if of["of"] == "prompt"]
    assert (prompts["from"], prompts["pairs"], parts(prompts["tau"])) == (34.0, 1, (1, 1))


def test_mj_bench_video_by_hand(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    asked = Asked(placed("mj-bench-video", tmp_path, many_clips), store, [verdict(v) for v in MJ])
    assert measured(asked.figures, "tau", "diff") == {
        "OA": [(3, 4), (2, 2)],  # labels 1 0 2 - 0, verdicts 1 1 2 0 0
        "TA": [(4, 4), (2, 2)],  # labels 1 0 - 0 1, verdicts 1 0 2 0 1
        "VQ": [(3, 5), (1, 2)],  # labels 0 0 2 1 0, verdicts 0 0 0 1 2
        "MQ": [(4, 5), (1, 1)],  # labels 2 0 0 0 0, verdicts 2 0 0 1 0
    }
    assert asked.figures["left_out"] == {"discarded": 1}
    assert asked.figures["pairs"] == {"chosen": 5, "judged": 5, "failed": 0, "left": 0}


def test_published_figures_stand_beside_their_own_split(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    replies = [verdict("0000") for _ in range(5)]
    asked = Asked(folder, store, replies, split="test")
    assert (asked.figures["set"], asked.figures["split"]) == ("genai-bench", "test")
    assert measured(asked.figures, "tau", "diff") == {"OA": [(3, 5), (0, 2)]}  # labels 0 2 0 0 2
    told = {(of["model"], of["measure"]): of["value"] for of in asked.figures["published"]["figures"]}
    assert (told["VR-Thinker 7B", "tau"], told["VideoScore 7B", "calibrated"]) == (0.687, 0.475)
    shown = shown_of(asked)
    assert "GenAI-Bench, video part, split test: 5 of 5 pairs judged" in shown
    assert re.search(r"^VR-Thinker 7B +68\.7 +82\.3$", shown, re.MULTILINE)
    assert re.search(r"^VideoScore 7B +47\.5 +70\.9$", shown, re.MULTILINE)
    assert re.search(r"^this run +60\.0 \(23\.1-88\.2\) +0\.0 \(0\.0-65\.8\)$", shown, re.MULTILINE)
    assert re.search(r"^PUBLISHED, OVERALL +CALIBRATED +SIGN\nVideoScore 7B", shown, re.MULTILINE)
    assert "source: VR-Thinker (arXiv 2510.10518v4), the main table" in shown
    assert "UnifiedReward 7B, UnifiedReward-Think 7B: UnifiedReward's own script counts every tie as wrong" in shown
    # Labels 0 2 0 0 2: three in five for a tie; of the two that are none both are B.
    assert re.search(r"^always tie, all 5 pairs +60\.0 \(23\.1-88\.2\) +0\.0 \(", shown, re.MULTILINE)
    assert re.search(
        r"^commonest answer, all 5 pairs +60\.0 \(23\.1-88\.2\) tie +100\.0 \(34\.2-100\.0\) B *$", shown, re.MULTILINE
    )
    assert "not comparable" not in shown
    [chart] = [chart for chart in list_charts(figures_of(asked.run)) if chart.name == "OA"]
    assert {row.label: row.words for row in chart.rows}["VR-Thinker 7B, tau"] == "68.7"


def test_baselines_by_hand(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    """Of the judged pairs beside their figures, of the whole table by themselves; every part has its own."""
    folder = placed("genai-bench", tmp_path, many_clips)
    asked = Asked(folder, store, [verdict(v) for v in GENAI], PairSelection(limit=4, order="both", budget=6))

    def counted(of: dict[str, Any]) -> dict[str, Any]:
        return {
            kind: {measure: (share["answer"], *parts(share)) for measure, share in of[kind].items()}
            for kind in ("tie", "commonest")
        }

    # Labels 1 2 0 0 1 2. Judged are the first three, in both orders: 1 2 0.
    assert counted(asked.figures["accuracy"]["OA"]["baselines"]) == {
        "tie": {"tau": (0, 1, 3), "diff": (0, 0, 2)},
        "commonest": {"tau": (1, 1, 3), "diff": (1, 1, 2)},
    }
    assert asked.figures["baselines"]["OA"]["pairs"] == 6
    assert counted(asked.figures["baselines"]["OA"]) == {
        "tie": {"tau": (0, 2, 6), "diff": (0, 0, 4)},
        "commonest": {"tau": (1, 2, 6), "diff": (1, 2, 4)},
    }
    for part in (*asked.figures["subsets"], asked.figures["orders"]["given"], asked.figures["orders"]["averaged"]):
        assert part["baselines"]["pairs"] == part["pairs"]
    shown = shown_of(asked)
    assert re.search(r"^Overall +3 of \d .* 33\.3 / 0\.0 +33\.3 / 50\.0$", shown, re.MULTILINE)
    assert re.search(r"^ORDER +JUDGED +TAU +DIFF +ALWAYS TIE +COMMONEST$", shown, re.MULTILINE)
    assert re.search(r"^averaged +3 of 3 \(100%\) .* 33\.3 / 0\.0 +33\.3 / 50\.0$", shown, re.MULTILINE)


def test_an_interval_is_the_same_everywhere(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    """Also where prompts repeat: Wilson's in the JSON, on the terminal and in the report, and a word of warning."""
    asked = Asked(placed("videogen-rewardbench", tmp_path, many_clips), store, [verdict(v) for v in VIDEOGEN])
    share = asked.figures["accuracy"]["TA"]["tau"]
    assert (share["low"], share["high"]) == wilson(3, 5) == pytest.approx((0.2307, 0.8824), abs=1e-4)
    warning = "5 pairs have 4 prompts; pairs of one prompt are not independent"
    shown = shown_of(asked)
    assert re.search(r"^Prompt alignment \(TA\) +5 of 5 +60\.0 \(23-88\) ", shown, re.MULTILINE)
    assert re.search(rf"^[^:]*Prompt alignment \(TA\)[^:]*: {warning}", shown, re.MULTILINE)
    write_report(asked.run, tmp_path / "r.html")
    page = Report(tmp_path / "r.html").words
    assert "Prompt alignment (TA)|5 of 5|60.0 (23-88)|" in page
    assert f"Prompt alignment (TA): {warning}" in page
    figures = figures_of(asked.run)
    one = replace(figures, accuracy={"TA": replace(figures.accuracy["TA"], prompts=1)})
    told = io.StringIO()
    show_figures(one, stream=told)
    assert "Prompt alignment (TA): 5 pairs have 1 prompt;" in told.getvalue()


def test_always_a_tie_is_the_score_to_beat_of_a_set_of_ties(tmp_path: Path, store: Store) -> None:
    """MJ-Bench-Video's test labels, 959 ties of 1 077: no published figure can be of them."""
    rows = [
        {"caption": "x", "video_0_path": "a.mp4", "video_1_path": "b.mp4", "overall_preference": label}
        for label, count in (("Same", 959), ("Video 1 better", 60), ("Video 2 better", 58))
        for _ in range(count)
    ]
    (tmp_path / "test.json").write_text(json.dumps(rows))
    shown = shown_of(Asked(tmp_path, store, []))
    assert "MJ-Bench-Video, split test: 0 of 1077 pairs judged, 1077 failed" in shown
    assert "67.3" not in shown
    assert "89.0 % of the labels are ties; all rows but one behave as if" in shown
    assert re.search(r"^Overall +0 of 1077 +not judged +89\.0 / 0\.0 +89\.0 / 50\.8$", shown, re.MULTILINE)


def test_a_users_own_paths_lead_anywhere_and_a_published_sets_do_not(
    tmp_path: Path, many_clips: list[Path], store: Store
) -> None:
    (tmp_path / "tables" / "deep").mkdir(parents=True)
    for name, clip in zip(("one.mp4", "two.mp4"), many_clips, strict=False):
        shutil.copyfile(clip, tmp_path / name)
    absolute = tmp_path / "one.mp4"
    own = tmp_path / "tables" / "deep" / "mine.csv"
    own.write_text(f"a,b,overall\n{absolute},../../two.mp4,A\n")
    asked = Asked(own, store, [verdict("1000")])
    assert asked.figures["pairs"] == {"chosen": 1, "judged": 1, "failed": 0, "left": 0}
    published = tmp_path / "tables" / "test-0.jsonl"
    row = {"prompt": "x", "left_video": str(absolute), "right_video": "../two.mp4", "vote_type": "leftvote"}
    published.write_text(json.dumps(row) + "\n")
    failures = Asked(published, store, []).figures["failures"]
    assert failures["counts"] == {"missing clip": 1}
    assert "refused" in failures["first"][0]["why"]


def test_what_it_costs(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    """One pair of six asks for frames once, one recommends and is never final."""
    replies = [CALL, verdict("1000"), *[verdict("0000")] * 5]
    cost = Asked(placed("genai-bench", tmp_path, many_clips), store, replies).figures["cost"]
    assert (cost["judgements"], parts(cost["tool_rate"]), cost["rounds_histogram"]) == (6, (1, 6), {"1": 5, "2": 1})
    assert cost["rounds"] == {"mean": pytest.approx(7 / 6), "median": 1, "p95": 2}


@pytest.mark.parametrize("order", ["given", "swapped"])
def test_an_export_has_the_labels_about_the_clips_as_shown(
    tmp_path: Path, many_clips: list[Path], store: Store, order: Orders
) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    asked = Asked(folder, store, [verdict(v) for v in GENAI], PairSelection(order=order))
    rows = list(csv.DictReader(io.StringIO("".join(csv_lines(asked.run)), newline="")))
    assert [row["rows"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    right, of = parts(asked.figures["accuracy"]["OA"]["tau"])
    assert (sum(row["OA"] == row["OA label"] for row in rows), len(rows)) == (right, of)
    assert {row["TA label"] for row in rows} == {""}
    lines = [json.loads(line) for line in json_lines(asked.run)]
    assert [str(line["labels"]["OA"]) for line in lines] == [row["OA label"] for row in rows]
    with store._database.write() as connection:
        connection.execute("UPDATE items SET value = '{}' WHERE kind = 'pair'")
    with pytest.raises(StoreError, match="has a labelled pair that cannot be read"):
        list(csv_lines(asked.run))


def test_failures_are_listed_counted_and_wrong(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    (folder / "g1a.mp4").unlink()
    (folder / "g2b.mp4").write_bytes(b"no video at all")
    replies = [verdict("0000"), "nothing", "still nothing", verdict("1000"), verdict("2000")]
    asked = Asked(folder, store, replies)
    failures = asked.figures["failures"]
    assert failures["counts"] == {"missing clip": 1, "broken clip": 1, "no verdict": 1}
    assert [(of["row"], of["kind"]) for of in failures["first"]] == [
        (1, "missing clip"),
        (2, "broken clip"),
        (4, "no verdict"),
    ]
    assert "g1a.mp4" in failures["first"][0]["why"]
    # Judged: pairs 3 (0, right), 5 (1, right), 6 (2, right). Of the failed, pairs 1 and 2 are no labelled ties.
    assert measured(asked.figures, "tau", "diff", "tau_all", "diff_all") == {"OA": [(3, 3), (2, 2), (3, 6), (2, 4)]}
    assert asked.figures["pairs"] == {"chosen": 6, "judged": 3, "failed": 3, "left": 0}
    # The clip comes back: it is judged, and the failure is gone. What had no verdict is not asked again.
    shutil.copyfile(many_clips[0], folder / "g1a.mp4")
    again = Asked(folder, store, [verdict("1000")])
    assert again.figures["failures"]["counts"] == {"broken clip": 1, "no verdict": 1}
    assert measured(again.figures, "tau") == {"OA": [(4, 4)]}
    # What is forgotten is no failure any more, in no figure, until it is judged again.
    assert store.forget_failures(again.run.name) == 2
    later = figures_of(store.run(again.run.name))
    assert later.failures.counts == {}
    assert (later.pairs.judged, later.pairs.failed, later.pairs.left) == (4, 0, 2)
    asked = Asked(folder, store, [verdict("0000")])
    assert asked.figures["failures"]["counts"] == {"broken clip": 1}
    assert asked.figures["pairs"] == {"chosen": 6, "judged": 5, "failed": 1, "left": 0}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)

    def cut_short() -> Iterator[Reply]:
        yield from (verdict(v) for v in GENAI[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Asked(folder, store, cut_short())  # type: ignore[arg-type]
    [info] = store.runs()
    halfway = figures_of(store.run(info.name)).to_json()
    assert halfway["pairs"] == {"chosen": 6, "judged": 2, "failed": 0, "left": 4}
    rest = Asked(folder, store, [verdict(v) for v in GENAI[2:]])
    assert len(rest.backend.conversations) == 4
    assert measured(rest.figures, "tau", "diff") == {"OA": [(3, 6), (2, 4)]}
    assert len(list(rest.run.results())) == 6
    assert Asked(folder, store, []).figures == rest.figures  # nothing is asked of this judge


def test_a_budget_is_kept_and_the_rest_is_left(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    first = Asked(folder, store, [verdict(v) for v in GENAI], PairSelection(budget=2))
    assert len(first.backend.conversations) == 2
    assert first.figures["pairs"]["left"] == 4
    second = Asked(folder, store, [verdict(v) for v in GENAI[2:]], PairSelection(budget=3))
    assert len(second.backend.conversations) == 3
    assert second.figures["pairs"] == {"chosen": 6, "judged": 5, "failed": 0, "left": 1}


def test_judgements_made_with_different_pixels_are_said_to_differ(
    tmp_path: Path, many_clips: list[Path], store: Store
) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    first = Asked(folder, store, [verdict(v) for v in GENAI], PairSelection(budget=3))
    assert first.figures["conditions"]["comparable"]
    assert "comparable" not in shown_of(first).split("ACCURACY")[0]
    small = Settings(max_pixels=784 * 16, tool_max_pixels=784 * 16)
    mixed = Asked(folder, store, [verdict(v) for v in GENAI], PairSelection(budget=1), settings=small)
    conditions = mixed.figures["conditions"]
    [most, fewest] = conditions["made_with"]
    assert not conditions["comparable"]
    assert (fewest["max_pixels"], fewest["judgements"], most["judgements"]) == (784 * 16, 1, 2)
    said = f"2 judgements at {most['max_pixels']} pixels a frame, 1 at {784 * 16}: not comparable"
    assert f"warning: {said}" in shown_of(mixed).splitlines()
    write_report(mixed.run, tmp_path / "r.html")
    assert said in Report(tmp_path / "r.html").words


def test_a_limit_shares_what_was_judged(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    Asked(folder, store, [verdict(v) for v in GENAI[:2]], PairSelection(limit=2))
    rest = Asked(folder, store, [verdict(v) for v in GENAI[2:]])
    assert measured(rest.figures, "tau") == {"OA": [(3, 6)]}
    assert len(store.runs()) == 2


def test_swapped_verdicts_are_about_the_clips_as_given(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    """B is shown as video 1: the judge's 2 is A."""
    replies = [verdict(v) for v in ("2000", "1000", "0000", "0000", "2000", "1000")]
    asked = Asked(placed("genai-bench", tmp_path, many_clips), store, replies, PairSelection(order="swapped"))
    assert measured(asked.figures, "tau", "diff") == {"OA": [(6, 6), (4, 4)]}
    # Shown first, and won: B twice, of four.
    assert parts(asked.figures["position"]["verdicts"]) == (2, 4)


def test_both_orders_and_their_effect(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    # Labels 1 2 0 0 1 2. A first: 1 1 0 2 0 2 as before, 3 of 6. B first, said of video 1 and 2: 2 2 0 2 1 0, which is
    # about A and B 1 1 0 1 2 0: pairs 1 and 3, 2 of 6. They differ on pairs 4, 5, 6.
    swapped = ("2000", "2000", "0000", "2000", "1000", "0000")
    replies = [verdict(v) for pair in zip(GENAI, swapped, strict=True) for v in pair]
    orders = Asked(folder, store, replies, PairSelection(order="both")).figures["orders"]
    assert [parts(orders[name]["tau"]) for name in ("given", "swapped")] == [(3, 6), (2, 6)]
    assert orders["effect"]["pairs"] == 6
    assert orders["effect"]["tau"] == pytest.approx(-1 / 6)
    assert orders["effect"]["low"] <= -1 / 6 <= orders["effect"]["high"]
    assert parts(orders["disagree"]["OA"]) == (3, 6)
    # Averaged, without probabilities: 4 is B against A, undecided, which no label is, though it is a tie; 5 tie against
    # B and 6 B against tie are ties. Right: 1, 3.
    assert parts(orders["averaged"]["tau"]) == (2, 6)
    assert orders["averaged"]["undecided"] == 1


def test_a_random_order_is_the_seeds(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    asked = Asked(folder, store, [verdict("0000")] * 6, PairSelection(order="random", seed=1))
    orders = asked.figures["orders"]
    assert orders["given"]["pairs"] + orders["swapped"]["pairs"] == 6
    assert 0 < orders["given"]["pairs"] < 6
    assert Asked(folder, store, [], PairSelection(order="random", seed=1)).figures == asked.figures


def test_a_name_is_of_one_set_and_judge(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    found = read_set(locate_set(placed("genai-bench", tmp_path, many_clips)))
    view = EvaluationView(Screen(io.StringIO(), quiet=True), total=6)
    with NamedJudge(backend=ScriptedBackend([verdict("1000")])) as judge, view:
        ask = functools.partial(evaluate, found, store=store, judge=judge, watcher=view, name="mine")
        ask(PairSelection(budget=1))
        ask(PairSelection(budget=0))
        with pytest.raises(UsageError, match=r"--limit none \(not 1\)"):
            ask(PairSelection(limit=1))
        judge.named = "another"
        with pytest.raises(UsageError, match="other files or another profile of the same judge"):
            ask(PairSelection(budget=0))


def test_figures_are_shown_drawn_and_plain_json(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    folder = placed("genai-bench", tmp_path, many_clips)
    replies = [verdict(selections, odds) for selections, odds in zip(GENAI, GENAI_ODDS, strict=True)]
    asked = Asked(folder, store, replies)
    assert json.loads(json.dumps(asked.figures)) == asked.figures == figures_of(store.run(asked.run.name)).to_json()
    shown = shown_of(asked)
    for expected in (
        "GenAI-Bench, video part, split test_v1: 6 of 6 pairs judged, 0 failed",
        "a tie is |P(A) - P(B)| <= 0.05",
        "Published figures of this set are of split test, unifiedreward, not of test_v1: they are not comparable",
    ):
        assert expected in shown
    # Wilson of 3 in 6 and of 2 in 4.
    assert re.search(r"^Overall +6 of 6 +50\.0 \(19-81\) +50\.0 \(15-85\) ", shown, re.MULTILINE)
    assert "VR-Thinker" not in shown
    assert "published evaluations" not in shown
    assert "\x1b" not in shown
    drawn = draw_plots(figures_of(asked.run), tmp_path / "plots" / "deep")
    assert [path.name for path in drawn] == ["accuracy-OA.png"]
    for path in drawn:
        with Image.open(path) as picture:
            assert picture.width == 1760
            assert len(picture.getcolors(2**20) or ()) > 10
    assert "6 of 6, tau 50.0, diff 50.0" in asked.stream.getvalue()
    with pytest.raises(UsageError, match="cannot be written"):
        draw_plots(figures_of(asked.run), drawn[0])


def test_a_narrow_terminal_gets_a_line_a_figure(
    tmp_path: Path, many_clips: list[Path], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [verdict(selections, odds) for selections, odds in zip(GENAI, GENAI_ODDS, strict=True)]
    asked = Asked(placed("genai-bench", tmp_path, many_clips), store, replies)
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    show_figures(figures_of(asked.run), stream=out)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert [line for line in lines if len(line) > 40] == []
    assert "  tau 50.0 (19-81)" in lines


def test_a_hostile_table_stays_text(tmp_path: Path, many_clips: list[Path], store: Store) -> None:
    (tmp_path / "pairs.csv").write_text('id,a,b,overall\n"\x1b[31mred\u202e",no.mp4,no2.mp4,A\n', encoding="utf-8")
    shutil.copyfile(many_clips[0], tmp_path / "x.mp4")
    asked = Asked(tmp_path / "pairs.csv", store, [])
    out = io.StringIO()
    show_figures(asked.made.figures, stream=out)
    assert "\\x1b[31mred\\u202e" in out.getvalue()
    assert not {"\x1b", "\u202e"} & set(out.getvalue())


def test_the_command_with_the_bundled_judge(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "a,b,prompt,overall\n"
        f"{EXAMPLES / 'star.mp4'},circle.mp4,A blue star moves up.,A\n"
        "circle.mp4,star.mp4,A blue star moves up.,2\n"
        "star.mp4,gone.mp4,x,B\n"
    )
    (tmp_path / "pairs.csv").write_text(text)
    command = [
        "eval",
        str(tmp_path / "pairs.csv"),
        "--from",
        str(EXAMPLES),
        "--threads",
        "1",
        "--store",
        str(tmp_path / "s"),
    ]
    assert run([*command, "--json"]) == 0
    out, err = capfd.readouterr()
    figures = json.loads(out)
    assert figures["pairs"] == {"chosen": 3, "judged": 2, "failed": 1, "left": 0}
    assert figures["accuracy"]["OA"]["probabilities"] == 2
    assert "1 of 3, tau 100.0, diff 100.0" in err  # the example pair: A is the better one, and the judge says so
    assert "3 of 3, " in err
    assert run([*command, "--budget", "0", "-q", "--plots", str(tmp_path / "plots")]) == 0
    out, err = capfd.readouterr()
    assert "labelled pairs: 2 of 3 pairs judged, 1 failed" in out
    assert (tmp_path / "plots" / "accuracy-OA.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["genai-bench"], 2, "vrt-lite eval genai-bench --pull"),
        (["nowhere"], 2, "There is no set 'nowhere'"),
        (["nope.csv"], 2, "There is no table 'nope.csv'"),
        (["pairs.csv", "--pull"], 2, "--pull fetches a set by its name"),
        (["genai-bench", "--jobs", "17"], 2, "--backend URL"),
        (["genai-bench", "--split", "test"], 2, "vrt-lite eval genai-bench --split test --pull"),
        (["genai-bench", "--split", "unifiedreward"], 2, "Give a copy with --from FOLDER."),
        (["genai-bench", "--split", "dev"], 2, "known are test_v1, test, unifiedreward"),
        (["genai-bench", "--from", str(EXAMPLES)], 2, "not laid out as GenAI-Bench"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    arguments: list[str], status: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", *arguments]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_set_whose_clips_are_all_missing_ends_with_a_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = run(
        ["eval", "mj-bench-video", "--from", str(HERE / "sets" / "mj-bench-video"), "--store", str(tmp_path / "s")]
    )
    out, err = capfd.readouterr()
    assert status == 3
    assert "failed: 5 missing clip" in out
    assert "--from FOLDER" in err.splitlines()[-1]


def test_a_split_is_asked_for_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [
        "eval",
        "genai-bench",
        "--from",
        str(HERE / "sets" / "genai-bench"),
        "--store",
        str(tmp_path / "s"),
        "-q",
    ]
    for option, split, compared in (([], "test_v1", 0), (["--split", "test"], "test", 10)):
        assert run([*command, *option, "--json"]) == 3  # the clips are not there
        figures = json.loads(capfd.readouterr().out)
        assert (figures["split"], len(figures["published"]["figures"])) == (split, compared)
