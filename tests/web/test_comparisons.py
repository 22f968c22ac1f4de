"""Served comparisons: a run of their own, and several of them at once in one engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served, end, say, start

from vrt_lite import compare
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.show import list_verdict
from vrt_lite.show.pair_words import write_headline

A, B = str(EXAMPLES / "a.mp4"), str(EXAMPLES / "b.mp4")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that judges four pairs at once."""
    served = start(tmp_path_factory.mktemp("four"), "--allow", EXAMPLES, "--jobs", "4")
    yield served
    end(served)


def test_the_comparisons_of_a_day_are_a_list(served: Served) -> None:
    asked = [(STAR, CIRCLE, PROMPT), (CIRCLE, A, ""), (STAR, CIRCLE, "=1+1")]
    for a, b, prompt in asked:
        answer = served.post("/v1/compare", a=a, b=b, prompt=prompt, both_orders=prompt == PROMPT)
        assert answer.status_code == 200, answer.text
    name = served.client.get(f"/v1/jobs/{answer.headers['x-job']}").json()["result"]["run"]
    told = json.loads(say(served, "show", name, "--json"))
    assert told["kind"] == "compare"
    named = [(pair["first"], pair["second"], pair["prompt"]) for pair in told["comparisons"]]
    assert named == [
        ("star.mp4", "circle.mp4", PROMPT),
        ("circle.mp4", "a.mp4", ""),
        ("star.mp4", "circle.mp4", "=1+1"),
    ]
    assert [pair["orders"] for pair in told["comparisons"]] == [2, 1, 1]
    assert told["comparisons"][0]["overall"]["winner"] == 1
    lines = say(served, "show", name).splitlines()
    assert lines[1].split()[:5] == ["star.mp4", "circle.mp4", "star.mp4", "is", "better"]
    assert lines[-2:] == ["judge: vrt-tiny-2", f"run: {name}"]
    assert len(served.client.get("/v1/run/export", params={"run": name}).text.splitlines()) == 5
    view = served.client.get("/view/run", params={"run": name}).json()
    assert view["overview"]["title"] == "3 comparisons"
    assert [row[:3] for row in view["index"]] == [list(of) for of in named]
    assert served.client.get("/v1/run", params={"run": name}).json()["comparisons"] == told["comparisons"]
    assert [run["name"] for run in served.client.get("/v1/runs", params={"search": "=1+1"}).json()["runs"]] == [name]


@pytest.mark.parametrize("prompt", ["A fox runs through snow.", "A white square moves right."])
def test_a_pair_is_told_the_same_wherever_it_was_judged(served: Served, prompt: str) -> None:
    """`compare`, `serve` where `rank` judged the pair before, and the record of that: the same words and measures."""
    expected = compare(A, B, prompt=prompt, settings=Settings(both_orders=True))
    assert expected.measures
    assert expected.scope
    say(served, "rank", A, B, "--prompt", prompt, "--name", prompt)
    answer = served.post("/v1/compare", a=A, b=B, prompt=prompt, both_orders=True)
    job = served.client.get(f"/v1/jobs/{answer.headers['x-job']}").json()["result"]
    found = Judgement.from_json(answer.json())
    assert found.measures == expected.measures
    assert set(found.warnings) == set(expected.warnings)
    assert (found.scope, found.disagreements) == (expected.scope, expected.disagreements)
    assert [clip.flags for clip in found.inputs] == [clip.flags for clip in expected.inputs]
    assert untimed(job["lines"]) == untimed(list_verdict(expected))
    with Store(served.home / "runs.sqlite") as store:
        runs = [store.run(prompt), store.run(job["run"])]
        kept = [(run, pair) for run in runs for pair in run.pairs() if pair.prompt == prompt]
        keys = [sorted(result.key for result in pair.results) for _, pair in kept]
        assert keys == [keys[0]] * 2  # none was judged anew
        records = [run.read_pair(pair) for run, pair in kept]
    for record in records:
        assert record
        assert untimed(list_verdict(record)) == untimed(job["lines"])
    shown = served.client.get(f"/view/jobs/{answer.headers['x-job']}").json()["pair"]
    assert shown["words"]["headline"].partition(", but the orders disagree")[0] == job["lines"][0].removesuffix(".")
    told = served.client.get("/v1/run", params={"run": job["run"]}).json()["comparisons"]
    [words] = [pair["words"] for pair in told if pair["prompt"] == prompt]
    assert words == write_headline(expected.verdict, ("a.mp4", "b.mp4"))


def untimed(lines: list[str]) -> list[str]:
    """The lines without the one that says how long it took."""
    return [line for line in lines if not line.startswith("seconds: ")]


@pytest.mark.nightly
def test_judges_are_not_mixed_in_a_run(served: Served) -> None:
    runs = set[str]()
    for model in ("vrt-tiny-2", "vrt-tiny-0"):
        answer = served.post("/v1/compare", a=A, b=B, prompt="A red square moving right.", model=model)
        runs.add(served.client.get(f"/v1/jobs/{answer.headers['x-job']}").json()["result"]["run"])
    assert len(runs) == 2


def test_several_at_once_are_judged_as_the_library_judges_them(four: Served) -> None:
    prompts = [f"A blue star moves up {n} times." for n in range(2)]

    def ask(prompt: str) -> Any:
        return four.post("/v1/compare", a=STAR, b=CIRCLE, prompt=prompt, both_orders=True).json()

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(ask, prompts * 2))
    settings = Settings(both_orders=True)
    for answer, prompt in zip(told[:1], prompts, strict=False):
        expected = compare(STAR, CIRCLE, prompt=prompt, settings=settings)
        judgement = Judgement.from_json(answer)
        for order, other in zip(judgement.orders, expected.orders, strict=True):
            assert [this.text for this in order.rounds] == [this.text for this in other.rounds]
        for key, preference in expected.verdict.preferences.items():
            found = judgement.verdict.preferences[key]
            assert found.winner == preference.winner
            assert found.odds == pytest.approx(preference.odds, abs=1e-3)  # others' tokens were in the same batches
    # The second of two that asked the same at the same time found what the first had judged: also its times.
    assert told[:2] == told[2:]
    with Store(four.home / "runs.sqlite") as store:
        [run] = store.runs()
    assert run.judgements == 4


@pytest.mark.nightly
def test_a_ranking_uses_all_and_gives_way_to_another_judge(four: Served) -> None:
    clips = [STAR, CIRCLE, A]
    ranking = four.post("/v1/rank", clips=clips, prompt="All.").json()["id"]
    four.until(ranking, "running", "done")
    other = four.post("/v1/compare", a=A, b=B, model="vrt-tiny-0", prompt="A red square moving right.")
    assert other.json()["model"]["name"] == "vrt-tiny-0", other.text
    ladder = four.until(ranking, "done", "failed")["result"]["ladders"][0]
    assert ladder["judgements"] == 6


@pytest.mark.nightly
def test_each_of_several_can_be_cancelled(four: Served) -> None:
    jobs = [
        four.post("/v1/compare", a=STAR, b=CIRCLE, prompt=f"Cancel {n}.", wait=False).json()["id"] for n in range(8)
    ]
    for job in jobs[::2]:
        four.client.delete(f"/v1/jobs/{job}")
    states = [four.until(job, "done", "cancelled", "failed")["state"] for job in jobs]
    assert set(states[1::2]) == {"done"}
    assert states[-2] == "cancelled"


@pytest.mark.nightly
def test_a_vote_survives_a_killed_server(servers: Callable[..., Served]) -> None:
    served = servers("--allow", EXAMPLES)
    served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT)
    [run] = served.client.get("/v1/runs").json()["runs"]
    pair = served.client.get("/v1/votes/next", params={"run": run["name"]}).json()
    assert served.post("/v1/votes", ticket=pair["ticket"], choice=1).status_code == 201
    served.process.kill()
    served.process.wait()
    again = servers("--allow", EXAMPLES)
    assert again.client.get("/v1/votes/next", params={"run": run["name"]}).json()["votes"] == 1
