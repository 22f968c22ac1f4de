"""Rankings by a judge whose preferences are known: what is asked, how often, and what comes of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from brightness import Brightness, judge_of, names, unwatched, write_grey, write_greys
from clips import cut
from reports import Report

from vrt_lite.errors import UsageError, VideoError
from vrt_lite.ranking.entries import Group
from vrt_lite.ranking.ladder import rate_group
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.rank_run import Effort, read_groups, read_rank_about
from vrt_lite.ranking.winners import copy_winners, file_name
from vrt_lite.records.ladders import Ranking
from vrt_lite.runs.store import Store
from vrt_lite.show.leaderboard import show_ladders
from vrt_lite.viewer import write_report

GREYS = (90, 200, 40, 150)
BEST = ("take 2.mp4", "take 4.mp4", "take 1.mp4", "take 3.mp4")


def ranked(
    store: Store, backend: Brightness, *groups: Group, effort: Effort | None = None, name: str | None = None
) -> Ranking:
    with judge_of(backend) as judge:
        return rank_clips(groups, store=store, judge=judge, watcher=unwatched(), effort=effort, name=name)


def group(clips: list[Path], *, name: str = "", prompt: str = "Light.") -> Group:
    return Group(name, prompt, tuple(clips))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite")


def test_every_pair_is_judged_in_both_orders_once(store: Store, tmp_path: Path) -> None:
    backend = Brightness()
    clips = group(write_greys(tmp_path / "in", GREYS))
    [ladder] = ranked(store, backend, clips).ladders
    assert names(ladder) == BEST
    assert [standing.rank for standing in ladder.standings] == [1, 2, 3, 4]
    assert [(s.won, s.tied, s.lost) for s in ladder.standings] == [(3, 0, 0), (2, 0, 1), (1, 0, 2), (0, 0, 3)]
    assert (ladder.judgements, ladder.failures, ladder.cycles, ladder.unranked) == (12, 0, (), ())
    assert len(backend.asked) == len(set(backend.asked)) == 12
    assert ladder.standings[0].ratings["VQ"].strength > 1
    assert {round(s.ratings["MQ"].strength, 6) for s in ladder.standings} == {0}

    again = Brightness()
    found = ranked(store, again, clips)
    assert (again.asked, found.found, names(found.ladders[0])) == ([], 12, BEST)


def test_what_a_run_says_of_itself_is_its_ladder(store: Store, tmp_path: Path) -> None:
    ranking = ranked(store, Brightness(), group(write_greys(tmp_path, GREYS)))
    run = store.run(ranking.run)
    [stored] = map(rate_group, read_groups(run))
    assert stored == ranking.ladders[0]
    [kept] = run.about["groups"]
    assert kept["prompt"] == "Light."
    assert [clip["name"] for clip in kept["clips"]] == [f"take {n}.mp4" for n in (1, 2, 3, 4)]
    told = ranking.to_json()
    assert json.loads(json.dumps(told)) == told
    keys = {key for pair in told["ladders"][0]["pairs"] for key in pair["judgements"]}
    assert keys == {result.key for result in run.results()}


def test_the_same_run_whatever_the_order_and_place(store: Store, tmp_path: Path) -> None:
    clips = write_greys(tmp_path / "a", GREYS)
    moved = [clip.rename(tmp_path / f"{number}.mp4") for number, clip in enumerate(clips)]
    one = ranked(store, Brightness(), group(moved))
    backend = Brightness()
    two = ranked(store, backend, group(moved[::-1]))
    assert (one.run, backend.asked) == (two.run, [])
    other = Brightness()
    assert ranked(store, other, group(moved, prompt="Dark.")).run != one.run
    assert len(other.asked) == 12


def test_one_order_is_half_the_work_and_both_go_on_from_it(store: Store, tmp_path: Path) -> None:
    clips = group(write_greys(tmp_path, GREYS))
    backend = Brightness()
    [ladder] = ranked(store, backend, clips, effort=Effort(both_orders=False)).ladders
    assert (names(ladder), ladder.judgements) == (BEST, 6)
    assert len({one for one, _ in backend.asked}) > 1, "more than one clip is shown first"
    rest = Brightness()
    [ladder] = ranked(store, rest, clips).ladders
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
    told = next(pair for pair in ladder.to_json()["pairs"] if pair["disagreements"])
    assert {key: (of["winner"], of["leans"]) for key, of in told["preferences"].items()} == {
        "VQ": (0, 0),
        "MQ": (0, None),
        "OA": (0, 0),
    }
    assert all("TA" not in standing["ratings"] for standing in ladder.to_json()["standings"])
    by_name = {ladder.clips[s.clip].name: s for s in ladder.standings}
    one, two = by_name["take 1.mp4"], by_name["take 2.mp4"]
    assert (one.won, one.tied, one.lost, one.undecided) == (0, 0, 1, 1)
    assert one.ratings["OA"].strength == pytest.approx(two.ratings["OA"].strength)
    assert set(one.letters) & set(two.letters)
    assert ladder.first.strength > 0


def test_judgements_made_with_different_pixels_are_said_to_differ(store: Store, tmp_path: Path) -> None:
    clips = group(write_greys(tmp_path, GREYS))
    for pixels, effort in ((None, Effort(budget=2)), (784 * 16, Effort())):
        with judge_of(Brightness()) as judge:
            if pixels:  # as where the memory does not hold larger frames
                judge.mode.profile = judge.mode.profile.with_max_pixels(pixels)
            ranking = rank_clips([clips], store=store, judge=judge, watcher=unwatched(), effort=effort, name="mixed")
    [ladder] = ranking.ladders
    own = judge.mode.own.max_pixels
    made_with = [(of.max_pixels, of.judgements) for of in ladder.conditions.made_with]
    assert made_with == [(784 * 16, 10), (own, 2)]
    told = ladder.to_json()["conditions"]
    assert (told["comparable"], told["made_with"][1]["max_pixels"]) == (False, own)
    [stored] = map(rate_group, read_groups(store.run("mixed")))
    assert stored == ladder
    shown = io.StringIO()
    show_ladders(ranking.ladders, (), run="mixed", stream=shown)
    said = f"warning: 10 judgements at {784 * 16} pixels a frame, 2 at {own}: not comparable"
    assert said in shown.getvalue().splitlines()
    write_report(store.run("mixed"), tmp_path / "r.html")
    assert said.removeprefix("warning: ") in Report(tmp_path / "r.html").words


def test_the_budget_holds_over_all_groups_and_sessions(store: Store, tmp_path: Path) -> None:
    groups = [
        group(write_greys(tmp_path / "a", GREYS), name="a"),
        group(write_greys(tmp_path / "b", (50, 70, 90, 110)), name="b"),
    ]
    backend = Brightness()
    ranking = ranked(store, backend, *groups, effort=Effort(budget=11))
    assert len(backend.asked) == 11
    assert sorted(ladder.judgements for ladder in ranking.ladders) == [5, 6]
    again = Brightness()
    ranked(store, again, *groups, effort=Effort(budget=12))
    assert len(again.asked) == 1


def test_judgements_are_chosen_until_the_order_is_certain(store: Store, tmp_path: Path) -> None:
    clips = group(write_greys(tmp_path, range(20, 230, 16)))
    assert len(clips.clips) > 12
    backend = Brightness()
    [ladder] = ranked(store, backend, clips, effort=Effort(confidence=0.6)).ladders
    assert names(ladder) == tuple(f"take {n}.mp4" for n in range(14, 0, -1))
    assert len(backend.asked) < 14 * 13 / 2
    assert len(set(backend.asked)) == len(backend.asked)
    again = Brightness()
    ranked(store, again, clips, effort=Effort(confidence=0.6))
    assert again.asked == []


def test_groups_are_ranked_by_themselves(store: Store, tmp_path: Path) -> None:
    clips = write_greys(tmp_path, GREYS)
    ranking = ranked(
        store, Brightness(), group(clips[:3], name="x", prompt="One."), group(clips[1:], name="y", prompt="Two.")
    )
    assert [names(ladder) for ladder in ranking.ladders] == [
        ("take 2.mp4", "take 1.mp4", "take 3.mp4"),
        ("take 2.mp4", "take 4.mp4", "take 3.mp4"),
    ]
    assert [ladder.prompt for ladder in ranking.ladders] == ["One.", "Two."]
    assert store.run(ranking.run).about["prompts"] == ["One.", "Two."]


def test_what_cannot_take_part_is_listed_with_its_reason(store: Store, tmp_path: Path) -> None:
    clips = write_greys(tmp_path / "in", GREYS)
    twin = tmp_path / "twin.mp4"
    twin.write_bytes(clips[0].read_bytes())
    words = tmp_path / "words.mp4"
    words.write_text("no video", encoding="utf-8")
    broken = cut(clips[1], 900)
    given = [*clips, twin, words, broken, tmp_path / "gone.mp4", tmp_path]
    ranking = ranked(store, Brightness(), group(given))
    assert names(ranking.ladders[0]) == BEST
    reasons = {out.path: (out.reason, out.broken) for out in ranking.left_out}
    assert set(reasons) == {twin, words, broken, tmp_path / "gone.mp4", tmp_path}
    assert reasons[twin] == (f"the same content as {str(clips[0])!r}", False)
    assert all(broken for path, (_, broken) in reasons.items() if path != twin)
    assert all(str(path) not in reason for path, (reason, _) in reasons.items() if path != twin)
    assert read_rank_about(store.run(ranking.run)).left_out == ranking.left_out


def test_two_clips_are_needed(store: Store, tmp_path: Path) -> None:
    [clip] = write_greys(tmp_path, [80])
    with pytest.raises(UsageError, match="Two different clips"):
        ranked(store, Brightness(), group([clip, clip]))
    with pytest.raises(VideoError, match=r"gone\.mp4"):
        ranked(store, Brightness(), group([clip, tmp_path / "gone.mp4"]))
    pair = group(write_greys(tmp_path / "more", (10, 90)), name="pair")
    ranking = ranked(store, Brightness(), group([clip], name="alone"), pair)
    assert [ladder.group for ladder in ranking.ladders] == ["pair"]
    assert [(out.path, out.broken) for out in ranking.left_out] == [(clip, False)]


def test_a_clip_without_any_verdict_is_not_ranked(store: Store, tmp_path: Path) -> None:
    clips = group(write_greys(tmp_path, GREYS))
    backend = Brightness(dark=60)
    [ladder] = ranked(store, backend, clips).ladders
    assert names(ladder) == BEST[:3]
    assert [(of.clip, of.reason) for of in ladder.unranked] == [(2, "No verdict: it is too dark.")]
    assert (ladder.judgements, ladder.failures) == (12, 6)
    again = Brightness()
    ranked(store, again, clips)
    assert again.asked == [], "a failure is an answer"


def test_clips_of_one_name_are_told_by_their_folders(store: Store, tmp_path: Path) -> None:
    clips = [*write_greys(tmp_path / "a", [90]), *write_greys(tmp_path / "b", [120])]
    [ladder] = ranked(store, Brightness(), group(clips)).ladders
    assert names(ladder) == ("b/take 1.mp4", "a/take 1.mp4")


def test_winners_are_copied_and_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    [ladder] = ranked(store, Brightness(), group(write_greys(tmp_path / "in", GREYS))).ladders
    chosen, out = [("", ladder.ranked[:2])], tmp_path / "out"
    copies = copy_winners(chosen, out)
    assert [path.name for path in copies] == ["01-take 2.mp4", "02-take 4.mp4"]
    assert copies[0].read_bytes() == (tmp_path / "in" / "take 2.mp4").read_bytes()
    stamp = copies[0].stat().st_mtime_ns
    assert copy_winners(chosen, out) == copies
    assert copies[0].stat().st_mtime_ns == stamp

    copies[0].unlink()
    copies[1].write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already and is another file"):
        copy_winners(chosen, out)
    assert [path.name for path in out.iterdir()] == ["02-take 4.mp4"]
    assert copies[1].read_bytes() == b"mine"


def test_winners_of_several_groups_have_a_folder_each(store: Store, tmp_path: Path) -> None:
    clips = write_greys(tmp_path / "in", GREYS)
    ranking = ranked(store, Brightness(), group(clips[:2], name="../x"), group(clips[2:], name="y."))
    chosen = [(ladder.group, ladder.ranked[:1]) for ladder in ranking.ladders]
    copies = copy_winners(chosen, tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in copies] == [
        "01-_x/01-take 2.mp4",
        "02-y/01-take 4.mp4",
    ]


def test_a_winner_that_changed_is_not_copied(store: Store, tmp_path: Path) -> None:
    [ladder] = ranked(store, Brightness(), group(write_greys(tmp_path / "in", GREYS))).ladders
    write_grey(tmp_path / "in" / "take 2.mp4", 3)
    with pytest.raises(UsageError, match="has changed since it was ranked"):
        copy_winners([("", ladder.ranked[:1])], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


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


def test_a_clip_that_no_judgement_has_shown_has_no_place(store: Store, tmp_path: Path) -> None:
    """With a budget of one, all but two."""
    groups = [group(write_greys(tmp_path / name, GREYS), name=name) for name in "ab"]
    one, two = ranked(store, Brightness(), *groups, effort=Effort(budget=1)).ladders
    assert [standing.rank for standing in one.standings] == [1, 2]
    shown = {standing.clip for standing in one.standings}
    left = [(clip, "not judged yet") for clip in range(len(GREYS)) if clip not in shown]
    assert [(of.clip, of.reason) for of in one.unranked] == left
    assert two.standings == ()
    assert len(two.unranked) == len(GREYS)
