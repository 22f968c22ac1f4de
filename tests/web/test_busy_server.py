"""What one client asks for must not stop the others, nor grow what the server remembers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import psutil
import pytest
from web.conftest import CIRCLE, EXAMPLES, STAR, Served

from vrt_lite.decoder import Decoder
from vrt_lite.errors import VideoError
from vrt_lite.web.job_context import JudgeChoice
from vrt_lite.web.job_queue import MOST_WAITING, JobFiles, JobQueue
from vrt_lite.web.request_bodies import CompareBody, PullBody
from vrt_lite.web.served_job import ServedJob
from vrt_lite.web.server import build_application
from vrt_lite.web.server_state import ServerState
from vrt_lite.web.upload_folder import UploadDraft, UploadFolder


@pytest.fixture(scope="module")
def large_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip by itself in a folder, whose playable copy takes seconds."""
    path = tmp_path_factory.mktemp("large") / "large.avi"
    noise = np.random.default_rng(0).integers(0, 255, (720, 1280, 3), dtype=np.uint8)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mjpeg", rate=24)
        stream.width, stream.height, stream.pix_fmt = 1280, 720, "yuvj420p"
        for number in range(120):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, number, axis=1), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


def test_sixty_requests_for_a_copy_leave_the_server_to_others(servers: Callable[..., Served], large_clip: Path) -> None:
    served = servers("--allow", large_clip.parent)
    body = {"a": str(large_clip), "b": str(large_clip), "wait": False}
    job = served.client.post("/v1/compare", json=body).json()["id"]
    address = served.client.get(f"/view/jobs/{job}").json()["clips"][0]["address"]
    served.client.delete(f"/v1/jobs/{job}")
    with httpx.Client(base_url=served.url, timeout=120) as other, ThreadPoolExecutor(60) as pool:
        copies = [pool.submit(other.get, address) for _ in range(60)]
        time.sleep(0.3)
        for path in ("/v1/runs", "/v1/folders", "/", "/v1/models"):
            assert served.client.get(path).status_code == 200
        assert not wait(copies, timeout=0).done, "the others were answered while the copy was made"
        assert {copy.result().status_code for copy in copies} == {200}
    assert len(list((served.home / "copies").iterdir())) == 1


def test_a_page_of_many_pictures_leaves_the_server_to_others(servers: Callable[..., Served], tmp_path: Path) -> None:
    folder = tmp_path / "allowed" / "pictures"
    folder.mkdir(parents=True)
    for number in range(20_000):
        os.close(os.open(folder / f"{number:05d}.png", os.O_CREAT | os.O_WRONLY))
    served = servers("--allow", tmp_path / "allowed")
    job = served.post("/v1/compare", a=str(folder), b=str(folder), wait=False).json()["id"]
    served.until(job, "failed")
    with ThreadPoolExecutor(8) as pool:
        pages = [pool.submit(httpx.get, f"{served.url}view/jobs/{job}", timeout=60) for _ in range(8)]
        longest, answered = 0.0, 0
        while not all(page.done() for page in pages):
            began = time.monotonic()
            assert served.client.get("/v1/jobs").status_code == 200
            longest, answered = max(longest, time.monotonic() - began), answered + 1
        assert {page.result().status_code for page in pages} == {200}
    assert answered >= 8, f"{answered} answers while the pages were made; the slowest took {longest:.2f} s"


def test_the_event_loop_never_waits_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    state = ServerState(store=None, folders=(EXAMPLES,), choice=JudgeChoice())
    app = build_application(state, host="127.0.0.1", names=(), token="")

    async def ask_while_the_store_is_busy() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            paths = ("/v1/run/export", "/v1/votes", "/v1/votes/agreement", "/v1/votes/next", "/view/run")
            asked = [asyncio.create_task(client.get(f"{path}?run=none")) for path in paths]
            await asyncio.sleep(0.3)
            assert (await client.get("/v1/jobs")).status_code == 200
            assert not any(task.done() for task in asked)
            free.set()
            assert {(await task).status_code for task in asked} == {400}

    def hold_store() -> None:
        with state.store._database.write(lasting=False):
            held.set()
            free.wait(20)

    held, free = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold_store)
    try:
        holder.start()
        assert held.wait(10)
        with ThreadPoolExecutor(1) as pool:  # a browser's driver may have an event loop in this thread
            pool.submit(lambda: asyncio.run(asyncio.wait_for(ask_while_the_store_is_busy(), 10))).result()
    finally:
        free.set()
        holder.join()
        state.close()


def test_pausing_makes_no_room_in_the_queue(served: Served) -> None:
    taken: list[str] = []
    refused: Any = None
    for number in range(MOST_WAITING + 20):
        answer = served.post("/v1/rank", clips=[STAR, CIRCLE], prompt=f"Paused {number}.", name=f"paused {number}")
        if answer.status_code == 429:
            refused = answer
            break
        taken.append(answer.json()["id"])
        served.client.post(f"/v1/jobs/{taken[-1]}/pause")
    states = [served.client.get(f"/v1/jobs/{job}").json()["state"] for job in taken]
    for job in taken:
        served.client.delete(f"/v1/jobs/{job}")
    assert refused, f"{len(taken)} were taken: {states.count('paused')} paused"
    assert states.count("paused") <= MOST_WAITING + 1, "and one that was running"
    assert "paused" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) >= 1


def test_the_list_of_jobs_is_small_whatever_they_ask_for(served: Served) -> None:
    clip = f"{EXAMPLES}/{'./' * 1800}star.mp4"
    for number in range(3):
        body = {"clips": [clip] * 900 + [CIRCLE], "prompt": "x" * 5000, "name": f"large {number}"}
        assert served.client.post("/v1/rank", json=body).status_code == 202
    listed = served.client.get("/v1/jobs")
    assert len(listed.content) < 20_000
    assert listed.json()["jobs"][0]["request"] == {"prompt": "x" * 200}
    for job in listed.json()["jobs"]:
        served.client.delete(f"/v1/jobs/{job['id']}")


def test_pulls_that_failed_are_forgotten_at_last(tmp_path: Path) -> None:
    def fail(job: ServedJob) -> dict[str, Any]:
        raise OSError("no network")

    queue = JobQueue(fail, JobFiles(tmp_path))
    try:
        for _ in range(100):
            job = ServedJob(PullBody(model="any"))
            queue.run_apart(job)
            end = time.monotonic() + 10
            while not job.ended:
                assert time.monotonic() < end
                time.sleep(0.001)
        assert len(queue.jobs()) < 70
    finally:
        queue.close()


def test_many_pictures_are_not_flushed_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    fsync = os.fsync

    def count(file: int) -> None:
        flushed.append(file)
        fsync(file)

    monkeypatch.setattr(os, "fsync", count)
    with av.open(STAR) as clip:
        picture = tmp_path / "picture.png"
        next(clip.decode(video=0)).to_image().save(picture)
    with contextlib.closing(Decoder()) as decoder:
        draft = UploadDraft(UploadFolder(tmp_path / "uploads", decoder))
        for number in range(50):
            draft.begin_file("clip", f"{number}.png")
            draft.write(picture.read_bytes())
        draft.finish("8")
    assert len(flushed) <= (1 if hasattr(os, "sync") else 50)


def test_a_job_that_waits_for_a_judge_can_be_cancelled_while_one_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, may_open = threading.Event(), threading.Event()

    def open_slowly(*_: Any, **__: Any) -> Any:
        opening.set()
        assert may_open.wait(20)
        raise VideoError("x", "no judge")

    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path))
    monkeypatch.setattr("vrt_lite.web.job_context.Judge", open_slowly)
    state = ServerState(store=None, folders=(EXAMPLES,), choice=JudgeChoice(jobs=2))
    try:
        first, second = (ServedJob(CompareBody(a=STAR, b=CIRCLE)) for _ in range(2))
        state.queue.add(first, keep=False)
        assert opening.wait(10)
        state.queue.add(second, keep=False)
        time.sleep(0.3)
        state.queue.stop(second, "cancelled")
        assert (first.state, second.state) == ("running", "cancelled")
    finally:
        may_open.set()
        state.close()


def test_a_file_that_ends_the_decoder_ends_no_server(large_clip: Path) -> None:
    with contextlib.closing(Decoder()) as decoder:
        decoder.check(Path(STAR))
        [process] = [child for child in psutil.Process().children() if "serve_calls" in " ".join(child.cmdline())]
        with ThreadPoolExecutor(1) as pool:
            copying = pool.submit(decoder.copy, [large_clip])
            time.sleep(0.3)
            process.kill()
            assert isinstance(copying.exception(timeout=20), VideoError)
        assert decoder.draw_frame(Path(STAR), 0).startswith(b"\xff\xd8")
