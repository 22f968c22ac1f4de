"""The API of a real server: the judgements are those of the command line, kept in its store, one after the other."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from jsonschema import Draft202012Validator
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served

from vrt_lite import compare
from vrt_lite.cli.serve_command import serve
from vrt_lite.evaluation.metrics import wilson
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.web.job_queue import MOST_WAITING

_WORK = ("timings", "counters")


def verdict_of(told: dict[str, Any]) -> dict[str, Any]:
    """A judgement without what depends on the work that was done before, to six digits: nine are kept of each order."""
    told = json.loads(json.dumps(told), parse_float=lambda digits: round(float(digits), 6))
    plain = {name: value for name, value in told.items() if name not in _WORK}
    for order in plain["orders"]:
        for this in order["rounds"]:
            this.pop("frames_encoded")
            this.pop("tokens_prefilled")
    plain["settings"]["engine"].pop("memory_bytes")  # of one order after the other here, of both at once there
    return plain


@pytest.mark.parametrize("both_orders", [False, True])
def test_a_comparison_is_that_of_the_library_and_is_kept(served: Served, both_orders: bool) -> None:
    answer = served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT, both_orders=both_orders)
    assert answer.status_code == 200, answer.text
    settings = Settings(both_orders=True) if both_orders else None
    expected = compare(STAR, CIRCLE, prompt=PROMPT, settings=settings).to_json()
    assert verdict_of(answer.json()) == verdict_of(expected)
    job = served.client.get(f"/v1/jobs/{answer.headers['x-job']}").json()
    assert job["state"] == "done"
    with Store(served.home / "runs.sqlite") as store:
        found = [result for result in store.run(job["result"]["run"]).results() if result.prompt == PROMPT]
    assert [result.winners["OA"] for result in found] == ([1, 2] if both_orders else [1])


def test_the_events_come_as_they_happen_and_end_with_the_verdict(served: Served) -> None:
    body = {"a": STAR, "b": CIRCLE, "prompt": "A blue star moves down.", "both_orders": False}
    kinds: list[str] = []
    told: list[Any] = []
    with served.client.stream("POST", "/v1/compare", json=body, headers={"accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
    assert kinds[-1] == "end"
    assert {"pair", "round", "wrote", "outcome", "stage"} <= set(kinds)
    judgement = Judgement.from_json(told[-1]["result"]["judgement"])
    written = "".join(data["text"] for kind, data in zip(kinds, told, strict=True) if kind == "wrote")
    assert written == "".join(r.text for order in judgement.orders for r in order.rounds)
    parts = [part for kind, data in zip(kinds, told, strict=True) if kind == "wrote" for part in data["parts"]]
    assert {kind for kind, _ in parts} >= {"snapshot", "think", "final"}
    assert not [text for _, text in parts if re.search("</?(snapshot|think)", text)]
    shown = [data["frames"] for kind, data in zip(kinds, told, strict=True) if kind == "round"]
    seen = [[(f.video, f.source_frame) for f in r.frames] for r in judgement.orders[0].rounds]
    assert [[(f["video"], f["source"]) for f in frames] for frames in shown] == seen


def test_files_that_several_requests_have_are_removed_after_the_last(served: Served) -> None:
    files = {name: (f"{name}.mp4", (EXAMPLES / f"{name}.mp4").read_bytes()) for name in "ab"}

    def ask(prompt: str) -> httpx.Response:
        return served.client.post("/v1/compare", files=files, data={"prompt": prompt})

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, ("First.", "Second.", "Third.")))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert [clip["path"].rpartition("/")[2] for clip in answers[0].json()["inputs"]] == ["a.mp4", "b.mp4"]
    assert list((served.home / "uploads").iterdir()) == []
    kept = served.client.post("/v1/clips", content=files["a"][1]).json()["clip"]
    assert ask("First.").status_code == 200
    assert [path.name for path in (served.home / "uploads").iterdir()] == [kept.removeprefix("upload:")]


def test_an_upload_is_named_by_its_id(served: Served) -> None:
    made = served.client.post("/v1/clips?name=my%20star.mp4", content=Path(STAR).read_bytes())
    assert made.status_code == 201, made.text
    answer = served.post("/v1/compare", a=made.json()["clip"], b=CIRCLE, prompt=PROMPT)
    assert answer.json()["inputs"][0]["path"].endswith("my star.mp4")
    played = served.client.get(made.json()["address"], headers={"range": "bytes=0-9"})
    assert (played.status_code, played.content) == (206, Path(STAR).read_bytes()[:10])
    uploaded = served.home / "uploads" / made.json()["clip"].removeprefix("upload:")
    assert [path.name for path in uploaded.iterdir()] == ["my star.mp4"]


def test_a_cancelled_comparison_leaves_the_engine_as_it_was(served: Served) -> None:
    body = {"a": CIRCLE, "b": STAR, "prompt": "A yellow circle.", "both_orders": True}
    with served.client.stream("POST", "/v1/compare", json=body, headers={"accept": "text/event-stream"}) as answer:
        for line in answer.iter_lines():
            if line == "event: wrote":
                break  # the client goes away in the middle of a reply
    [job] = [job for job in served.client.get("/v1/jobs").json()["jobs"][:1] if job["kind"] == "compare"]
    assert served.until(job["id"], "done", "failed", "cancelled")["state"] == "cancelled"
    again = served.post("/v1/compare", **body).json()
    expected = compare(CIRCLE, STAR, prompt="A yellow circle.", settings=Settings(both_orders=True))
    assert verdict_of(again) == verdict_of(expected.to_json())


def test_a_client_that_goes_away_is_not_worked_for(served: Served) -> None:
    busy = [served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=f"Busy {n}.", wait=False).json() for n in range(6)]
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/v1/compare", json={"a": STAR, "b": CIRCLE, "prompt": "Gone."}, timeout=0.2)
    gone = served.client.get("/v1/jobs").json()["jobs"][0]["id"]
    assert served.until(gone, "cancelled", "done", "failed")["state"] == "cancelled"
    for job in busy:
        served.client.delete(f"/v1/jobs/{job['id']}")
        served.until(job["id"], "cancelled", "done")


def test_a_ranking_gives_way_to_a_comparison_and_goes_on(served: Served) -> None:
    clips = [STAR, CIRCLE, str(EXAMPLES / "a.mp4")]
    ranking = served.post("/v1/rank", clips=clips, prompt="Gives way.", both_orders=False).json()["id"]
    assert served.post("/v1/compare", a=STAR, b=CIRCLE, prompt="First of all.").status_code == 200
    assert served.client.get(f"/v1/jobs/{ranking}").json()["state"] != "done"
    ladder = served.until(ranking, "done", "failed")["result"]["ladders"][0]
    assert (ladder["judgements"], len(ladder["standings"])) == (3, 3)


def test_errors_are_one_line_with_a_kind(served: Served, tmp_path: Path) -> None:
    cases = [
        ({"a": STAR, "b": str(EXAMPLES / "none.mp4")}, 404, "missing_clip"),
        ({"a": STAR, "b": CIRCLE, "model": "nothing"}, 422, "unusable_model"),
        ({"a": STAR, "b": CIRCLE, "model": str(tmp_path)}, 422, "unusable_model"),
        ({"a": STAR, "b": CIRCLE, "prompt": "x" * 200_000}, 400, "usage"),
        ({"a": STAR, "b": CIRCLE, "options": {"rounds": 0}}, 400, "usage"),
        ({"a": STAR, "b": CIRCLE, "options": {"preset": "none"}}, 400, "usage"),
        ({"a": STAR}, 400, "usage"),
    ]
    for body, status, kind in cases:
        answer = served.post("/v1/compare", **body)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind), answer.text
        assert "\n" not in answer.json()["error"]["message"]


def test_rewards_are_a_scalar_a_clip(served: Served) -> None:
    clips = [CIRCLE, STAR, CIRCLE]
    answer = served.post("/v1/rewards", prompt=PROMPT, clips=clips, both_orders=False)
    assert answer.status_code == 200, answer.text
    low, high, same = (reward["reward"] for reward in answer.json()["rewards"])
    assert low < 0 < high
    assert same == low
    again = served.post("/v1/rewards", prompt=PROMPT, clips=clips, both_orders=False).json()
    assert again["rewards"] == answer.json()["rewards"]
    assert again["found"] == again["judgements"] == 1


def test_the_description_names_every_route_and_its_schemas_are_valid(served: Served) -> None:
    from vrt_lite.web.routes import ENDPOINTS

    described = served.client.get("/openapi.json").json()
    told = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert told == {(of.path, of.method.lower()) for of in ENDPOINTS if of.path.startswith("/v1/")}
    assert len(told) == 21
    for methods in described["paths"].values():
        assert all(about["summary"].endswith(".") for about in methods.values())
    for name in described["components"]["schemas"]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
        Draft202012Validator.check_schema(schema)
    judgement = served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT).json()
    schema = {"$ref": "#/components/schemas/Judgement", "components": described["components"]}
    assert list(Draft202012Validator(schema).iter_errors(judgement)) == []


def test_models_and_runs_are_listed(served: Served) -> None:
    models = {model["name"]: model for model in served.client.get("/v1/models").json()["models"]}
    assert models["vrt-tiny-2"]["state"] == "bundled"
    assert models["vrt-tiny-2"]["fits"]
    served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT)
    [run] = served.client.get("/v1/runs", params={"search": "comparisons"}).json()["runs"]
    table = served.client.get("/v1/run/export", params={"run": run["name"], "format": "csv"})
    assert table.text.splitlines()[0].startswith("number,first,second")
    assert served.client.get("/v1/runs", params={"search": "no such run"}).json()["runs"] == []
    assert served.client.get("/v1/run", params={"run": "none"}).status_code == 400


def test_votes_are_the_table_that_eval_reads_and_are_compared_with_the_judge(served: Served, tmp_path: Path) -> None:
    served.post("/v1/rank", clips=[STAR, CIRCLE], prompt="Votes.", both_orders=False, name="votes", wait=True)
    run = {"run": "votes"}
    pair = served.client.get("/v1/votes/next", params=run).json()
    assert (pair["pairs"], pair["votes"]) == (1, 0)
    shown = [served.client.get(pair[side]).content for side in ("left", "right")]
    star = shown.index(Path(STAR).read_bytes()) + 1
    assert served.post("/v1/votes", ticket=pair["ticket"], choice=3).status_code == 400
    assert served.post("/v1/votes", ticket=pair["ticket"], choice=star).status_code == 201
    assert served.post("/v1/votes", ticket=pair["ticket"], choice=star).status_code == 409
    assert served.client.get("/v1/votes/next", params=run).json()["ticket"] is None
    table = tmp_path / "votes.csv"
    table.write_text(served.client.get("/v1/votes", params=run).text, encoding="utf-8")
    [labelled] = read_set(locate_set(table)).pairs
    assert labelled.labels["OA"] == (1 if str(labelled.a).endswith("star.mp4") else 2)
    [judge] = served.client.get("/v1/votes/agreement", params=run).json()["judges"]
    assert (judge["judge"], judge["of"]) == ("vrt-tiny-2", 1)
    low, high = wilson(judge["agrees"], 1)
    assert (judge["low"], judge["high"]) == (low, high)


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not here")
def test_the_request_in_the_help_works_as_printed(served: Served, tmp_path: Path) -> None:
    text = " ".join((serve.help or "").split())
    command = text[text.index("curl ") :].partition('fox."')[0] + 'fox."'
    for name, path in (("a.mp4", STAR), ("b.mp4", CIRCLE)):
        shutil.copyfile(path, tmp_path / name)
    words = shlex.split(command.replace("127.0.0.1:8765", urlsplit(served.url).netloc))
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Judgement.from_json(json.loads(done.stdout)).prompt == "A fox."


def test_what_is_beyond_the_queue_is_told_when_to_try_again(served: Served) -> None:
    def ask(number: int) -> httpx.Response:
        return served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=f"Number {number}.", wait=False)

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(200)))
    taken = [answer for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(taken) + len(refused) == 200
    assert len(taken) >= MOST_WAITING
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    for answer in taken:
        served.client.delete(f"/v1/jobs/{answer.json()['id']}")
    states = {served.until(answer.json()["id"], "done", "cancelled")["state"] for answer in taken}
    assert "cancelled" in states
    assert served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT).status_code == 200
    assert list((served.home / "jobs").iterdir()) == []
