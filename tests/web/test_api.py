"""The API of a real server: its judgements are those of the library, kept in its store, one after the other."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import httpx
import pytest
from jsonschema import Draft202012Validator
from web.conftest import (
    CIRCLE,
    EXAMPLES,
    PROMPT,
    SMALL,
    STAR,
    A,
    B,
    Served,
    end,
    say,
    start,
    wait_until,
    write_animation,
    write_pictures,
)

from examples import api_client
from vrt_lite import compare
from vrt_lite.evaluation.metrics import wilson
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.records.judgement import Judgement
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings
from vrt_lite.show.pair_words import list_verdict, write_headline
from vrt_lite.web.job_queue import MOST_WAITING
from vrt_lite.web.routes import ENDPOINTS

EVENTS = {"accept": "text/event-stream"}


def verdict_of(told: dict[str, Any]) -> dict[str, Any]:
    """A judgement without what depends on the work that was done before, to six digits: nine are kept of each order."""
    plain = json.loads(json.dumps(told), parse_float=lambda digits: round(float(digits), 6))
    for this in (this for order in plain["orders"] for this in order["rounds"]):
        del this["frames_encoded"], this["tokens_prefilled"]
    # The memory is that of one order after the other here, of both at once there.
    del plain["timings"], plain["counters"], plain["settings"]["engine"]["memory_bytes"]
    plain["warnings"].sort()
    plain["warning_kinds"].sort()
    return plain


def untimed(lines: list[str]) -> list[str]:
    """The lines without the one that says how long it took."""
    return [line for line in lines if "seconds: " not in line]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that judges four pairs at once."""
    served = start(tmp_path_factory.mktemp("four"), "--allow", EXAMPLES, "--jobs", "4")
    yield served
    end(served)


def test_the_description_names_every_route_and_its_schemas_are_valid(served: Served) -> None:
    described = served.client.get("/openapi.json").json()
    told = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert told == {(of.path, of.method.lower()) for of in ENDPOINTS if of.path.startswith("/v1/")}
    for name in described["components"]["schemas"]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
        Draft202012Validator.check_schema(schema)
        if name == "Judgement":
            assert list(Draft202012Validator(schema).iter_errors(served.compare(PROMPT).json())) == []
    models = {model["name"]: model for model in served.client.get("/v1/models").json()["models"]}
    assert (models["vrt-tiny-2"]["state"], models["vrt-tiny-2"]["fits"]) == ("bundled", True)


@pytest.mark.parametrize("prompt", ["A fox runs through snow.", "A white square moves right."])
def test_a_pair_is_told_the_same_wherever_it_was_judged(served: Served, prompt: str) -> None:
    """By `compare`, by `serve` where `rank` judged the pair before, and in the records of both runs."""
    expected = compare(A, B, prompt=prompt, settings=Settings(both_orders=True, **SMALL))
    assert expected.measures
    assert expected.scope
    small = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    say(served, "rank", A, B, "--prompt", prompt, "--name", prompt, *small)
    answer = served.compare(prompt, A, B, both_orders=True, options=SMALL)
    assert verdict_of(answer.json()) == verdict_of(expected.to_json())
    job = served.find_job(answer)["result"]
    with Store(served.home / "runs.sqlite") as store:
        runs = [store.run(prompt), store.run(job["run"])]
        kept = [(run, pair) for run in runs for pair in run.pairs() if pair.prompt == prompt]
        keys = [sorted(result.key for result in pair.results) for _, pair in kept]
        records = [run.read_pair(pair) for run, pair in kept]
    assert keys == [keys[0]] * 2, "one was judged anew"
    for record in (expected, *records):
        assert record
        assert untimed(list_verdict(record)) == untimed(job["lines"])
    shown = served.client.get(f"/view/jobs/{answer.headers['x-job']}").json()["pair"]
    assert shown["words"]["headline"].partition(", but the orders disagree")[0] == job["lines"][0].removesuffix(".")
    told = json.loads(say(served, "show", job["run"], "--json"))["comparisons"]
    [words] = [pair["words"] for pair in told if pair["prompt"] == prompt]
    assert words == write_headline(expected.verdict, ("a.mp4", "b.mp4"))


def test_the_comparisons_of_a_day_are_a_list(served: Served) -> None:
    asked = [(STAR, CIRCLE, "A day."), (CIRCLE, A, ""), (STAR, CIRCLE, "=1+1")]
    judged = [served.compare(prompt, a, b, both_orders=prompt == "A day.") for a, b, prompt in asked]
    name = served.find_job(judged[0])["result"]["run"]
    told = json.loads(say(served, "show", name, "--json"))["comparisons"]
    names = [[Path(a).name, Path(b).name, prompt] for a, b, prompt in asked]
    assert [[pair["first"], pair["second"], pair["prompt"]] for pair in told[-3:]] == names  # others were before
    assert [pair["orders"] for pair in told[-3:]] == [2, 1, 1]
    assert told[-3]["overall"]["winner"] == judged[0].json()["verdict"]["overall"]["winner"]
    *lines, judge, run = say(served, "show", name).splitlines()
    assert [judge, run] == ["judge: vrt-tiny-2", f"run: {name}"]
    assert " ".join([*names[0][:2], told[-3]["words"]]) in "\n".join(" ".join(line.split()) for line in lines)
    exported = served.client.get("/v1/run/export", params={"run": name, "format": "csv"}).text
    table = list(csv.reader(io.StringIO(exported, newline="")))  # a prompt may have ends of lines
    assert table[0][:3] == ["number", "first", "second"]
    assert len(table) == 1 + sum(pair["orders"] for pair in told)
    view = served.client.get("/view/run", params={"run": name}).json()
    assert view["overview"]["title"] == f"{len(told)} comparisons"
    assert [row[:3] for row in view["index"][-3:]] == names
    for words, found in (("=1+1", [name]), ("no such run", [])):
        runs = served.client.get("/v1/runs", params={"search": words}).json()["runs"]
        assert [run["name"] for run in runs] == found
    assert served.client.get("/view/run", params={"run": "none"}).status_code == 400


def test_the_events_come_as_they_happen_and_end_with_the_verdict(served: Served) -> None:
    body = {"a": STAR, "b": CIRCLE, "prompt": "A blue star moves down.", "both_orders": False}
    kinds: list[str] = []
    told: list[Any] = []
    with served.client.stream("POST", "/v1/compare", json=body, headers=EVENTS) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
    assert kinds[-1] == "end"
    assert {"pair", "round", "wrote", "outcome", "stage"} <= set(kinds)
    judgement = Judgement.from_json(told[-1]["result"]["judgement"])
    wrote = [data for kind, data in zip(kinds, told, strict=True) if kind == "wrote"]
    assert "".join(data["text"] for data in wrote) == "".join(r.text for o in judgement.orders for r in o.rounds)
    parts = [part for data in wrote for part in data["parts"]]
    assert {kind for kind, _ in parts} >= {"snapshot", "think", "final"}
    assert not [text for _, text in parts if re.search("</?(snapshot|think)", text)]
    shown = [data["frames"] for kind, data in zip(kinds, told, strict=True) if kind == "round"]
    seen = [[(f.video, f.source_frame) for f in r.frames] for r in judgement.orders[0].rounds]
    assert [[(f["video"], f["source"]) for f in frames] for frames in shown] == seen


def test_files_that_several_requests_have_are_kept_once(served: Served) -> None:
    files = {name: (f"my {name}.mp4", (EXAMPLES / f"{name}.mp4").read_bytes()) for name in "ab"}
    before = served.uploads

    def ask(prompt: str) -> list[str]:
        told = served.client.post("/v1/compare", files=files, data={"prompt": prompt}).json()
        return [Path(clip["path"]).name for clip in told["inputs"]]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, ("First.", "Second.", "Third."))) == [["my a.mp4", "my b.mp4"]] * 3
    made = served.client.post("/v1/clips?name=another.mp4", content=files["a"][1])
    assert made.status_code == 201, made.text
    kept = {*served.uploads} - {*before}
    assert sorted(path.name for place in kept for path in place.iterdir()) == ["my a.mp4", "my b.mp4"]
    assert made.json()["clip"].removeprefix("upload:") in {place.name for place in kept}
    assert served.compare(PROMPT, made.json()["clip"]).json()["inputs"][0]["path"].endswith("my a.mp4")
    played = served.client.get(made.json()["address"], headers={"range": "bytes=0-9"})
    assert (played.status_code, played.content) == (206, files["a"][1][:10])


def test_a_cancelled_comparison_leaves_the_engine_as_it_was(served: Served) -> None:
    body = {"a": CIRCLE, "b": STAR, "prompt": "A yellow circle.", "both_orders": True, "options": SMALL}
    with served.client.stream("POST", "/v1/compare", json=body, headers=EVENTS) as answer:
        for line in answer.iter_lines():
            if line == "event: wrote":
                break  # the client goes away in the middle of a reply
    [job] = served.client.get("/v1/jobs").json()["jobs"][:1]
    assert (job["kind"], served.until(job["id"])["state"]) == ("compare", "cancelled")
    again = served.post("/v1/compare", **body).json()
    expected = compare(CIRCLE, STAR, prompt="A yellow circle.", settings=Settings(both_orders=True, **SMALL))
    assert verdict_of(again) == verdict_of(expected.to_json())


def test_a_client_that_goes_away_is_not_worked_for(served: Served) -> None:
    busy = [served.begin(f"Busy {n}.") for n in range(4)]
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/v1/compare", json={"a": STAR, "b": CIRCLE, "prompt": "Gone."}, timeout=0.2)

    def find_newest() -> str:
        return served.client.get("/v1/jobs").json()["jobs"][0]["id"]

    wait_until(lambda: find_newest() not in busy)  # a busy server reads the request a little later
    assert served.until(find_newest())["state"] == "cancelled"
    served.cancel(*busy)


def test_a_ranking_gives_way_to_a_comparison_and_goes_on(served: Served) -> None:
    clips = [STAR, CIRCLE, A]
    ranking = served.post("/v1/rank", clips=clips, prompt="Gives way.", both_orders=False).json()["id"]
    served.compare("First of all.")
    assert served.find_job(ranking)["state"] != "done"
    ladder = served.until(ranking)["result"]["ladders"][0]
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


def test_rewards_are_a_scalar_a_clip_and_the_example_client_prints_them(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["", *arguments, "--prompt", PROMPT, "--server", served.url])
        api_client.main()
        return untimed(capsys.readouterr().out.splitlines())

    clips = [CIRCLE, STAR, CIRCLE]
    told, again = (served.post("/v1/rewards", prompt=PROMPT, clips=clips, both_orders=False).json() for _ in range(2))
    low, high, same = (reward["reward"] for reward in told["rewards"])
    assert low < 0 < high
    assert same == low
    assert again["rewards"] == told["rewards"]
    assert again["found"] == again["judgements"] == 1
    low, high = (float(line.rpartition(": ")[2]) for line in run(CIRCLE, STAR, "--rewards"))
    assert low < 0 < high
    expected = untimed(list_verdict(compare(STAR, CIRCLE, prompt=PROMPT)))
    assert expected[0].startswith("Video 1 is ")
    assert run(STAR, CIRCLE)[-len(expected) :] == expected


@pytest.mark.parametrize("clips", [(STAR, "no-such.mp4"), (STAR, __file__)])
def test_the_example_client_ends_with_one_line(served: Served, clips: tuple[str, str]) -> None:
    asked = [sys.executable, api_client.__file__, *clips, "--server", served.url]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert Path(clips[1]).name in told.stderr


def test_votes_are_the_table_that_eval_reads_and_are_compared_with_the_judge(served: Served, tmp_path: Path) -> None:
    served.rank(STAR, CIRCLE, prompt="Votes.", name="votes")
    run, shown = {"run": "votes"}, [b""]
    while shown[0] != Path(CIRCLE).read_bytes():  # until the second clip of the pair is the left one
        pair = served.client.get("/v1/votes/next", params=run).json()
        shown = [served.client.get(pair[side]).content for side in ("left", "right")]
    assert (pair["pairs"], pair["votes"]) == (1, 0)
    star = shown.index(Path(STAR).read_bytes()) + 1
    for choice, status in ((3, 400), (star, 201), (star, 409)):
        assert served.post("/v1/votes", ticket=pair["ticket"], choice=choice).status_code == status
    assert served.client.get("/v1/votes/next", params=run).json()["ticket"] is None
    table = tmp_path / "votes.csv"
    table.write_text(served.client.get("/v1/votes", params=run).text, encoding="utf-8")
    [labelled] = read_set(locate_set(table)).pairs
    assert labelled.labels["OA"] == (1 if str(labelled.a).endswith("star.mp4") else 2)
    [judge] = served.client.get("/v1/votes/next", params=run).json()["judges"]
    assert (judge["judge"], judge["of"]) == ("vrt-tiny-2", 1)
    assert (judge["low"], judge["high"]) == wilson(judge["right"], 1)


def test_what_is_beyond_the_queue_is_told_when_to_try_again(served: Served) -> None:
    def ask(number: int) -> httpx.Response:
        return served.post("/v1/rank", clips=[STAR, CIRCLE], prompt="Queue.", name=f"queue {number}")

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(60)))
    taken = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(taken) + len(refused) == 60
    assert MOST_WAITING <= len(taken) < MOST_WAITING + 20
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert "cancelled" in served.cancel(*taken)
    served.compare(PROMPT)
    assert list((served.home / "jobs").iterdir()) == []


def test_several_at_once_are_judged_as_the_library_judges_them(four: Served) -> None:
    prompts = [f"A blue star moves up {n} times." for n in range(2)]

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda prompt: four.compare(prompt, both_orders=True, options=SMALL).json(), prompts * 2))
    expected = compare(STAR, CIRCLE, prompt=prompts[0], settings=Settings(both_orders=True, **SMALL))
    judgement = Judgement.from_json(told[0])
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
    jobs = [four.begin(f"Cancel {n}.", options=SMALL) for n in range(6)]
    assert four.cancel(*jobs[::2])[-1] == "cancelled"
    assert {four.until(job)["state"] for job in jobs[1::2]} == {"done"}


@pytest.mark.nightly
def test_a_ranking_uses_all_and_gives_way_to_another_judge_in_a_run_of_its_own(four: Served) -> None:
    ranking = four.post("/v1/rank", clips=[STAR, CIRCLE, A], prompt="All.").json()["id"]
    four.until(ranking, "running", "done")
    answers = [four.compare("A red square moving right.", A, B, model=model) for model in ("vrt-tiny-0", "vrt-tiny-2")]
    assert answers[0].json()["model"]["name"] == "vrt-tiny-0"
    assert len({four.find_job(answer)["result"]["run"] for answer in answers}) == 2
    assert four.until(ranking)["result"]["ladders"][0]["judgements"] == 6


@pytest.fixture(scope="module")
def formats(served: Served) -> Path:
    folder = served.make_folder("formats")
    write_animation(STAR, folder / "star.gif")
    write_animation(CIRCLE, folder / "circle.webp")
    write_pictures(STAR, folder / "frames")
    return folder


def test_other_formats_are_listed_and_played_as_videos(served: Served, formats: Path, tmp_path: Path) -> None:
    listed = served.client.get("/v1/folders", params={"path": str(formats)}).json()
    clips = listed["clips"]
    assert [clip["path"] for clip in clips] == [str(formats / name) for name in ("circle.webp", "star.gif")]
    assert listed["folders"] == [{"path": str(formats / "frames"), "name": "frames"}]
    [pictures] = served.client.get("/v1/folders", params={"path": str(formats / "frames")}).json()["clips"]
    assert (pictures["path"], pictures["name"]) == (str(formats / "frames" / "%04d.png"), "frames/%04d.png")
    for clip in (*clips, pictures):
        frame = served.client.get(f"{clip['address'].removesuffix('.mp4')}/frames/middle")
        assert (frame.status_code, frame.headers["content-type"]) == (200, "image/jpeg")
        played = served.client.get(clip["address"], headers={"range": "bytes=0-99"})
        assert (played.status_code, played.headers["content-type"]) == (206, "video/mp4")
        copy = tmp_path / "copy.mp4"
        copy.write_bytes(served.client.get(clip["address"]).content)
        with av.open(str(copy)) as file:
            assert len(list(file.decode(video=0))) > 30  # Pillow joins equal frames of an animation


def test_pictures_with_a_gap_are_listed_and_the_gap_is_told(served: Served) -> None:
    folder = served.make_folder("gap")
    write_pictures(STAR, folder / "frames")[3].unlink()
    [clip] = served.list_clips(folder / "frames")
    for answer in (served.post("/v1/compare", a=clip["path"], b=CIRCLE), served.client.get(clip["address"])):
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "broken_clip")
        assert "there is no number 3" in answer.json()["error"]["message"]


def test_pictures_are_judged_as_the_library_judges_them_also_when_they_are_sent(served: Served, formats: Path) -> None:
    pictures = [(path.name, path.read_bytes()) for path in sorted((formats / "frames").iterdir())]
    before = served.uploads
    files: list[Any] = [("clip", picture) for picture in pictures]
    made = served.client.post("/v1/clips", files=files, data={"fps": "8"})
    assert made.status_code == 201, made.text
    assert made.json()["name"] == "pictures/%04d.png@8"
    webp = formats / "circle.webp"
    files = [*(("a", picture) for picture in pictures), ("b", (webp.name, webp.read_bytes()))]
    answers = [
        served.client.post("/v1/compare", files=files, data={"prompt": PROMPT, "fps": "8"}),
        served.compare(PROMPT, str(formats / "frames@8"), str(webp)),
        served.compare(PROMPT, str(formats / "frames/%04d.png@8"), str(webp)),
        served.compare(PROMPT, made.json()["clip"], str(webp)),
    ]
    told = [verdict_of(answer.json()) for answer in answers]
    expected = verdict_of(compare(f"{formats / 'frames'}@8", webp, prompt=PROMPT).to_json())
    for judged in (*told, expected):
        for clip in judged["inputs"]:
            clip.pop("path")
    assert told == [expected] * 4
    assert len(served.uploads) == len(before) + 2


@pytest.mark.parametrize(
    ("names", "fps", "status"),
    [
        ("0.png 2.png", "", 422),
        ("0.png 0.png", "", 400),
        ("0.png 1.png", "0", 422),
        ("0.png 1.png", "..", 400),
        ("0.png 1.png", "1e9", 400),
        ("0.mp4 1.mp4", "", 422),
        ("0.png 1.png a.mp4", "", 422),
        ("a0.png a1.png b0.png b1.png", "", 422),
    ],
)
def test_files_that_are_no_pictures_of_one_clip_are_refused(served: Served, names: str, fps: str, status: int) -> None:
    before = served.uploads
    files = [("clip", (name, b"x")) for name in names.split()]
    answer = served.client.post("/v1/clips", files=files, data={"fps": fps})
    assert answer.status_code == status, answer.text
    assert str(served.home) not in answer.text
    assert served.uploads == before
