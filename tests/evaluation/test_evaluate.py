"""From a set to figures: a scripted judge over synthesised clips; every figure worked out by hand."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip
from msgspec.structs import replace
from PIL import Image
from reports import Report
from terminals import Terminal

from vrt_lite import Judge, ScriptedBackend, Store, StoreError, UsageError, read_figures
from vrt_lite.cli import run
from vrt_lite.evaluation.evaluate import PairSelection, evaluate
from vrt_lite.evaluation.metrics import wilson
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.protocol.messages import Odds, Reply
from vrt_lite.records.figures import Figures
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import Run
from vrt_lite.show.evaluation_sections import draw_plots, list_charts, show_figures
from vrt_lite.show.run_views import EvaluationView
from vrt_lite.viewer import write_report

SETS = Path(__file__).parent / "sets"
EXAMPLES = Path(__file__).parents[2] / "examples"
CALL = (
    "<recommend answer>TA=0, VQ=0, MQ=0, OA=0, CF=2</recommend answer>\n"
    '<tool_call>{"name": "select_frames", "arguments": {"target_frames": [1, 2]}}</tool_call>'
)


def verdict(selections: str, odds: Odds | None = None) -> Reply:
    """A final answer of selections in the order OA, TA, VQ, MQ; `odds` (tie, A, B) are those of OA."""
    oa, ta, vq, mq = selections
    text = f"<final answer>TA={ta}, VQ={vq}, MQ={mq}, OA={oa}</final answer>"
    return Reply(text, odds={text.rindex("OA=") + 3: odds} if odds else {})


# The replies for the pairs of each set, in order.
GENAI = [verdict(selections) for selections in ("1000", "1000", "0000", "2000", "0000", "2000")]
GENAI_WITH_ODDS = [
    verdict("1000", (0.1, 0.85, 0.05)),  # m = +0.8
    verdict("1000", (0.3, 0.4, 0.3)),  # +0.1
    verdict("0000", (0.55, 0.2, 0.25)),  # -0.05
    verdict("2000", (0.2, 0.25, 0.55)),  # -0.3
    verdict("0000", (0.5, 0.35, 0.15)),  # +0.2
    verdict("2000", (0.1, 0.15, 0.75)),  # -0.6
]
VIDEOGEN = [verdict(selections) for selections in ("1102", "2121", "1010", "1012", "2221")]
TIE = verdict("0000")


class Bench:
    """A store, sets with clips, and a scripted judge that judges them; holds what the last evaluation left."""

    def __init__(self, folder: Path, clips: Sequence[Path]) -> None:
        self.folder, self.clips, self.store = folder, clips, Store(folder / "runs.sqlite")

    def place(self, name: str) -> Path:
        """A copy of a fixture set with a clip wherever its table names one."""
        folder = self.folder / name
        shutil.copytree(SETS / name, folder)
        pairs = read_set(locate_set(folder)).pairs
        for path, clip in zip([clip for pair in pairs for clip in (pair.a, pair.b)], self.clips, strict=False):
            to = folder / path.split("/dir/")[-1]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(clip, to)
        return folder

    def ask(self, table: Path, replies: Iterable[str | Reply] = (), **options: Any) -> dict[str, Any]:
        """Evaluate once, and return the figures as in JSON; options are a selection's, `split`, `name` and `pixels`."""
        split, name, pixels = (options.pop(key, None) for key in ("split", "name", "pixels"))
        self.backend = ScriptedBackend(replies)  # type: ignore[arg-type]
        found = read_set(locate_set(table, split=split))
        view = EvaluationView(io.StringIO(), quiet=True, total=6)
        with Judge("vrt-tiny-0", backend=self.backend, measures=False) as judge:
            if pixels:  # as where larger frames do not fit the memory
                judge.mode.profile = judge.mode.profile.with_max_pixels(pixels)
            selection, how = PairSelection(**options), {"store": self.store, "judge": judge, "watcher": view}
            self.made = evaluate(found, selection, name=name, **how)
        return self.made.figures.to_json()

    @property
    def run(self) -> Run:
        """The run that keeps the last evaluation."""
        return self.store.run(self.made.run)

    @property
    def shown(self) -> str:
        """What a pipe gets of the last figures."""
        return text_of(self.made.figures)

    def says(self, *lines: str) -> None:
        """Patterns of whole lines that are shown."""
        for line in lines:
            assert re.search(f"^{line}$", self.shown, re.MULTILINE), line

    @property
    def page(self) -> str:
        """The words of the run's report."""
        write_report(self.run, self.folder / "r.html")
        return Report(self.folder / "r.html").words


def text_of(figures: Figures) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        show_figures(figures, judge="j", run="r")
    return out.getvalue()


@pytest.fixture(scope="module")
def many_clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve clips of 4 to 15 frames."""
    folder = tmp_path_factory.mktemp("clips")
    return [write_clip(folder / f"{n}.mp4", frames=4 + n, size=(56, 56)) for n in range(12)]


@pytest.fixture
def bench(tmp_path: Path, many_clips: list[Path]) -> Iterator[Bench]:
    made = Bench(tmp_path, many_clips)
    with made.store:
        yield made


@pytest.fixture
def genai(bench: Bench) -> Path:
    return bench.place("genai-bench")


def parts(share: dict[str, Any]) -> tuple[int, int]:
    return share["right"], share["of"]


def measured(figures: dict[str, Any], *measures: str) -> dict[str, list[tuple[int, int]]]:
    return {key: [parts(of[measure]) for measure in measures] for key, of in figures["accuracy"].items()}


def pairs_of(figures: dict[str, Any]) -> tuple[int, ...]:
    """The pairs chosen, judged, failed and left."""
    return tuple(figures["pairs"][name] for name in ("chosen", "judged", "failed", "left"))


def test_genai_bench_by_hand(bench: Bench, genai: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = bench.ask(genai, GENAI_WITH_ODDS)
    # Votes 1 2 0 0 1 2, verdicts 1 1 0 2 0 2: pairs 1, 3, 6 of six; of the four without a tie 1 and 6.
    # From the margins: calling |m| <= 0.05 a tie gets 1, 3, 5, 6 right; signs get 1, 5, 6 of the four.
    assert measured(figures, "tau", "diff", "calibrated", "sign") == {"OA": [(3, 6), (2, 4), (4, 6), (3, 4)]}
    assert figures["accuracy"]["OA"]["calibrated"]["threshold"] == 0.05
    # Rows: labels A, B, tie; columns: verdicts A, B, tie.
    assert figures["confusion"] == {"OA": [[1, 0, 1], [1, 1, 0], [0, 1, 1]]}
    # Four verdicts are no tie: 1, 1, 2, 2; so are four labels.
    assert [parts(figures["position"][of]) for of in ("verdicts", "labels")] == [(2, 4), (2, 4)]
    assert figures["split"] == "test_v1"
    assert figures["published"] == {"figures": [], "left_out": [], "other_splits": ["test", "unifiedreward"]}
    # Clips of 4 to 15 frames at 16 a second; the longest tenth of six pairs is one: 15 frames.
    [clips] = [of for of in figures["subsets"] if of["of"] == "clip"]
    assert (clips["from"], clips["pairs"], parts(clips["tau"])) == (15 / 16, 1, (1, 1))
    assert json.loads(json.dumps(figures)) == figures == read_figures(bench.run).to_json()

    bench.says(
        "GenAI-Bench, video part, split test_v1: 6 of 6 pairs judged, 0 failed",
        r"Overall +6 of 6 +50\.0 \(19-81\) +50\.0 \(15-85\) .*",  # Wilson of 3 in 6 and of 2 in 4
        r".*a tie is \|P\(A\) - P\(B\)\| <= 0\.05.*",
        ".*figures of this set are of split test, unifiedreward, not of test_v1: they are not comparable.*",
    )
    assert not [word for word in ("VR-Thinker", "published evaluations", "\x1b") if word in bench.shown]

    drawn = draw_plots(bench.made.figures, bench.folder / "plots" / "deep")
    assert [path.name for path in drawn] == ["accuracy-OA.png"]
    with Image.open(drawn[0]) as picture:
        assert picture.width == 1760
        assert len(picture.getcolors(2**20) or ()) > 10
    with pytest.raises(UsageError, match="cannot be written"):
        draw_plots(bench.made.figures, drawn[0])

    monkeypatch.setenv("COLUMNS", "40")
    narrow = Terminal()
    with redirect_stdout(narrow):
        show_figures(bench.made.figures, judge="j", run="r")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", narrow.getvalue()).splitlines()
    assert [line for line in lines if len(line) > 40] == []
    assert "  tau 50.0 (19-81)" in lines


def test_videogen_rewardbench_by_hand(bench: Bench) -> None:
    figures = bench.ask(bench.place("videogen-rewardbench"), VIDEOGEN)
    assert measured(figures, "tau", "diff") == {
        "OA": [(3, 4), (3, 3)],  # labels 1 2 0 1 -, verdicts 1 2 1 1 2
        "TA": [(3, 5), (2, 4)],  # labels 1 2 1 0 2, verdicts 1 1 0 0 2
        "VQ": [(4, 4), (3, 3)],  # labels 0 2 - 1 2, verdicts 0 2 1 1 2
        "MQ": [(3, 4), (2, 3)],  # labels 1 - 0 2 1, verdicts 2 1 0 2 1
    }
    # No probabilities were given: the soft measures say so, and are of no pair.
    assert figures["accuracy"]["OA"]["probabilities"] == 0
    assert figures["accuracy"]["OA"]["calibrated"]["value"] is None
    # The last prompt is the longest: "Made-up prompt" and five times "long"; it has no overall label, so pair 4 leads.
    [prompts] = [of for of in figures["subsets"] if of["of"] == "prompt"]
    assert (prompts["from"], prompts["pairs"], parts(prompts["tau"])) == (34.0, 1, (1, 1))

    # The first two pairs share a prompt: Wilson's interval is the same everywhere, beside a warning.
    alignment = figures["accuracy"]["TA"]
    assert (alignment["pairs"], alignment["prompts"]) == (5, 4)
    low, high = alignment["tau"]["low"], alignment["tau"]["high"]
    assert (low, high) == wilson(3, 5) == pytest.approx((0.2307, 0.8824), abs=1e-4)
    warning = "5 pairs have 4 prompts; pairs of one prompt are not independent"
    bench.says(
        r"Prompt alignment \(TA\) +5 of 5 +60\.0 \(23-88\) .*", rf"[^:]*Prompt alignment \(TA\)[^:]*: {warning}.*"
    )
    page = bench.page
    assert "Prompt alignment (TA)|5 of 5|60.0 (23-88)|" in page
    assert f"Prompt alignment (TA): {warning}" in page
    own = bench.made.figures
    one = replace(own, accuracy={"TA": replace(own.accuracy["TA"], prompts=1)})  # type: ignore[type-var]
    assert "Prompt alignment (TA): 5 pairs have 1 prompt;" in text_of(one)


def test_published_figures_stand_beside_their_own_split(bench: Bench, genai: Path) -> None:
    figures = bench.ask(genai, [TIE] * 5, split="test")
    assert (figures["set"], figures["split"]) == ("genai-bench", "test")
    assert measured(figures, "tau", "diff") == {"OA": [(3, 5), (0, 2)]}  # labels 0 2 0 0 2
    told = {(of["model"], of["measure"]): of["value"] for of in figures["published"]["figures"]}
    assert (told["VR-Thinker 7B", "tau"], told["VideoScore 7B", "calibrated"]) == (0.687, 0.475)
    bench.says(
        "GenAI-Bench, video part, split test: 5 of 5 pairs judged.*",
        "PUBLISHED, OVERALL +TAU +DIFF +CALIBRATED +SIGN",
        r"VR-Thinker 7B +68\.7 +82\.3 +- +-",
        r"VideoScore 7B +- +- +47\.5 +70\.9",
        r"this run, 5 pairs +60\.0 \(23-88\) +0\.0 \(0-66\) +- +-",
        # Labels 0 2 0 0 2: three in five for a tie; of the two that are none both are B.
        r"always tie, all 5 pairs +60\.0 \(23-88\) +0\.0 \(.*",
        r"commonest answer, all 5 pairs +60\.0 \(23-88\) +100\.0 \(34-100\)",
        r".*source: VR-Thinker \(arXiv 2510\.10518v4\), the main table.*",
        ".*UnifiedReward 7B, UnifiedReward-Think 7B: UnifiedReward's own script counts every tie as wrong.*",
    )
    assert "not comparable" not in bench.shown
    [chart] = [chart for chart in list_charts(bench.made.figures) if chart.name == "OA"]
    assert {row.label: row.words for row in chart.rows}["VR-Thinker 7B, tau"] == "68.7"


def test_baselines_by_hand(bench: Bench, genai: Path) -> None:
    """Of the judged pairs beside their figures, of the whole table by themselves; every part has its own."""
    figures = bench.ask(genai, GENAI, limit=4, order="both", budget=6)

    def counted(of: dict[str, Any]) -> list[tuple[int, ...]]:
        """The answer, and its share, of always a tie and of the commonest answer, each by tau and diff."""
        shares = [of[kind][measure] for kind in ("tie", "commonest") for measure in ("tau", "diff")]
        return [(share["answer"], *parts(share)) for share in shares]

    # Labels 1 2 0 0 1 2. Judged are the first three, in both orders: 1 2 0.
    assert counted(figures["accuracy"]["OA"]["baselines"]) == [(0, 1, 3), (0, 0, 2), (1, 1, 3), (1, 1, 2)]
    assert counted(figures["baselines"]["OA"]) == [(0, 2, 6), (0, 0, 4), (1, 2, 6), (1, 2, 4)]
    assert figures["baselines"]["OA"]["pairs"] == 6
    for part in (*figures["subsets"], figures["orders"]["given"], figures["orders"]["averaged"]):
        assert part["baselines"]["pairs"] == part["pairs"]
    bench.says(
        r"Overall +3 of \d .* 33\.3 / 0\.0 +33\.3 / 50\.0",
        "ORDER +JUDGED +TAU +DIFF +ALWAYS TIE +COMMONEST",
        r"averaged +3 of 3 .* 33\.3 / 0\.0 +33\.3 / 50\.0",
    )


def test_a_users_own_paths_lead_anywhere_and_a_published_sets_do_not(bench: Bench) -> None:
    tables = bench.folder / "tables"
    (tables / "deep" / "er").mkdir(parents=True)
    one, two = (shutil.copyfile(clip, bench.folder / f"{n}.mp4") for n, clip in enumerate(bench.clips[:2]))
    shutil.copyfile(one, tables / "deep" / "er" / "name.mp4")
    ways = ("../..", "er/../../..", "..\\..")
    others = ("elsewhere/name.mp4", "../nowhere.mp4", "/")
    rows = [f"{one},{path},A" for path in (*(f"{way}/{two.name}" for way in ways), *others)]
    (tables / "deep" / "mine.csv").write_text("\n".join(["a,b,overall", *rows]))
    figures = bench.ask(tables / "deep" / "mine.csv", [verdict("1000")] * 6)
    assert (pairs_of(figures), figures["failures"]["counts"]) == ((6, 4, 2, 0), {"missing clip": 2})
    for failure, says in zip(figures["failures"]["first"], ("is not in", "is no file name"), strict=True):
        assert says in failure["why"]
    row = {"prompt": "x", "left_video": str(one), "right_video": f"../{two.name}", "vote_type": "leftvote"}
    (tables / "test-0.jsonl").write_text(json.dumps(row) + "\n")
    failures = bench.ask(tables / "test-0.jsonl")["failures"]
    assert failures["counts"] == {"missing clip": 1}
    assert "refused" in failures["first"][0]["why"]


def test_what_it_costs(bench: Bench, genai: Path) -> None:
    """One pair of six asks for frames once, one recommends and is never final."""
    cost = bench.ask(genai, [CALL, verdict("1000"), *[TIE] * 5])["cost"]
    assert (cost["judgements"], parts(cost["tool_rate"]), cost["rounds_histogram"]) == (6, (1, 6), {"1": 5, "2": 1})
    assert cost["rounds"] == {"mean": pytest.approx(7 / 6), "median": 1, "p95": 2}


def test_an_export_has_the_labels_about_the_clips_as_shown(bench: Bench, genai: Path) -> None:
    figures = bench.ask(genai, GENAI, order="swapped")
    rows = list(csv.DictReader(io.StringIO("".join(csv_lines(bench.run)), newline="")))
    assert [row["rows"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    right = sum(row["OA"] == row["OA label"] for row in rows)
    assert (right, len(rows)) == parts(figures["accuracy"]["OA"]["tau"])
    assert {row["TA label"] for row in rows} == {""}
    lines = [json.loads(line) for line in json_lines(bench.run)]
    assert [str(line["labels"]["OA"]) for line in lines] == [row["OA label"] for row in rows]
    with bench.store.write() as connection:
        connection.execute("UPDATE items SET value = '{}' WHERE kind = 'pair'")
    with pytest.raises(StoreError, match="is damaged: a row cannot be read"):
        list(csv_lines(bench.run))


def test_the_time_left_is_that_of_what_is_left_to_judge(bench: Bench, genai: Path) -> None:
    """None is left at the end, also if a budget leaves pairs for later."""

    class Told(EvaluationView):
        def count(self, *, failed: bool, seconds_left: float | None) -> None:
            self.left = [*getattr(self, "left", []), seconds_left]

    found = read_set(locate_set(genai))
    for budget, found_before in ((2, 0), (None, 2)):
        view = Told(io.StringIO(), quiet=True, total=6)
        with Judge("vrt-tiny-0", backend=ScriptedBackend(GENAI[found_before:]), measures=False) as judge:
            evaluate(found, PairSelection(budget=budget), store=bench.store, judge=judge, watcher=view)
        *before, last = view.left[found_before:]
        assert last == 0
        assert all(before)


def test_failures_are_listed_counted_and_wrong(bench: Bench, genai: Path) -> None:
    (genai / "g1a.mp4").unlink()
    (genai / "g2b.mp4").write_bytes(b"no video at all")
    figures = bench.ask(genai, [TIE, "nothing", "still nothing", verdict("1000"), verdict("2000")])
    failures = figures["failures"]
    assert failures["counts"] == {"missing clip": 1, "broken clip": 1, "no verdict": 1}
    told = [(of["row"], of["kind"]) for of in failures["first"]]
    assert told == [(1, "missing clip"), (2, "broken clip"), (4, "no verdict")]
    assert "g1a.mp4" in failures["first"][0]["why"]
    # Judged: pairs 3 (0, right), 5 (1, right), 6 (2, right). Of the failed, pairs 1 and 2 are no labelled ties.
    assert measured(figures, "tau", "diff", "tau_all", "diff_all") == {"OA": [(3, 3), (2, 2), (3, 6), (2, 4)]}
    assert pairs_of(figures) == (6, 3, 3, 0)
    # The clip comes back: it is judged, and the failure is gone. What had no verdict is not asked again.
    shutil.copyfile(bench.clips[0], genai / "g1a.mp4")
    figures = bench.ask(genai, [verdict("1000")])
    assert figures["failures"]["counts"] == {"broken clip": 1, "no verdict": 1}
    assert measured(figures, "tau") == {"OA": [(4, 4)]}
    # What is forgotten is no failure any more, in no figure, until it is judged again.
    assert bench.store.forget_failures(bench.run.name) == 2
    later = read_figures(bench.run)
    assert (later.failures.counts, pairs_of(later.to_json())) == ({}, (6, 4, 0, 2))
    figures = bench.ask(genai, [TIE])
    assert (figures["failures"]["counts"], pairs_of(figures)) == ({"broken clip": 1}, (6, 5, 1, 0))


def test_a_run_goes_on_where_it_stopped_within_its_budget(bench: Bench, genai: Path) -> None:
    def cut_short() -> Iterator[Reply]:
        yield from GENAI[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.ask(genai, cut_short(), name="mine")
    assert pairs_of(read_figures(bench.store.run("mine")).to_json()) == (6, 2, 0, 4)
    assert pairs_of(bench.ask(genai, GENAI[2:], name="mine", budget=3)) == (6, 5, 0, 1)
    assert len(bench.backend.conversations) == 3
    rest = bench.ask(genai, GENAI[5:], name="mine")
    assert len(bench.backend.conversations) == 1
    assert measured(rest, "tau", "diff") == {"OA": [(3, 6), (2, 4)]}
    assert len(list(bench.run.results())) == 6
    assert bench.ask(genai, name="mine") == rest, "nothing is asked of this judge"
    with pytest.raises(UsageError, match=r"--limit none \(not 1\)"):
        bench.ask(genai, name="mine", limit=1)
    assert pairs_of(bench.ask(genai, limit=2)) == (2, 2, 0, 0), "judged in the other run"
    assert len(bench.store.runs()) == 2


def test_judgements_made_with_different_pixels_are_said_to_differ(bench: Bench, genai: Path) -> None:
    assert bench.ask(genai, GENAI, name="mixed", budget=3)["conditions"]["comparable"]
    assert "comparable" not in bench.shown.split("ACCURACY")[0]
    bench.ask(genai, GENAI, name="mixed", budget=1, pixels=784 * 16)
    conditions = bench.made.figures.conditions
    most, fewest = conditions.made_with
    assert not conditions.comparable
    assert (most.judgements, fewest.judgements, fewest.max_pixels) == (2, 1, 784 * 16)
    sizes = (f"{of.judgements} at {of.max_pixels} ({of.tool_max_pixels} a requested frame)" for of in (most, fewest))
    said = f"judgements by pixels a frame: {', '.join(sizes)}: not comparable"
    assert f"warning: {said}" in bench.shown.splitlines()
    assert said in bench.page


def test_both_orders_and_their_effect(bench: Bench, genai: Path) -> None:
    # Labels 1 2 0 0 1 2. A first: 1 1 0 2 0 2 as before, 3 of 6. B first, said of video 1 and 2: 2 2 0 2 1 0, which is
    # about A and B 1 1 0 1 2 0: pairs 1 and 3, 2 of 6. They differ on pairs 4, 5, 6.
    swapped = [verdict(selections) for selections in ("2000", "2000", "0000", "2000", "1000", "0000")]
    replies = [reply for pair in zip(GENAI, swapped, strict=True) for reply in pair]
    figures = bench.ask(genai, replies, order="both")
    orders = figures["orders"]
    assert [parts(orders[name]["tau"]) for name in ("given", "swapped")] == [(3, 6), (2, 6)]
    assert (orders["effect"]["pairs"], orders["effect"]["tau"]) == (6, pytest.approx(-1 / 6))
    assert orders["effect"]["low"] <= -1 / 6 <= orders["effect"]["high"]
    assert parts(orders["disagree"]["OA"]) == (3, 6)
    # Shown first, and won: A twice of four, B once of four.
    assert parts(figures["position"]["verdicts"]) == (3, 8)
    # Averaged, without probabilities: 4 is B against A, undecided, which no label is, though it is a tie; 5 tie against
    # B and 6 B against tie are ties. Right: 1, 3.
    assert parts(orders["averaged"]["tau"]) == (2, 6)
    assert orders["averaged"]["undecided"] == 1


def test_a_random_order_is_the_seeds(bench: Bench, genai: Path) -> None:
    figures = bench.ask(genai, [TIE] * 6, order="random", seed=1)
    given, swapped = (figures["orders"][name]["pairs"] for name in ("given", "swapped"))
    assert given + swapped == 6
    assert 0 < given < 6
    assert bench.ask(genai, order="random", seed=1) == figures


def test_a_hostile_table_stays_text(bench: Bench) -> None:
    table = bench.folder / "pairs.csv"
    table.write_text('id,a,b,overall\n"\x1b[31mred\u202e",no.mp4,no2.mp4,A\n', encoding="utf-8")
    bench.ask(table)
    assert "\\x1b[31mred\\u202e" in bench.shown
    assert not {"\x1b", "\u202e"} & set(bench.shown)


def test_the_command_with_the_bundled_judge(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The real judge, in its own process, which is given no prompt once: in both forms, and `show` after it."""
    (tmp_path / "pairs.csv").write_text(
        "a,b,prompt,overall,TA\n"
        f"{EXAMPLES / 'star.mp4'},circle.mp4,A blue star moves up.,A,\n"
        "circle.mp4,star.mp4,,2,same\n"
        "star.mp4,gone.mp4,x,B,\n" + 5 * "star.mp4,circle.mp4,x,left,\n"
    )
    kept = ["--store", str(tmp_path / "s")]
    command = ["eval", str(tmp_path / "pairs.csv"), "--from", str(EXAMPLES), "--threads", "1", "--name", "foxes", *kept]
    assert run([*command, "--budget", "0", "--plots", str(tmp_path / "empty")]) == 0
    assert capfd.readouterr().err.endswith("drawn: nothing: no pair is both labelled and judged\n")
    assert run([*command, "--json"]) == 0
    out, err = capfd.readouterr()
    figures = json.loads(out)
    assert pairs_of(figures) == (3, 2, 1, 0)
    assert (figures["accuracy"]["OA"]["probabilities"], figures["coverage"]["TA"]["not_judged"]) == (2, 1)
    assert figures["accuracy"]["TA"] is figures["confusion"]["TA"] is None
    assert parts(figures["accuracy"]["OA"]["tau"])[0] > 0  # the example pair: A is better, and the judge says so
    assert "3 of 3, " in err
    told = [line for line in err.splitlines() if line.startswith(("left out: ", "and "))]
    assert [line.partition(";")[0] for line in told[:3]] == [
        f"left out: row {row} has the OA label 'left'" for row in (4, 5, 6)
    ]
    assert told[3:] == ["and 2 more of these: the report lists them"]
    again = [*command, "--budget", "0", "-q", "--plots", str(tmp_path / "plots")]
    for arguments in (again, ["show", "foxes", *kept]):
        assert run(arguments) == 0
        out, _ = capfd.readouterr()
        assert "labelled pairs: 2 of 3 pairs judged, 1 failed" in out
        assert re.search(r"^Prompt alignment \(TA\) +0 of 1 +not judged", out, re.MULTILINE)
        assert f"judge: vrt-tiny-2, {figures['scope']}" in out.splitlines()
        said = "warning: in 1 judgement(s): No prompt was given: prompt alignment (TA) is not judged."
        assert said in out.splitlines()
    assert (tmp_path / "plots" / "accuracy-OA.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["genai-bench"], "vrt-lite eval genai-bench --pull"),
        (["nowhere"], "There is no set 'nowhere'"),
        (["nope.csv"], "There is no table 'nope.csv'"),
        (["pairs.csv", "--pull"], "--pull fetches a set by its name"),
        (["genai-bench", "--jobs", "257"], "give 1..256|auto"),
        (["genai-bench", "--split", "test"], "vrt-lite eval genai-bench --split test --pull"),
        (["genai-bench", "--split", "unifiedreward"], "Give a copy with --from FOLDER."),
        (["genai-bench", "--split", "unifiedreward", "--pull"], "split unifiedreward is not on the hub"),
        (["genai-bench", "--split", "dev"], "known are test_v1, test, unifiedreward"),
        (["genai-bench", "--from", str(EXAMPLES)], "not laid out as GenAI-Bench"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "options", "split", "compared"),
    [
        ("mj-bench-video", [], "test", 0),
        ("genai-bench", [], "test_v1", 0),
        ("genai-bench", ["--split", "test"], "test", 10),
    ],
)
def test_a_set_whose_clips_are_all_missing_ends_with_a_status(
    name: str, options: list[str], split: str, compared: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", name, "--from", str(SETS / name), "--store", str(tmp_path / "s"), *options]
    assert run([*command, "--json"]) == 3
    out, err = capfd.readouterr()
    figures = json.loads(out)
    chosen, judged, failed, _ = pairs_of(figures)
    assert (judged, figures["failures"]["counts"]) == (0, {"missing clip": chosen})
    assert failed == chosen >= 5
    assert (figures["split"], len(figures["published"]["figures"])) == (split, compared)
    assert "--from FOLDER" in err.splitlines()[-1]
    assert run([*command, "-m", "no-such-model"]) == 4
    with Store(tmp_path / "s") as store:
        assert store.runs() == []
