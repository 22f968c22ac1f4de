"""What one client asks for, how slowly it asks, or a process that dies, stops no others; and how the command ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import select
import shlex
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import av
import httpx
import psutil
import pytest
import uvicorn
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served, Servers, wait_until, write_animation

from vrt_lite.advice import install_extra
from vrt_lite.cli import run
from vrt_lite.decoder import Decoder
from vrt_lite.errors import VideoError
from vrt_lite.modes import WantedJudge
from vrt_lite.runs.store import Store
from vrt_lite.web import upload_folder
from vrt_lite.web.job_queue import JobFiles, JobQueue, ServedJob
from vrt_lite.web.job_work import perform_job
from vrt_lite.web.requests import CompareBody
from vrt_lite.web.server import TimedProtocol, build_application
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.upload_folder import UploadDraft, UploadFolder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerState:
    """What a server in this process holds. The test closes it."""
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    return ServerState(perform_job, store=None, folders=(EXAMPLES,), choice=WantedJudge(jobs=2))


def test_sixty_requests_for_a_copy_leave_the_server_to_others(served: Served) -> None:
    write_animation(STAR, served.make_folder("copied") / "star.gif")
    [clip] = served.list_clips(served.home / "allowed" / "copied")
    served.client.get(f"{clip['address'].removesuffix('.mp4')}/frames/middle")  # the decoder begins
    workers = served.workers
    with contextlib.ExitStack() as stack:
        for worker in workers:
            worker.suspend()
            stack.callback(worker.resume)
        begin = (f"GET {clip['address']} HTTP/1.1", "Connection: close")
        asking = [stack.enter_context(served.connect(*begin)) for _ in range(60)]
        for path in ("/v1/runs", "/v1/folders", "/", "/v1/jobs"):
            assert served.client.get(path).status_code == 200
        assert select.select(asking, [], [], 0)[0] == []
        for worker in workers:
            worker.resume()
        assert {connection.recv(12) for connection in asking} == {b"HTTP/1.1 200"}


def test_a_page_of_many_pictures_leaves_the_server_to_others(served: Served) -> None:
    folder = served.make_folder("pictures")
    for number in range(5_000):
        (folder / f"{number:05d}.png").touch()
    job = served.begin("", str(folder), str(folder))
    served.until(job, "failed")
    with ThreadPoolExecutor(4) as pool:
        pages = [pool.submit(httpx.get, f"{served.url}view/jobs/{job}", timeout=60) for _ in range(4)]
        answered = 0
        while not all(page.done() for page in pages):
            assert served.client.get("/v1/runs").status_code == 200
            answered += 1
        assert {page.result().status_code for page in pages} == {200}
    assert answered >= 4, "answers while the pages were made"


def test_the_event_loop_never_waits_for_the_store(state: ServerState) -> None:
    app = build_application(state, host="127.0.0.1", names=(), token="")
    checked = threading.Event()

    async def ask() -> set[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            paths = ("/v1/run/export", "/v1/votes", "/v1/votes/next", "/view/run")
            asked = [asyncio.create_task(client.get(f"{path}?run=none")) for path in paths]
            await asyncio.sleep(0.3)
            assert (await client.get("/v1/jobs")).status_code == 200
            assert not any(task.done() for task in asked)
            checked.set()
            return {(await task).status_code for task in asked}

    with ThreadPoolExecutor(1) as pool:  # a browser's driver may have an event loop in this thread
        with state.store.write(lasting=False):
            answers = pool.submit(lambda: asyncio.run(asyncio.wait_for(ask(), 20)))
            checked.wait(20)
        assert answers.result() == {400}
    state.close()


def test_the_list_of_jobs_is_small_whatever_they_ask_for(served: Served) -> None:
    clip = f"{EXAMPLES}/{'./' * 1800}star.mp4"
    body = {"clips": [clip] * 900 + [CIRCLE], "prompt": "x" * 5000}
    jobs = [served.post("/v1/rank", **body, name=f"large {number}").json()["id"] for number in range(3)]
    listed = served.client.get("/v1/jobs")
    served.cancel(*jobs)
    assert len(listed.content) < 60_000
    assert [job["request"] for job in listed.json()["jobs"][:3]] == [{"prompt": "x" * 200}] * 3


def test_jobs_that_failed_are_forgotten_at_last(tmp_path: Path) -> None:
    def fail(job: ServedJob) -> dict[str, Any]:
        raise OSError("no file")

    with contextlib.closing(JobQueue(fail, JobFiles(tmp_path))) as queue:
        for _ in range(100):
            job = ServedJob("compare", CompareBody(a=STAR, b=CIRCLE))
            queue.add(job, keep=False)
            wait_until(lambda job=job: job.ended)
        assert len(queue.jobs()) < 70


def test_many_pictures_are_not_flushed_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    with av.open(STAR) as clip:
        next(clip.decode(video=0)).to_image().save(tmp_path / "picture.png")
    with contextlib.closing(Decoder()) as decoder:
        draft = UploadDraft(UploadFolder(tmp_path / "uploads", decoder))
        for number in range(50):
            draft.begin_file("clip", f"{number}.png")
            draft.write((tmp_path / "picture.png").read_bytes())
        draft.keep("8")
    assert len(flushed) <= (1 if hasattr(os, "sync") else 50)


def test_what_was_used_longest_ago_makes_room_for_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_folder, "_MOST_KEPT", 2)
    uploads = UploadFolder(tmp_path / "uploads", Decoder())
    for age, name in enumerate(("draft-of-a-killed-server", "a" * 64, "b" * 64)):
        (uploads.path / name).mkdir()
        os.utime(uploads.path / name, (age, age))
    uploads.make_room(1)
    assert [path.name for path in uploads.path.iterdir()] == ["b" * 64]


def test_a_job_that_waits_for_a_judge_can_be_cancelled_while_one_is_opened(
    state: ServerState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, may_open = threading.Event(), threading.Event()

    def open_slowly(*_: Any, **__: Any) -> Any:
        opening.set()
        assert may_open.wait(60)
        raise VideoError("x", "no judge")

    monkeypatch.setattr("vrt_lite.web.server_state.Judge", open_slowly)
    try:
        first, second = (ServedJob("compare", CompareBody(a=STAR, b=CIRCLE)) for _ in range(2))
        state.queue.add(first, keep=False)
        assert opening.wait(60)
        state.queue.add(second, keep=True)
        assert list((tmp_path / "jobs").iterdir())
        time.sleep(0.3)
        state.queue.cancel(second)
        assert not list((tmp_path / "jobs").iterdir())
        assert (first.state, second.state) == ("running", "cancelled")
    finally:
        may_open.set()
        state.close()


def test_a_job_that_asks_for_another_judge_has_its_turn_and_is_alone_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for the judge that is loaded, and two of them at a time."""
    lent, told = list[str | None](), list[tuple[str | None, bool]]()
    both = threading.Event()

    def work(job: ServedJob, state: ServerState) -> dict[str, Any]:
        model = job.request.model
        with state.lend_judge(job):
            lent.append(model)
            told.append((model, set(lent) == {model}))
            if len(lent) == 2:
                both.set()
            both.wait(20)
            time.sleep(0.02)
            lent.remove(model)
        return {}

    judge = SimpleNamespace(connect=lambda **_: None, close=lambda: None)
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    monkeypatch.setattr("vrt_lite.web.server_state.Judge", lambda *_, **__: judge)
    with contextlib.closing(ServerState(work, store=None, folders=(), choice=WantedJudge(jobs=2))) as state:
        asked = (*"aaabaaaba", None)
        jobs = [ServedJob("compare", CompareBody(a=STAR, b=CIRCLE, model=model)) for model in asked]
        for job in jobs:
            state.queue.add(job, keep=False)
        for job in jobs:
            wait_until(lambda job=job: job.ended)
        assert {job.state for job in jobs} == {"done"}
    served = [model for model, _ in told]
    assert Counter(served) == Counter(asked)
    # Of the two threads that have taken a job either may come first.
    assert all(abs(served.index(model) - asked.index(model)) <= 2 for model in ("b", None))
    assert all(alone for _, alone in told)


def test_a_file_that_ends_the_decoder_ends_no_server() -> None:
    with contextlib.closing(Decoder()) as decoder, ThreadPoolExecutor(1) as pool:
        decoder.check(Path(STAR))
        [process] = [child for child in psutil.Process().children() if "serve_calls" in " ".join(child.cmdline())]
        process.suspend()
        copying = pool.submit(decoder.copy, [Path(STAR)])
        time.sleep(0.1)
        process.kill()
        assert isinstance(copying.exception(timeout=60), VideoError)
        assert decoder.draw_frame(Path(STAR), 0).startswith(b"\xff\xd8")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("asked", "kills"), [(16, 3), pytest.param(500, 10, marks=pytest.mark.nightly)])
def test_all_clients_are_answered_while_the_judge_is_killed(servers: Servers, asked: int, kills: int) -> None:
    served = servers("--allow", EXAMPLES, "--jobs", "2")
    answered, found = itertools.count(1), 0
    options = {"first_frames": 2, "rounds": 1, "max_pixels": 10_000}

    def count_judged() -> int:
        with Store(served.home / "runs.sqlite") as store:
            return sum(info.judgements for info in store.runs())

    def ask(number: int) -> httpx.Response:
        nonlocal found
        is_ranking = number % 40 == 2  # which gives way to all others
        clips = {"clips": [STAR, CIRCLE]} if is_ranking else {"a": STAR, "b": CIRCLE}
        # Another prompt each time, so that nothing is found in the store.
        body = {**clips, "prompt": f"A blue star moves up {number} times.", "options": options}
        answer = served.post("/v1/rank" if is_ranking else "/v1/compare", **body)
        if number >= 0 and next(answered) % (asked // (kills + 1)) == 0:
            before = count_judged()
            for worker in served.workers:
                worker.send_signal((signal.SIGKILL, signal.SIGABRT)[found % 2])
                found += 1
            assert count_judged() >= before, "a judgement was lost"
        return answer

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(-min(asked // 4, 70), 0)))  # until as many jobs are remembered as ever are
        before = psutil.Process(served.process.pid).memory_info().rss
        answers = list(pool.map(ask, range(asked)))
    grown = (psutil.Process(served.process.pid).memory_info().rss - before) / 2**20
    failed = [answer for answer in answers if answer.status_code not in (200, 202)]
    for ranking in (answer.json()["id"] for answer in answers if answer.status_code == 202):
        told = served.until(ranking)
        assert told["state"] == "done" or "\n" not in told["error"]["message"]
    print(f"{asked} answered, {len(failed)} of them by an error; {found} processes killed; {grown:+.1f} MB")
    assert found >= kills
    assert len(failed) <= 2 * found, "only what the judge was at work on when it was killed"
    assert all(answer.json()["error"]["message"].count("\n") == 0 for answer in failed)
    assert {answer.json()["error"]["kind"] for answer in failed} <= {"engine_died"}
    assert grown < 20
    served.compare(PROMPT)


@pytest.mark.skipif(sys.platform == "win32", reason="a process that has ended is gone there")
def test_jobs_of_killed_servers_are_found_and_damaged_files_do_no_harm(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = {"token": "t", "pid": 2**22 - 1, "born": 1.0}
    good = {"a": STAR, "b": CIRCLE}

    def kept(request: object, kind: object = "compare", owner: object = dead) -> str:
        return json.dumps({"id": "x", "kind": kind, "request": request, "owner": owner})

    damaged = [
        "",
        "[" * 200_000,
        '{"a":' * 100_000,
        kept(good)[:-5],
        kept([1]),
        kept("text"),
        kept(None),
        kept({"a": STAR}),
        kept(good | {"prompt": 3}),
        kept(good | {"options": {"temperature": float("nan")}}),
        kept(good | {"options": [[]]}),
        kept({"clips": "text"}, "rank"),
        kept(good, "pull"),
        kept(good, ["rank"]),
        kept(good, owner=None),
        kept(good, owner=dead | {"born": float("inf")}),
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ]
    folder = tmp_path / "home" / "jobs"
    folder.mkdir(parents=True)
    for number, text in enumerate(damaged):
        (folder / f"{number:016x}.json").write_text(text, encoding="latin-1")
    good_ids = ["a" * 16, "b" * 16, "c" * 16]
    for name, pid in zip(good_ids, (dead["pid"], -1, 10**30), strict=True):
        (folder / f"{name}.json").write_text(kept(good, owner=dead | {"pid": pid}))
    (folder / "<b>.json").write_text(kept(good))
    (folder / f"{'d' * 16}.json").mkdir()
    os.mkfifo(folder / f"{'e' * 16}.json")
    first = servers("--allow", EXAMPLES)
    assert len(first.client.get("/v1/jobs").json()["jobs"]) == len(good_ids), "its first answer knows them"
    assert [first.until(job)["state"] for job in good_ids] == ["done"] * 3
    second = servers("--allow", EXAMPLES)
    for path in ("/", "/rank", "/runs", f"/jobs/{good_ids[0]}"):
        assert first.client.get(path).status_code == 200, path
    workers = first.workers
    for worker in workers:
        worker.suspend()
    job = first.post("/v1/rank", clips=[STAR, CIRCLE], prompt="Left behind.", both_orders=False).json()["id"]
    time.sleep(2.5)  # the other server looks for such jobs now and then
    assert second.client.get(f"/v1/jobs/{job}").status_code == 404
    first.process.kill()  # nobody waits for it until the test ends
    for worker in workers:
        worker.kill()
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / "home"))
    with contextlib.closing(JobQueue(lambda _: {}, JobFiles(folder))) as third:
        wait_until(lambda: third.jobs() or second.client.get(f"/v1/jobs/{job}").status_code == 200)
        assert psutil.Process(first.process.pid).status() == psutil.STATUS_ZOMBIE
        third.adopt_jobs()
        here, there = (job in (told.id for told in third.jobs()), second.client.get(f"/v1/jobs/{job}").is_success)
    assert here != there, "one has it"
    assert here or second.until(job)["state"] == "done"


HEAD = b"GET /slow HTTP/1.1\r\nHost: here\r\n"


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "python_multipart"])
def test_without_the_extra_it_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("vrt_lite.web", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert run(["serve"]) == 2
    said = capsys.readouterr().err
    assert said == f"vrt-lite: vrt-lite serve needs {package}: {install_extra('web')}\n"
    # It works wherever vrt-lite came from: it names packages.
    assert shlex.split(install_extra("web"))[:4] == [sys.executable, "-m", "pip", "install"]
    assert package.replace("_", "-") in said


def test_what_cannot_be_served_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, expected, words in (
            (("--port", str(taken.getsockname()[1])), 2, "cannot be served"),
            (("--host", "no.such.host.invalid"), 2, "cannot be served"),
            (("--allow", str(tmp_path / "none")), 2, "does not exist"),
            (("--host-name", "https://judge.example.org"), 2, "is no name"),
            (("--model", "none"), 4, "none"),
            (("--store", STAR, "--port", "0"), 2, "no store"),
        ):
            status, said = run(["serve", *arguments]), capsys.readouterr().err
            assert (status, said.count("\n")) == (expected, 1), said
            assert words in said


@pytest.mark.skipif(sys.platform == "win32", reason="there an interrupt goes to the whole console")
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_in_order_and_keeps_what_is_left_to_do(
    servers: Servers, sent: signal.Signals, status: int
) -> None:
    served = servers("--allow", EXAMPLES)
    job = served.post("/v1/rank", clips=[str(EXAMPLES)], prompt=PROMPT).json()["id"]
    served.until(job, "running")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(served.post, "/v1/rank", clips=[str(EXAMPLES)], prompt=PROMPT, wait=True)
        wait_until(lambda: len(served.client.get("/v1/jobs").json()["jobs"]) == 2)
        os.kill(served.process.pid, sent)
        answer = waiting.result()
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "stopping")
    assert served.process.wait(60) == status
    assert [path.stem for path in (served.home / "jobs").iterdir()] == [job]


class QuickProtocol(TimedProtocol):
    HEAD_SECONDS: ClassVar[float] = 0.4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of uvicorn with this protocol. It answers a GET with a part every 0.1 s, and all else at once."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5 if scope["method"] == "GET" else 0):
            await asyncio.sleep(0.1)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await asyncio.sleep(0.05)  # the client may have sent its next request by then

    server = uvicorn.Server(uvicorn.Config(serve, http=QuickProtocol, log_level="critical", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (HEAD, b"X"),
        (b"POST /refused HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
)
def test_a_connection_without_a_whole_request_is_ended(port: int, first: bytes, then: bytes) -> None:
    """However often a client sends a byte more."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.1)
        with contextlib.suppress(OSError):
            connection.sendall(first)
            while time.monotonic() - began < 10:
                try:
                    if not connection.recv(1000):
                        break
                except TimeoutError:
                    connection.sendall(then)
    assert time.monotonic() - began < 5


def test_a_long_answer_is_not_cut_and_the_next_request_has_its_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            answer = b""
            while b"\r\n0\r\n\r\n" not in answer:
                part = connection.recv(1000)
                assert part, answer
                answer += part
            assert answer.count(b"\r\nx\r\n") == 5


def test_a_server_keeps_an_idle_connection_longer_than_its_clients_do() -> None:
    """Otherwise a client may send a request at the moment at which the server closes the connection."""
    kept = httpx.Limits().keepalive_expiry
    assert kept
    assert kept < round(TimedProtocol.HEAD_SECONDS)
