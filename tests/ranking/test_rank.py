"""Rankings by a judge whose preferences are known: what is asked, how often, what comes of it, and what a run keeps."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from brightness import Brightness, group, judge_of, names, ranked, unwatched, write_grey, write_greys
from clips import cut
from reports import Report

from vrt_lite.cli import run as vrt_lite
from vrt_lite.errors import NoVerdictError, OutOfMemoryError, UsageError, VideoError
from vrt_lite.interfaces import Event, FrameStore, Observe, Sampling, Stop, Working, ignore
from vrt_lite.protocol.messages import KEYS, Conversation, Reply
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import look_at_clips, rank_clips
from vrt_lite.ranking.rank_run import Effort, read_groups, read_rank_about
from vrt_lite.ranking.winners import copy_winners, file_name
from vrt_lite.records.pairs import Question
from vrt_lite.runs.export import csv_lines, json_lines
from vrt_lite.runs.store import Run, Store
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.viewer import write_report

GREYS = (90, 200, 40, 150)
BEST = ("take 2.mp4", "take 4.mp4", "take 1.mp4", "take 3.mp4")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.fixture
def greys(tmp_path: Path) -> list[Path]:
    return write_greys(tmp_path / "in", GREYS)


def asked_of(store: Store, *groups: Any, **options: Any) -> list[tuple[int, int]]:
    """Which greys a judge is asked for that has not been asked before."""
    backend = Brightness()
    ranked(store, backend, *groups, **options)
    return backend.asked


def test_it_says_how_many_clips_are_measured(greys: list[Path], tmp_path: Path) -> None:
    told: list[Event] = []
    (broken := tmp_path / "broken.mp4").write_text("no clip")
    clips = {path.name: path for path in (*greys, broken)}
    with judge_of(Brightness()) as judge:
        looks = look_at_clips(clips, judge, told.append, Stop())
    assert told == [Working(f"measuring the clips ({done} of 5)") for done in range(5)]
    assert list(looks) == list(clips)
    assert [name for name, look in looks.items() if isinstance(look, VideoError)] == ["broken.mp4"]


def test_measuring_the_clips_ends_when_it_is_told_to(greys: list[Path]) -> None:
    stop = Stop()
    stop.set(NoVerdictError("told to end"))
    with judge_of(Brightness()) as judge, pytest.raises(NoVerdictError, match="told to end"):
        look_at_clips({path.name: path for path in greys}, judge, ignore, stop)


def test_every_pair_is_judged_in_both_orders_once(store: Store, greys: list[Path], tmp_path: Path) -> None:
    backend = Brightness()
    ranking = ranked(store, backend, group(greys))
    [ladder] = ranking.ladders
    assert names(ladder) == BEST
    assert [standing.rank for standing in ladder.standings] == [1, 2, 3, 4]
    assert [(s.won, s.tied, s.lost) for s in ladder.standings] == [(3, 0, 0), (2, 0, 1), (1, 0, 2), (0, 0, 3)]
    assert (ladder.judgements, ladder.failures, ladder.cycles, ladder.unranked) == (12, 0, (), ())
    assert len(backend.asked) == len(set(backend.asked)) == 12
    assert ladder.standings[0].ratings["VQ"].strength > 1
    assert {round(s.ratings["MQ"].strength, 6) for s in ladder.standings} == {0}

    # What its run says of itself is its ladder.
    run = store.run(ranking.run)
    assert [rate_group(stored) for stored in read_groups(run)] == [ladder]
    [kept] = run.about["groups"]
    assert (kept["prompt"], [clip["name"] for clip in kept["clips"]]) == ("Light.", [path.name for path in greys])
    told = ranking.to_json()
    assert json.loads(json.dumps(told)) == told
    keys = {key for pair in told["ladders"][0]["pairs"] for key in pair["judgements"]}
    assert keys == {result.key for result in run.results()}

    # The run is the same whatever the order and place of its clips; another prompt is another run.
    moved = [clip.rename(tmp_path / f"{number}.mp4") for number, clip in enumerate(greys)]
    again = Brightness()
    found = ranked(store, again, group(moved[::-1]))
    assert (again.asked, found.found, found.run) == ([], 12, ranking.run)
    other = ranked(store, again, group(moved, prompt="Dark."))
    assert (len(again.asked), other.run != ranking.run) == (12, True)


def test_one_order_is_half_the_work_and_both_go_on_from_it(store: Store, greys: list[Path]) -> None:
    backend, rest = Brightness(), Brightness()
    [ladder] = ranked(store, backend, group(greys), effort=Effort(both_orders=False)).ladders
    assert (names(ladder), ladder.judgements) == (BEST, 6)
    assert len({one for one, _ in backend.asked}) > 1, "more than one clip is shown first"
    [ladder] = ranked(store, rest, group(greys)).ladders
    assert sorted(rest.asked) == sorted((two, one) for one, two in backend.asked)
    assert ladder.judgements == 12


def test_orders_that_disagree_are_undecided_and_are_reported(store: Store, tmp_path: Path) -> None:
    clips = group(write_greys(tmp_path, (100, 104, 200)))
    [ladder] = ranked(store, Brightness(near=10, biased=1), clips).ladders
    [pair] = [pair for pair in ladder.pairs if pair.disagreements]
    assert (pair.clips, pair.disagreements) == ((0, 1), ("VQ", "OA"))
    overall = pair.preferences["OA"]
    assert (overall.winner, overall.odds, overall.leans) == (0, pytest.approx((0.1, 0.45, 0.45)), 0)
    assert (ladder.judged, set(pair.preferences)) == (("VQ", "MQ"), {"VQ", "MQ", "OA"}), "it does not read the prompt"
    told = next(pair for pair in ladder.to_json()["pairs"] if pair["disagreements"])["preferences"]
    leans = {key: (of["winner"], of["leans"]) for key, of in told.items()}
    assert leans == {"VQ": (0, 0), "MQ": (0, None), "OA": (0, 0)}
    assert all("TA" not in standing["ratings"] for standing in ladder.to_json()["standings"])
    one, two, _ = sorted(ladder.standings, key=lambda standing: standing.clip)
    assert (one.won, one.tied, one.lost, one.undecided) == (0, 0, 1, 1)
    assert one.ratings["OA"].strength == pytest.approx(two.ratings["OA"].strength)
    assert set(one.letters) & set(two.letters)
    assert ladder.first.strength > 0


def test_judgements_made_with_different_pixels_are_said_to_differ(
    store: Store, greys: list[Path], tmp_path: Path
) -> None:
    ranked(store, Brightness(), group(greys), effort=Effort(budget=2), name="mixed")
    with judge_of(Brightness()) as judge:
        own, tool = judge.mode.own.max_pixels, judge.mode.own.tool_max_pixels
        judge.mode.profile = judge.mode.profile.with_max_pixels(784 * 16)  # as where larger frames do not fit
        ranking = rank_clips([group(greys)], store=store, judge=judge, watcher=unwatched(), name="mixed")
    [ladder] = ranking.ladders
    assert [(of.max_pixels, of.judgements) for of in ladder.conditions.made_with] == [(784 * 16, 10), (own, 2)]
    told = ladder.to_json()["conditions"]
    assert (told["comparable"], told["made_with"][1]["max_pixels"]) == (False, own)
    assert [rate_group(stored) for stored in read_groups(store.run("mixed"))] == [ladder]
    shown = io.StringIO()
    with redirect_stdout(shown):
        show_ladders(ranking.ladders, (), run="mixed", judge="j")
    sizes = f"10 at {784 * 16} ({784 * 16} a requested frame), 2 at {own} ({tool} a requested frame)"
    said = f"judgements by pixels a frame: {sizes}: not comparable"
    assert f"warning: {said}" in shown.getvalue().splitlines()
    write_report(store.run("mixed"), tmp_path / "r.html")
    assert said in Report(tmp_path / "r.html").words


def test_the_budget_holds_over_all_groups_and_sessions(store: Store, greys: list[Path], tmp_path: Path) -> None:
    groups = [group(greys, "a"), group(write_greys(tmp_path / "b", (50, 70, 90, 110)), "b")]
    one, two = ranked(store, Brightness(), *groups, effort=Effort(budget=1)).ladders
    assert [standing.rank for standing in one.standings] == [1, 2]
    shown = {standing.clip for standing in one.standings}
    left = [(clip, "not judged yet") for clip in range(len(GREYS)) if clip not in shown]
    assert [(of.clip, of.reason) for of in one.unranked] == left
    assert (two.standings, len(two.unranked)) == ((), len(GREYS))
    backend = Brightness()
    ranking = ranked(store, backend, *groups, effort=Effort(budget=11))
    assert len(backend.asked) == 10
    assert sorted(ladder.judgements for ladder in ranking.ladders) == [5, 6]
    assert len(asked_of(store, *groups, effort=Effort(budget=12))) == 1


def test_judgements_are_chosen_until_the_order_is_certain(store: Store, tmp_path: Path) -> None:
    clips, backend = group(write_greys(tmp_path, range(20, 230, 17))), Brightness()
    [ladder] = ranked(store, backend, clips, effort=Effort(confidence=0.6)).ladders
    assert names(ladder) == tuple(f"take {n}.mp4" for n in range(13, 0, -1))
    assert len(set(backend.asked)) == len(backend.asked) < 13 * 12 / 2
    assert asked_of(store, clips, effort=Effort(confidence=0.6)) == []


def test_groups_are_ranked_by_themselves(store: Store, greys: list[Path], tmp_path: Path) -> None:
    """Two groups may share clips. Clips of one name are told by their folders."""
    alike = write_greys(tmp_path / "b", [120])
    groups = group([*greys[:3], *alike], "x", "One."), group(greys[1:], "y", "Two.")
    ranking = ranked(store, Brightness(), *groups)
    assert [names(ladder) for ladder in ranking.ladders] == [
        ("in/take 2.mp4", "b/take 1.mp4", "in/take 1.mp4", "in/take 3.mp4"),
        ("take 2.mp4", "take 4.mp4", "take 3.mp4"),
    ]
    assert [(ladder.prompt, ladder.judgements) for ladder in ranking.ladders] == [("One.", 12), ("Two.", 6)]
    assert store.run(ranking.run).about["prompts"] == ["One.", "Two."]
    again = ranked(store, Brightness(), *groups)
    assert (again.found, again.ladders) == (18, ranking.ladders), "each group finds what was judged by its own prompt"


def test_what_cannot_take_part_is_listed_with_its_reason(store: Store, greys: list[Path], tmp_path: Path) -> None:
    twin, words, gone = (tmp_path / f"{name}.mp4" for name in ("twin", "words", "gone"))
    twin.write_bytes(greys[0].read_bytes())
    words.write_text("no video", encoding="utf-8")
    broken = {words, cut(greys[1], 900), gone, tmp_path}
    ranking = ranked(store, Brightness(), group([*greys, twin, *broken]), group([twin], "alone"))
    assert names(ranking.ladders[0]) == BEST
    assert [ladder.group for ladder in ranking.ladders] == [""]
    reasons = {(out.group, out.path): out.reason for out in ranking.left_out if not out.broken}
    alone = "the only clip of its group that can be used"
    assert reasons == {("", twin): f"the same content as {str(greys[0])!r}", ("alone", twin): alone}
    found = {out.path: out.reason for out in ranking.left_out if out.broken}
    assert found.keys() == broken
    assert all(str(path) not in reason for path, reason in found.items())
    assert read_rank_about(store.run(ranking.run)).left_out == ranking.left_out
    with pytest.raises(UsageError, match="Two different clips"):
        ranked(store, Brightness(), group([twin, twin]))
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        ranked(store, Brightness(), group([twin, gone]))


def test_a_clip_without_any_verdict_is_not_ranked(store: Store, greys: list[Path]) -> None:
    [ladder] = ranked(store, Brightness(dark=60), group(greys)).ladders
    assert names(ladder) == BEST[:3]
    assert [(of.clip, of.reason) for of in ladder.unranked] == [(2, "No verdict: it is too dark.")]
    assert (ladder.judgements, ladder.failures) == (12, 6)
    assert asked_of(store, group(greys)) == [], "a failure is an answer"


def test_winners_are_copied_and_nothing_is_overwritten(store: Store, greys: list[Path], tmp_path: Path) -> None:
    ranking = ranked(store, Brightness(), group(greys[:2], "../x"), group(greys[2:], "y."))
    chosen = [(ladder.group, ladder.ranked) for ladder in ranking.ladders]
    copies = [path.relative_to(tmp_path / "groups") for path in copy_winners(chosen, tmp_path / "groups")]
    assert [path.parent.name for path in copies] == ["01-_x", "01-_x", "02-y", "02-y"], "a folder for each group"
    assert copies[2].name == "01-take 4.mp4"

    out = tmp_path / "out"
    copies = copy_winners(chosen[:1], out)
    assert [path.name for path in copies] == ["01-take 2.mp4", "02-take 1.mp4"]
    assert copies[0].read_bytes() == greys[1].read_bytes()
    stamp = copies[0].stat().st_mtime_ns
    assert copy_winners(chosen[:1], out) == copies
    assert copies[0].stat().st_mtime_ns == stamp
    copies[0].unlink()
    copies[1].write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already and is another file"):
        copy_winners(chosen[:1], out)
    assert [path.read_bytes() for path in out.iterdir()] == [b"mine"]

    write_grey(greys[1], 3)
    with pytest.raises(UsageError, match="has changed since it was ranked"):
        copy_winners(chosen[:1], tmp_path / "more")
    assert list((tmp_path / "more").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("fox.mp4", "01-fox.mp4"),
        ("-rf.mp4", "01--rf.mp4"),
        ("a/b\\c:d*?.mp4", "01-a_b_c_d__.mp4"),
        ("\x1b[31m\u202egpj\n.mp4", "01-_[31m_gpj_.mp4"),
        ("con.mp4", "01-con.mp4"),
        ("dots. . ", "01-dots"),
        ("...", "01-clip"),
        ("é" * 300 + ".mp4", f"01-{'é' * 98}.mp4"),
    ],
)
def test_copies_have_names_that_any_system_takes(name: str, kept: str) -> None:
    assert file_name(1, name) == kept


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutOfMemoryError("No memory.")], ids=repr)
def test_a_call_that_ends_before_its_first_judgement_leaves_no_run(
    store: Store, greys: list[Path], error: BaseException
) -> None:
    class Failing:
        def reply(self, context: Conversation, frames: FrameStore, *, sampling: Sampling, observe: Observe) -> Reply:
            raise error

    with pytest.raises(type(error)):
        ranked(store, Failing(), group(greys[:2]), name="foxes")
    assert store.runs() == []
    assert ranked(store, Brightness(), group(greys[:2], prompt="Dark."), name="foxes").ladders, "the name is free"


def test_a_name_is_of_one_prompt_and_clips_may_come_and_go(store: Store, greys: list[Path], tmp_path: Path) -> None:
    clips, new = greys[:3], write_grey(tmp_path / "new.mp4", 120)
    assert len(asked_of(store, group(clips), name="foxes")) == 6
    with pytest.raises(UsageError, match=r"Run 'foxes' was made with prompt 'Light\.' \(not 'Dark\.'\)\. Give another"):
        ranked(store, Brightness(), group(clips, prompt="Dark."), name="foxes")
    more = Brightness()
    [ladder] = ranked(store, more, group([*clips[:2], new]), name="foxes").ladders
    assert (len(more.asked), names(ladder)) == (4, ("take 2.mp4", "new.mp4", "take 1.mp4"))
    run = store.run("foxes")
    assert {result.prompt for result in run.results()} == {"Light."}
    assert len(list(run.results())) == ladder.judgements == 6
    exported = list(csv.DictReader(io.StringIO("".join(csv_lines(run)))))
    assert {row["first"] for row in exported} == {"take 1.mp4", "take 2.mp4", "new.mp4"}
    assert asked_of(store, group(clips), name="foxes") == [], "what was judged before the clip went is found again"
    assert len(list(run.results())) == 6


@pytest.fixture
def mixed(store: Store, tmp_path: Path) -> Run:
    """A run with undecided pairs, failures, pairs in one order only, and one order judged again with smaller frames."""
    clips = write_greys(tmp_path / "in", (10, 100, 104, 108, 200))
    ranked(store, Brightness(near=4, biased=1, dark=20), group(clips), name="foxes")
    run = store.run("foxes")
    _, one, two, three, bright = (store.digest(clip) for clip in clips)
    missing = {(one, bright), (bright, two)}
    run.list_only(lambda result: (result.first, result.second) not in missing)
    with judge_of(Brightness(near=300)) as judge:
        tied = judge.compare(clips[3], clips[4], prompt="Light.")
    run.add(Question(three, bright, "Light.", "with smaller frames"), tied)
    return run


def test_figures_are_one_wherever_they_are_told(mixed: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO("".join(csv_lines(mixed)))))
    both = {tuple(sorted((row["first"], row["second"]))): row for row in rows if row["OA both orders"]}
    differ = Counter(key for row in both.values() for key in row["orders disagree on"].split())
    undecided = Counter(key for row in both.values() for key in KEYS if "undecided" in row[f"{key} both orders"])
    judged = {tuple(sorted((row["first"], row["second"]))) for row in rows if row["OA"]}
    assert (undecided["OA"], differ["OA"], len(both), len(judged)) == (2, 3, 4, 6)
    failed = sum(bool(row["error"]) for row in rows)
    assert failed > 0

    lines = [json.loads(line) for line in json_lines(mixed)]
    told = {tuple(sorted((r["first"]["name"], r["second"]["name"]))): r for r in lines if r["both_orders"]}
    assert Counter(key for row in told.values() for key in row["disagreements"]) == differ

    assert vrt_lite(["show", "foxes", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    [ladder] = shown["ladders"]
    keys = [key for key in KEYS if key != "TA"]
    assert ladder["orders"] == {
        "pairs": len(both),
        "judged": dict.fromkeys(keys, len(both)),
        "differ": {key: differ[key] for key in keys},
        "undecided": {key: undecided[key] for key in keys},
    }
    assert (shown["failures"], ladder["failures"], shown["judgements"]) == (failed, failed, len(rows))
    assert sum(standing["undecided"] for standing in ladder["standings"]) == 2 * undecided["OA"]

    assert vrt_lite(["show", "foxes"]) == 0
    text = re.sub(" +", " ", capfd.readouterr().out)
    counts = ", ".join(f"{key} in {differ[key]} of {len(both)}" for key in ("VQ", "MQ", "OA"))
    note = f"orders disagree, of the pairs judged in both: {counts}; {undecided['OA']} undecided overall"
    assert f"{note}\n" in text
    for standing in ladder["standings"]:
        rated, low, high = (f"{standing['ratings']['OA'][name]:+.2f}" for name in ("strength", "low", "high"))
        assert f" {standing['name']} {rated} {low} {high} " in text

    write_report(mixed, tmp_path / "r.html")
    page = Report(tmp_path / "r.html")
    [part] = page.record["groups"]
    assert part["ladder"] == {name: value for name, value in ladder.items() if name != "pairs"}
    assert note in part["words"]["notes"]
    assert sum("OA" in pair["disagreements"] for pair in part["matrix"]["pairs"]) == differ["OA"]
    assert sum("orders disagree" in row[-1] for row in page.index) == differ["OA"]
