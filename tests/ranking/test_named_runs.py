"""A ranking's run: resumed by its name, refused for another prompt, gone if nothing was judged; its figures are one."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brightness import Brightness, judge_of, names, unwatched, write_grey, write_greys
from reports import Report

from vrt_lite.cli import run as vrt_lite
from vrt_lite.errors import OutOfMemoryError, UsageError
from vrt_lite.interfaces import FrameStore, Observe, Sampling
from vrt_lite.protocol.messages import KEYS, Conversation, Reply
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort
from vrt_lite.records.ladders import Ranking
from vrt_lite.records.pairs import Question
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import Run, Store
from vrt_lite.viewer import write_report


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


def ranked(
    store: Store,
    backend: Any,
    clips: list[Path],
    *,
    prompt: str = "Light.",
    effort: Effort | None = None,
    name: str | None = "foxes",
) -> Ranking:
    with judge_of(backend) as judge:
        group = Group("", prompt, tuple(clips))
        return rank_clips([group], store=store, judge=judge, watcher=unwatched(), effort=effort, name=name)


class Failing:
    """A back end that ends its first reply with an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def reply(self, conversation: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutOfMemoryError("No memory.")], ids=repr)
def test_a_call_that_ends_before_its_first_judgement_leaves_no_run(
    store: Store, tmp_path: Path, error: BaseException
) -> None:
    clips = write_greys(tmp_path, (90, 200))
    with pytest.raises(type(error)):
        ranked(store, Failing(error), clips)
    assert store.runs() == []
    assert len(ranked(store, Brightness(), clips, prompt="Dark.").ladders) == 1, "the name is free"


def test_a_command_that_fails_leaves_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clips = [str(path) for path in write_greys(tmp_path, (90, 200))]
    table = tmp_path / "pairs.csv"
    table.write_text("a,b,prompt,overall\nno.mp4,none.mp4,A fox.,A\n")
    for status, *arguments in (
        (4, "rank", *clips, "-m", "no-such-model"),
        (5, "rank", *clips, "--ctx", "100000000"),
        (2, "rank", *clips, "--max-pixels", "1"),
        (3, "rank", *clips[:1], str(tmp_path / "gone.mp4")),
        (3, "eval", str(table)),
        (4, "eval", str(table), "-m", "no-such-model"),
    ):
        assert vrt_lite([*arguments, "-q", "--name", "foxes"]) == status, arguments
        assert "Traceback" not in capfd.readouterr().err
    with Store() as opened:
        assert opened.runs() == []


def test_another_prompt_is_refused_and_nothing_is_mixed(store: Store, tmp_path: Path) -> None:
    clips, backend = write_greys(tmp_path, (90, 200)), Brightness()
    ranked(store, backend, clips)
    with pytest.raises(UsageError, match=r"Run 'foxes' was made with prompt 'Light\.' \(not 'Dark\.'\)\. Give another"):
        ranked(store, backend, clips, prompt="Dark.")
    assert len(backend.asked) == 2
    assert {result.prompt for result in store.run("foxes").results()} == {"Light."}


def test_clips_may_come_and_go_under_one_name(store: Store, tmp_path: Path) -> None:
    clips = write_greys(tmp_path, (90, 200, 40))
    ranked(store, Brightness(), clips)
    more = Brightness()
    ranking = ranked(store, more, [*clips[:2], write_grey(tmp_path / "new.mp4", 120)])
    assert len(more.asked) == 4
    assert names(ranking.ladders[0]) == ("take 2.mp4", "new.mp4", "take 1.mp4")
    run = store.run("foxes")
    assert len(list(run.results())) == ranking.ladders[0].judgements == 6
    exported = list(csv.DictReader(io.StringIO("".join(csv_lines(run)))))
    assert {row["first"] for row in exported} == {"take 1.mp4", "take 2.mp4", "new.mp4"}
    back = Brightness()
    assert ranked(store, back, clips).ladders[0].judgements == 6
    assert back.asked == [], "what was judged before the clip went is found again"


@pytest.fixture
def mixed(store: Store, tmp_path: Path) -> Run:
    """A run with undecided pairs, failures, pairs in one order only, and one order judged again with smaller frames."""
    clips = write_greys(tmp_path / "in", (10, 100, 104, 108, 200))
    ranked(store, Brightness(near=4, biased=1, dark=20), clips)
    run = store.run("foxes")
    _, one, two, three, bright = (store.digest(clip) for clip in clips)
    missing = {(one, bright), (bright, two)}
    run.list_only(lambda result: (result.first, result.second) not in missing)
    with judge_of(Brightness(near=300)) as judge:
        tied = judge.compare(clips[3], clips[4], prompt="Light.")
    run.add(Question(three, bright, "Light.", "with smaller frames"), tied)
    return run


def count_in_export(rows: list[dict[str, Any]]) -> tuple[int, Counter[str], Counter[str]]:
    """Pairs with a verdict in both orders, and by key those that differ, and those that are undecided."""
    pairs = {tuple(sorted((row["first"], row["second"]))): row for row in rows if row["OA both orders"]}
    differ = Counter(key for row in pairs.values() for key in row["orders disagree on"].split())
    undecided = Counter(
        key for row in pairs.values() for key in KEYS if row[f"{key} both orders"].startswith("undecided")
    )
    return len(pairs), differ, undecided


def test_figures_are_one_wherever_they_are_told(mixed: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO("".join(csv_lines(mixed)))))
    pairs, differ, undecided = count_in_export(rows)
    judged = {tuple(sorted((row["first"], row["second"]))) for row in rows if row["OA"]}
    assert (undecided["OA"], differ["OA"], pairs, len(judged)) == (2, 3, 4, 6)
    failed = sum(bool(row["error"]) for row in rows)
    assert failed > 0

    lines = [json.loads(line) for line in json_lines(mixed)]
    told = {tuple(sorted((r["first"]["name"], r["second"]["name"]))): r for r in lines if r["both_orders"]}
    assert Counter(key for row in told.values() for key in row["disagreements"]) == differ

    assert vrt_lite(["show", "foxes", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    [ladder] = shown["ladders"]
    assert ladder["orders"] == {
        "pairs": pairs,
        "judged": {key: pairs for key in KEYS if key != "TA"},
        "differ": {key: differ[key] for key in KEYS if key != "TA"},
        "undecided": {key: undecided[key] for key in KEYS if key != "TA"},
    }
    assert (shown["failures"], ladder["failures"], shown["judgements"]) == (failed, failed, len(rows))
    assert sum(standing["undecided"] for standing in ladder["standings"]) == 2 * undecided["OA"]

    assert vrt_lite(["show", "foxes"]) == 0
    text = capfd.readouterr().out
    by_dimension = ", ".join(f"{key} in {differ[key]}" for key in ("VQ", "MQ"))
    overall = f"overall in {differ['OA']} of {pairs} pairs judged in both, {undecided['OA']} of them undecided"
    assert f"orders disagree {overall}; {by_dimension}\n" in text

    write_report(mixed, tmp_path / "r.html")
    page = Report(tmp_path / "r.html")
    [group] = page.record["groups"]
    assert group["ladder"] == {name: value for name, value in ladder.items() if name != "pairs"}
    assert f"orders disagree {overall}; {by_dimension}" in group["words"]["notes"]
    assert sum(cell["differ"] for cell in group["matrix"]["cells"]["OA"]) == differ["OA"]
    assert sum("orders disagree" in row[-1] for row in page.index) == differ["OA"]
    plain = re.sub(" +", " ", text)
    for standing in ladder["standings"]:
        rated, low, high = (f"{standing['ratings']['OA'][name]:+.2f}" for name in ("strength", "low", "high"))
        assert f" {standing['name']} {rated} {low} {high} " in plain
