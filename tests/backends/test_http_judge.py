"""A judge on a server, from the front door: no file of a model, one profile, many threads, a run that resumes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import clips
import pytest
from chat_server import ChatRequest, answers, dies_after, says, serving, stalls
from judgements import FINAL, call, check_record

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.errors import BackendError, ModelError, UsageError
from vrt_lite.models import profile_of
from vrt_lite.profile import default_profile
from vrt_lite.records.pairs import Result
from vrt_lite.runs.judging import Task, judge_all
from vrt_lite.runs.store import Store
from vrt_lite.settings import MOST_JOBS, Remote, Settings

KEY = "sk-very-secret-0123456789"
HERE = "http://127.0.0.1:9/v1"
CLIPS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clips")
    for number in range(CLIPS):
        clips.write_clip(made / f"{number}.mp4", frames=12 + number, size=(84, 56), gop=4)
    return made


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[str, str]:
    return str(folder / "0.mp4"), str(folder / "1.mp4")


def small(url: str, **settings: Any) -> Remote:
    quick = {"silence_seconds": 0.5, "total_seconds": 10.0, "tries": 2, "pause_seconds": 0.01}
    return Remote(url, **{**quick, **settings})


def tasks(folder: Path) -> Iterator[Task]:
    for one, other in itertools.permutations(range(CLIPS), 2):
        yield Task(folder / f"{one}.mp4", folder / f"{other}.mp4", "A fox.", (one, other))


def test_the_judgement_follows_the_schema_and_says_who_judged(pair: tuple[str, str]) -> None:
    script, new = (says(call(1, 96)), says(FINAL)), {"/version": {"version": "0.33.0"}}
    with serving(*script, extra=new) as server, Judge(backend=small(server.url)) as judge:
        data = judge.compare(*pair, prompt="A fox.").to_json()
    check_record(data)
    assert data["backend"] == {"url": server.url, "model": "judge", "kind": "vllm", "form": "lossless video file"}
    assert data["model"] == {"name": "judge", "text": None, "projector": None}
    assert data["profile"]["name"] == default_profile().name
    assert data["settings"]["engine"] is None
    assert [r["outcome"] for r in data["orders"][0]["rounds"]] == ["tool", "final"]
    assert not [w for w in data["warnings"] if "single images" in w]
    with Judge(backend=Remote(HERE)) as judge:
        data = judge.compare(pair[0], pair[0]).to_json()
    check_record(data)
    assert data["verdict"]["source"] == "identical", "no server is asked"
    assert data["backend"] == {"url": HERE, "model": None, "kind": None, "form": None}


def test_a_profile_needs_no_weights(tmp_path: Path) -> None:
    assert profile_of(None) == default_profile()
    assert profile_of("vrt-tiny-0").name == "vrt-tiny-0"
    assert profile_of("vr-thinker-7b") == replace(default_profile(), name="vr-thinker-7b")
    (tmp_path / "profile.toml").write_text('name = "mine"\nrounds = 3\n')
    assert profile_of(tmp_path).rounds == profile_of(tmp_path / "profile.toml").rounds == 3
    with pytest.raises(ModelError, match="is not here"):
        profile_of("nobody-knows-it")


def test_a_stored_verdict_is_kept_under_server_and_model() -> None:
    def key(url: str, model: str | None, **settings: Any) -> str:
        with Judge(backend=small(url, served_model=model), settings=Settings(**settings)) as judge:
            return judge.key()

    keys = [key(HERE, "a"), key(HERE, "b"), key("http://127.0.0.1:8/v1", "a"), key(HERE, "a", seed=1)]
    assert len(set(keys)) == len(keys)
    assert key(HERE, "a") == keys[0], "no server is asked when the model is named"
    with serving() as server:
        assert key(server.url, None) == key(server.url, "judge")


@pytest.mark.parametrize(
    ("failure", "jobs"),
    [
        pytest.param(dies_after("<snapshot>Vid"), 3, id="dies, of several"),
        pytest.param(stalls, 1, id="stalls"),
        pytest.param(answers(404), 1, id="404"),
    ],
)
def test_what_was_judged_before_a_server_failed_is_kept_and_not_judged_again(
    folder: Path, tmp_path: Path, failure: Any, jobs: int
) -> None:
    total, good = len(list(tasks(folder))), 3
    judged: list[tuple[Any, bool]] = []

    def done(task: Task, result: Result, new: bool) -> None:
        assert result.preferences["OA"].winner == 2
        judged.append((task.label, new))

    # Only a server that stalls is not waited for: a good reply may take long on a busy machine.
    remote = {"served_model": "judge", "silence_seconds": 0.5 if failure is stalls else 10.0}

    def work(url: str) -> None:
        with Store(tmp_path / "runs.sqlite") as store, Judge(backend=small(url, **remote), measures=False) as judge:
            run = store.begin("set", kind="eval", about={})
            judge_all(tasks(folder), run, store=store, judge=judge, jobs=jobs, done=done)

    with serving(*[says(FINAL)] * good, failure) as server:
        with pytest.raises(BackendError):
            work(server.url)
        # Of several at work the one that fails ends the others' telling, not their keeping.
        assert len(judged) == good if jobs == 1 else len(judged) <= good
        server.script = [says(FINAL)]  # It has recovered, at the same address.
        before = len(server.bodies)
        judged_before, judged[:] = list(judged), []
        work(server.url)
    assert len(server.bodies) - before == total - good
    assert {label for label, new in judged if not new} >= {label for label, _ in judged_before}
    assert len([label for label, new in judged if not new]) == good
    assert len({label for label, _ in judged}) == total


@pytest.mark.parametrize("jobs", [6, pytest.param(MOST_JOBS, marks=pytest.mark.nightly)])
def test_as_many_jobs_as_are_allowed_are_all_under_way_at_once(jobs: int, folder: Path, tmp_path: Path) -> None:
    gate = threading.Barrier(jobs, timeout=200)

    def act(request: ChatRequest) -> None:
        gate.wait()  # No request is answered before all are here.
        says(FINAL)(request)

    def done(task: Task, result: Result, new: bool) -> None:
        assert result.preferences["OA"].winner == 2
        judged.append(task.label)

    asked = itertools.islice(itertools.cycle(tasks(folder)), jobs)
    numbered = (replace(task, prompt=f"A fox, take {n}.", label=n) for n, task in enumerate(asked))
    judged: list[int] = []
    patient = {"served_model": "judge", "silence_seconds": 300, "total_seconds": 300}
    with (
        serving(act) as server,
        Store(tmp_path / "runs.sqlite") as store,
        Judge(backend=small(server.url, **patient), measures=False) as judge,
    ):
        run = store.begin("set", kind="eval", about={})
        judge_all(numbered, run, store=store, judge=judge, jobs=jobs, done=done)
    assert server.most_at_once == jobs
    assert sorted(judged) == list(range(jobs))


def test_the_key_is_in_nothing_that_is_written(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    trace, sheet = tmp_path / "trace.jsonl", tmp_path / "sheet.png"
    echo = FINAL.replace("Enough.", f"Your key is {KEY}.").replace("Sharp", KEY)
    with serving(says(echo), key=KEY) as server:
        for more in (["--json"], ["-vv"], ["-v", "--trace", str(trace), "--sheet", str(sheet)]):
            assert run(["compare", *pair, "--backend", server.url, *more]) == 0
        server.script = [answers(400, {"error": {"message": f"bad {KEY}"}})]
        assert run(["compare", *pair, "--backend", server.url, "-vv", "--again"]) == BackendError.status
        assert set(server.keys) == {f"Bearer {KEY}"}
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
    command: str, pair: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        gone = server.url
    table = tmp_path / "pairs.csv"
    table.write_text("a,b,prompt,overall\n" + ",".join((*pair, "A fox.", "A")))
    asked = [str(table)] if command == "eval" else pair
    assert run([command, *asked, "--backend", gone]) == BackendError.status
    *lines, last = capfd.readouterr().err.splitlines()
    assert f"waiting for the server at {gone} (cannot be reached: " in "\n".join(lines)
    assert last.startswith(f"vrt-lite: The back end {gone} cannot be reached: ")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("compare A B --served-model x", "--backend URL"),
        (f"compare A B --backend http://u:{KEY}@127.0.0.1/v1", "VRT_LITE_API_KEY"),
        ("compare A B --backend localhost", "http://127.0.0.1:8000/v1"),
        (f"compare A B --backend {HERE} --threads 2", "--threads"),
        (f"compare A B --backend {HERE} --ctx 4096 --gpu-layers 0", "--ctx, --gpu-layers"),
        (f"compare A B --backend {HERE} --projector p", "--projector"),
        (f"rank A B --backend {HERE} --jobs {MOST_JOBS + 1}", f"give 1..{MOST_JOBS}|auto."),
        (f"eval pairs.csv --backend {HERE} --jobs {MOST_JOBS + 1}", f"give 1..{MOST_JOBS}|auto."),
    ],
)
def test_what_no_server_can_follow_is_refused(
    command: str, expected: str, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = dict(zip("AB", pair, strict=True))
    assert run([paths.get(word, word) for word in command.split()]) == UsageError.status
    shown = capsys.readouterr().err
    assert expected in shown
    assert KEY not in shown
