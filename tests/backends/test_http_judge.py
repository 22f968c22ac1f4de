"""A judge on a server, from the front door: no file of a model, one profile, many threads, a run that resumes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import clips
import jsonschema
import pytest
from chat_server import answers, dies_after, says, serving, stalls
from judgements import FINAL, call

import vrt_lite
from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.errors import BackendError, ModelError, UsageError
from vrt_lite.models import profile_of
from vrt_lite.profile import default_profile
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Store
from vrt_lite.settings import MOST_JOBS, Remote, Settings

SCHEMA = json.loads((Path(vrt_lite.__file__).parent / "schema" / "judgement.schema.json").read_text())
KEY = "sk-very-secret-0123456789"
CLIPS = 5
JUDGED = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clips")
    for number in range(CLIPS):
        clips.write_clip(made / f"{number}.mp4", frames=12 + number, size=(84, 56), gop=4)
    return made


def small(url: str, **settings: Any) -> Remote:
    quick = {"silence_seconds": 0.5, "total_seconds": 10.0, "tries": 2, "pause_seconds": 0.01}
    return Remote(url, **{**quick, **settings})


def test_the_judgement_follows_the_schema_and_says_who_judged(folder: Path) -> None:
    script, new = (says(call(1, 96)), says(FINAL)), {"/version": {"version": "0.33.0"}}
    with serving(*script, extra=new) as server, Judge(backend=small(server.url)) as judge:
        data = judge.compare(folder / "0.mp4", folder / "1.mp4", prompt="A fox.").to_json()
    jsonschema.validate(data, SCHEMA)
    assert data["backend"] == {"url": server.url, "model": "judge", "kind": "vllm", "form": "lossless video file"}
    assert data["model"] == {"name": "judge", "text": None, "projector": None}
    assert data["profile"]["name"] == default_profile().name
    assert data["settings"]["engine"] is None
    assert [r["outcome"] for r in data["orders"][0]["rounds"]] == ["tool", "final"]
    assert not [w for w in data["warnings"] if "single images" in w]


def test_the_same_file_twice_asks_no_server(folder: Path) -> None:
    with Judge(backend=Remote("http://127.0.0.1:9/v1")) as judge:
        data = judge.compare(folder / "0.mp4", folder / "0.mp4").to_json()
    jsonschema.validate(data, SCHEMA)
    assert data["verdict"]["source"] == "identical"
    assert data["backend"] == {"url": "http://127.0.0.1:9/v1", "model": None, "kind": None, "form": None}


def test_a_profile_needs_no_weights(tmp_path: Path) -> None:
    assert profile_of(None) == default_profile()
    assert profile_of("vrt-tiny-0").name == "vrt-tiny-0"
    assert profile_of("vr-thinker-7b") == replace(default_profile(), name="vr-thinker-7b")
    (tmp_path / "profile.toml").write_text('name = "mine"\nrounds = 3\n')
    assert profile_of(tmp_path).rounds == profile_of(tmp_path / "profile.toml").rounds == 3
    with pytest.raises(ModelError, match="is not here"):
        profile_of("nobody-knows-it")


def test_what_only_this_machine_could_follow_is_refused(tmp_path: Path) -> None:
    remote = Remote("http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="--ctx, --gpu-layers"):
        Judge(backend=remote, settings=Settings(ctx=4096, gpu_layers=0))
    with pytest.raises(UsageError, match="--projector"):
        Judge(backend=remote, projector=tmp_path / "mmproj.gguf")


def test_a_stored_verdict_is_kept_under_server_and_model() -> None:
    def key(url: str, model: str | None, **settings: Any) -> str:
        with Judge(backend=small(url, served_model=model), settings=Settings(**settings)) as judge:
            return judge.key()

    here = "http://127.0.0.1:9/v1"
    keys = [key(here, "a"), key(here, "b"), key("http://127.0.0.1:8/v1", "a"), key(here, "a", seed=1)]
    assert len(set(keys)) == len(keys)
    assert key(here, "a") == keys[0], "no server is asked when the model is named"
    with serving(says(FINAL)) as server:
        assert key(server.url, None) == key(server.url, "judge")


def test_one_judge_serves_many_threads(folder: Path) -> None:
    jobs = 8
    gate = threading.Barrier(jobs, timeout=30)

    def act(request: Any) -> None:
        gate.wait()
        says(FINAL)(request)

    pairs = [(a, b) for a in range(CLIPS) for b in range(CLIPS) if a != b][: 2 * jobs]
    with (
        serving(act) as server,
        Judge(backend=small(server.url, silence_seconds=60.0, total_seconds=60.0)) as judge,
        ThreadPoolExecutor(jobs) as pool,
    ):
        found = list(pool.map(lambda p: judge.compare(folder / f"{p[0]}.mp4", folder / f"{p[1]}.mp4"), pairs))
    assert server.most_at_once == jobs
    for (a, b), judgement in zip(pairs, found, strict=True):
        assert [clip.name for clip in judgement.inputs] == [f"{a}.mp4", f"{b}.mp4"]
        assert judgement.winner == 2


def tasks(folder: Path) -> Iterator[Task]:
    for first in range(JUDGED):
        for second in range(JUDGED):
            if first != second:
                yield Task(folder / f"{first}.mp4", folder / f"{second}.mp4", "A fox.", (first, second))


@pytest.mark.parametrize(
    ("failure", "jobs"),
    [
        pytest.param(dies_after("<snapshot>Vid"), 1, id="dies"),
        pytest.param(dies_after("<snapshot>Vid"), 3, id="dies, of several"),
        pytest.param(stalls, 1, id="stalls"),
        pytest.param(answers(404), 1, id="404"),
    ],
)
def test_what_was_judged_before_a_server_failed_is_kept_and_not_judged_again(
    folder: Path, tmp_path: Path, failure: Any, jobs: int
) -> None:
    good = 5
    judged: list[tuple[Any, bool]] = []

    def done(task: Task, result: Result, new: bool) -> None:
        assert result.winners["OA"] == 2
        judged.append((task.label, new))

    # Only a server that stalls is not waited for: a good reply may take long on a busy machine.
    remote = {"served_model": "judge", "silence_seconds": 0.5 if failure is stalls else 10.0}

    def work(url: str) -> None:
        with Store(tmp_path / "runs.sqlite") as store, Judge(backend=small(url, **remote)) as judge:
            run = store.begin("set", kind="eval", about={})
            judge_all(tasks(folder), run, store=store, judge=judge, jobs=jobs, done=done)

    script = [says(FINAL)] * good + [failure]
    with serving(*script) as server:
        with pytest.raises(BackendError):
            work(server.url)
        # Of several at work the one that fails ends the others' telling, not their keeping.
        assert len(judged) == good if jobs == 1 else len(judged) <= good
        server.script = [says(FINAL)]  # It has recovered, at the same address.
        before = len(server.bodies)
        judged_before, judged[:] = list(judged), []
        work(server.url)
    total = JUDGED * (JUDGED - 1)
    assert len(server.bodies) - before == total - good
    assert {label for label, new in judged if not new} >= {label for label, _ in judged_before}
    assert len([label for label, new in judged if not new]) == good
    assert len({label for label, _ in judged}) == total


@pytest.mark.nightly
def test_as_many_jobs_as_are_allowed_are_all_under_way_at_once(folder: Path, tmp_path: Path) -> None:
    gate = threading.Barrier(MOST_JOBS, timeout=200)

    def act(request: Any) -> None:
        gate.wait()  # No request is answered before all are here.
        says(FINAL)(request)

    pairs = iter([Task(folder / "0.mp4", folder / "1.mp4", f"A fox, take {n}.", n) for n in range(MOST_JOBS)])
    judged: list[int] = []
    with (
        serving(act) as server,
        Store(tmp_path / "runs.sqlite") as store,
        Judge(backend=small(server.url, served_model="judge", silence_seconds=300, total_seconds=300)) as judge,
    ):
        run = store.begin("set", kind="eval", about={})
        judge_all(pairs, run, store=store, judge=judge, jobs=MOST_JOBS, done=lambda task, *_: judged.append(task.label))
    assert server.most_at_once == MOST_JOBS
    assert sorted(judged) == list(range(MOST_JOBS))


def test_the_key_is_in_nothing_that_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    trace, sheet = tmp_path / "trace.jsonl", tmp_path / "sheet.png"
    clips_ = [str(folder / f"{n}.mp4") for n in (0, 1)]
    echo = FINAL.replace("Enough.", f"Your key is {KEY}.").replace("Sharp", KEY)
    with serving(says(echo), key=KEY) as server:
        for more in (["--json"], ["-vv"], ["-v", "--trace", str(trace), "--sheet", str(sheet)]):
            assert run(["compare", *clips_, "--backend", server.url, *more]) == 0
        server.script = [answers(400, {"error": {"message": f"bad {KEY}"}})]
        assert run(["compare", *clips_, "--backend", server.url, "-vv", "--again"]) == BackendError.status
        assert server.keys.count(f"Bearer {KEY}") == len(server.keys)
    shown = capsys.readouterr()
    assert "Your key is ***" in trace.read_text(encoding="utf-8")
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 2
    assert KEY not in shown.out + shown.err
    assert not any(KEY.encode() in data for data in written)


@pytest.mark.parametrize(
    "command", ["compare", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("rank", "eval"))]
)
def test_each_command_says_what_it_waits_for_and_gives_up(
    command: str, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(says(FINAL)) as server:
        gone = server.url
    pair = [str(folder / f"{n}.mp4") for n in (0, 1)]
    table = tmp_path / "pairs.csv"
    table.write_text("a,b,prompt,overall\n" + ",".join((*pair, "A fox.", "A")))
    asked = [str(table)] if command == "eval" else pair
    assert run([command, *asked, "--backend", gone]) == BackendError.status
    lines = capfd.readouterr().err.splitlines()
    assert f"waiting for the server at {gone} (cannot be reached: " in "\n".join(lines[:-1])
    assert lines[-1].startswith(f"vrt-lite: The back end {gone} cannot be reached: ")


def test_the_command_line_says_what_a_server_needs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clips_ = [str(folder / f"{n}.mp4") for n in (0, 1)]
    for arguments, status, expected in (
        (["--served-model", "x"], 2, "--backend URL"),
        (["--backend", f"http://u:{KEY}@127.0.0.1/v1"], 2, "VRT_LITE_API_KEY"),
        (["--backend", "localhost"], 2, "http://127.0.0.1:8000/v1"),
        (["--backend", "http://127.0.0.1:9/v1", "--threads", "2"], 2, "--threads"),
    ):
        assert run(["compare", *clips_, *arguments]) == status
        shown = capsys.readouterr().err
        assert expected in shown
        assert KEY not in shown


def test_more_jobs_than_the_limit_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["rank", str(folder)], ["eval", "pairs.csv"]):
        assert run([*command, "--backend", "http://127.0.0.1:9/v1", "--jobs", str(MOST_JOBS + 1)]) == UsageError.status
        *_, line = capsys.readouterr().err.splitlines()
        assert (
            line
            == f"vrt-lite: The option --jobs has '257' for jobs, which is not allowed; give 1 to {MOST_JOBS} or auto."
        )
