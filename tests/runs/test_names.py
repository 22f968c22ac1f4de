"""Names of runs: what a name stands for, what it may not be used for again, and that no empty run has one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from made import JUDGED, question

from vrt_lite.cli import run as vrt_lite
from vrt_lite.errors import NoVerdictError, StoreError, UsageError
from vrt_lite.runs.identity import Identity
from vrt_lite.runs.store import Run, Store

FOXES = Identity("key 1", {"--model": "vr-thinker", "--seed": "0"}, {"prompt": "A fox runs."})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def used(store: Store, *names: str) -> list[Run]:
    """Runs of these names with a judgement each, the last one used last."""
    runs: list[Run] = []
    for number, name in enumerate(names):
        runs.append(store.begin(name, kind="rank"))
        runs[-1].add(question(number), JUDGED)
        time.sleep(0.002)  # the clock of some systems has a tick of a millisecond
    return runs


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (replace(FOXES, facts={"prompt": "A dog runs."}), "prompt 'A fox runs.' (not 'A dog runs.')"),
        (replace(FOXES, facts={"prompt": ""}), "prompt 'A fox runs.' (not '')"),
        (Identity("key 2", {"--model": "vrt-tiny-2", "--seed": "0"}), "--model vr-thinker (not vrt-tiny-2)"),
        (Identity("key 2", {"--model": "vr-thinker", "--seed": "7"}), "--seed 0 (not 7)"),
        (replace(FOXES, judge="key 2"), "other files or another profile of the same judge"),
    ],
)
def test_a_name_is_refused_for_another_prompt_or_judge(store: Store, now: Identity, differs: str) -> None:
    store.begin("foxes", kind="rank", identity=FOXES).add(question(), JUDGED)
    with pytest.raises(UsageError) as caught:
        store.begin("foxes", kind="rank", identity=now)
    what_to_do = "Give another --name, or none; what both need is judged once."
    assert str(caught.value) == f"Run 'foxes' was made with {differs}. {what_to_do}"
    store.begin("foxes", kind="rank", identity=FOXES)


def test_a_moved_model_and_another_group_are_no_difference(store: Store) -> None:
    store.begin("foxes", kind="rank", identity=FOXES).add(question(), JUDGED)
    moved = Identity("key 1", {"--model": "./moved/vr-thinker"}, {"prompt of group 'b'": "A dog."})
    store.begin("foxes", kind="rank", identity=moved)
    with pytest.raises(UsageError, match=r"prompt 'A fox runs\.'"):
        store.begin("foxes", kind="rank", identity=replace(FOXES, facts={"prompt": "A dog."}))
    with pytest.raises(UsageError, match=r"prompt of group 'b' 'A dog\.'"):
        store.begin("foxes", kind="rank", identity=replace(FOXES, facts={"prompt of group 'b'": "A cat."}))


def test_a_run_without_a_judgement_is_in_no_list_and_its_name_is_free(store: Store) -> None:
    run = store.begin("foxes", kind="rank", about={"n": 1}, identity=FOXES)
    run.put("opened", "a", {"x": 1})
    run.note({"n": 2})
    assert (store.runs(), list(run.results())) == ([], [])
    with pytest.raises(UsageError, match="There is no run 'foxes'"):
        store.run("foxes")
    run.add(question(), JUDGED)
    kept = store.run("foxes")
    assert (kept.about, dict(kept.items("opened")), len(list(kept.results()))) == ({"n": 2}, {"a": {"x": 1}}, 1)
    store.begin("hounds", kind="rank", about={"n": 1}, identity=FOXES).put("opened", "a", {})
    other = store.begin("hounds", kind="eval", identity=Identity("key 2"))
    assert (other.kind, other.about, list(other.items("opened"))) == ("eval", {}, [])


def test_the_beginning_of_a_name_and_latest_stand_for_a_run(store: Store) -> None:
    used(store, "fox", "foxes", "rank-12ab34cd", "rank-12ffffff")
    named = {"fox": "fox", "foxe": "foxes", "rank-12a": "rank-12ab34cd", "latest": "rank-12ffffff"}
    assert {name: store.run(name).name for name in named} == named
    with pytest.raises(UsageError) as caught:
        store.run("rank-1")
    assert str(caught.value) == (
        "'rank-1' is the beginning of several runs: 'rank-12ffffff', 'rank-12ab34cd'. Give more of the name."
    )
    for nothing in ("", "x", "OX", "LATEST"):
        with pytest.raises(UsageError, match="There is no run"):
            store.run(nothing)
    store.begin("fox", kind="rank")  # used again, although it judges nothing new
    assert store.run("latest").name == "fox"
    with pytest.raises(UsageError, match="'latest' stands for the run that was used last"):
        store.begin("latest", kind="rank")


def test_judgements_that_do_not_belong_to_a_run_any_more_are_not_listed(store: Store) -> None:
    [run] = used(store, "foxes")
    run.add_failure(question(1), NoVerdictError("none"))
    run.list_only(lambda result: result.first == question().first)
    assert [result.key for result in run.results()] == [question().key]
    assert [(info.judgements, info.failures) for info in store.runs()] == [(1, 0)]
    assert run.result(question(1)), "what is asked again is listed again"
    assert len(list(run.results())) == 2
    run.list_only(lambda result: result.first == question(1).first)
    run.list_only(lambda *_: True)
    assert len(list(run.results())) == 2
    run.list_only(lambda *_: False)
    assert store.remove("foxes") == 2, "deleting a run deletes all that was judged for it"


def test_every_command_takes_the_beginning_of_a_name(
    own_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store() as opened:
        foxes, _ = used(opened, "foxes", "hounds")
        foxes.add_failure(question(7), NoVerdictError("none"))

    def said(*arguments: str, status: int = 0) -> str:
        assert vrt_lite(arguments) == status
        out, err = capfd.readouterr()
        assert len(err.splitlines()) <= 1
        return (out or err).rstrip("\n")

    assert said("show").endswith("run: foxes")
    assert said("show", "ho").endswith("run: hounds")
    assert said("export", "-o", "all.csv") == "2 judgement(s) of foxes are in all.csv"
    assert said("export", "h", "-o", "h.jsonl") == "1 judgement(s) of hounds are in h.jsonl"
    assert said("report", "hou").startswith("hounds.html is written")
    assert said("runs", "--retry", "latest") == "1 failure(s) of foxes are forgotten; give its command again"
    assert said("runs", "--rm", "f") == "foxes is deleted, with 1 judgement(s) that no other run has"
    assert "There is no run 'f'" in said("runs", "--rm", "f", status=2)


def test_items_that_are_put_while_others_judge_are_kept(store: Store) -> None:
    run = store.begin("foxes", kind="eval")
    with ThreadPoolExecutor(4) as pool:
        judging = [pool.submit(run.add, question(number), JUDGED) for number in range(20)]
        for number in range(300):
            run.put("pair", f"{number}", {})
        for work in judging:
            work.result()
    assert len(list(store.run("foxes").items("pair"))) == 300


@pytest.mark.parametrize("text", ["", "[]", '{"judge": 3}', '{"described": {"a": []}}', "{" * 9])
def test_a_damaged_identity_ends_in_one_line(store: Store, text: str) -> None:
    used(store, "foxes")
    with store._database.write() as connection:
        connection.execute("UPDATE runs SET identity = ?", (text,))
    with pytest.raises(StoreError, match="is damaged: a row"):
        store.begin("foxes", kind="rank")
