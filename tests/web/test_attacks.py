"""What must not be served: other sites and names, paths outside, endless and slow uploads, markup in what is said."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil
import pytest
from pages.example_records import HOSTILE
from starlette.requests import Request
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, A, Served, Servers, wait_until, write_pictures

from vrt_lite.decoder import Decoder
from vrt_lite.runs.store import Store
from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.requests import RefusedRequestError
from vrt_lite.web.upload_folder import MOST_UPLOAD_BYTES, UploadFolder
from vrt_lite.web.uploading import BodyReader

FOREIGN = "evil.example evil.example:80 127.0.0.1.evil.example localhost.evil.example 10.0.0.1 a@127.0.0.1 [::1"
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names, links and limits")
FORM = "multipart/form-data; boundary=x"


@pytest.fixture
def unchanged(served: Served) -> Iterator[Served]:
    """A server that keeps nothing of what a test sends."""
    before = served.uploads
    yield served
    wait_until(lambda: served.uploads == before)


def test_only_names_of_loopback_are_served(served: Served) -> None:
    port = urlsplit(served.url).port
    for host in ("", *FOREIGN.split()):
        for path in ("/", "/v1/runs", "/view/run"):
            answer = served.client.get(path, headers={"host": host})
            assert answer.status_code in (400, 421), (host, path)
            assert "vrt-tiny" not in answer.text
    with served.connect("GET / HTTP/1.1", "Host: evil.example", "Connection: close") as connection:  # and its own
        assert connection.recv(100).split()[1] in (b"400", b"421")
    for host in (f"127.0.0.1:{port}", f"127.8.9.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert served.client.get("/", headers={"host": host}).status_code == 200


def test_requests_from_other_sites_are_refused(served: Served) -> None:
    body = {"a": STAR, "b": CIRCLE}
    origins = [{"origin": origin} for origin in ("https://evil.example", "null", "http://127.0.0.1:1")]
    fetches = [{"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}]
    fetches += [{"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}]
    for headers in (*origins, *fetches):
        answer = served.client.post("/v1/compare", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "origin")
        assert served.client.get("/v1/runs", headers=headers).status_code == 403
    form = served.client.post("/v1/compare", content=json.dumps(body), headers={"content-type": "text/plain"})
    assert form.status_code == 415, "a form cannot be JSON"


def test_every_answer_has_the_policy_and_files_are_only_those_that_are_named(served: Served) -> None:
    for path in ("/", "/v1/runs", "/view/run", "/nothing"):
        headers = served.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
    outside = "/static/../server.py /static/%2e%2e%2fserver.py /app.js%00 /clips/..%2f..%2fetc%2fpasswd /jobs/..%2f.."
    for path in (*outside.split(), "/clips/" + "0" * 32, "/clips/" + "0" * 32 + "/frames/0"):
        assert served.client.get(path).status_code in (400, 404), path


def test_paths_outside_are_refused_alike_whether_they_are_there_or_not(served: Served, tmp_path: Path) -> None:
    there = tmp_path / "there.mp4"
    there.write_bytes(Path(STAR).read_bytes())
    outside = [str(there), str(tmp_path / "none.mp4"), "/etc/passwd", str(served.home / "runs.sqlite")]
    outside += [f"{EXAMPLES}/../pyproject.toml", f"{EXAMPLES}/../examples/../README.md"]
    relative = ["star.mp4", "./examples/star.mp4", "examples/../star.mp4"]
    impossible = ("x" * 300, "x" * 300 + ".mp4", "y" * 300 + "/c.mp4", "é" * 200 + "@8")
    no_names = [f"{EXAMPLES}/{name}" for name in impossible]
    odd = ["", "\0", f"{STAR}\0.mp4", "upload:../../runs.sqlite", "file:///etc/passwd"]
    for path in (*outside, *relative, *no_names, *odd):
        answers = [
            served.post("/v1/compare", a=path, b=CIRCLE),
            served.post("/v1/rank", clips=[path, CIRCLE]),
            served.post("/v1/rewards", prompt="", clips=[path, CIRCLE]),
            served.client.get("/v1/folders", params={"path": path or "/"}),
        ]
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {400, 403, 404}, path
        assert path not in outside or set(statuses[:3]) == {403}, path
        assert path not in relative or all("relative" in answer.text for answer in answers[:3]), path
        assert all("\n" not in answer.json()["error"]["message"] for answer in answers)
    for folder in (str(tmp_path), "/", f"{EXAMPLES}/.."):
        assert served.client.get("/v1/folders", params={"path": folder}).status_code == 403


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_that_lead_outside_are_refused(served: Served, tmp_path: Path) -> None:
    allowed = served.make_folder("links")
    (allowed / "own.mp4").write_bytes(Path(CIRCLE).read_bytes())
    (tmp_path / "secret.mp4").write_bytes(Path(STAR).read_bytes())
    (allowed / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (allowed / "folder").symlink_to(tmp_path)
    (allowed / "round").symlink_to(allowed / "round")
    os.mkfifo(allowed / "pipe.mp4")
    listed = served.client.get("/v1/folders", params={"path": str(allowed)}).json()
    assert [clip["path"] for clip in listed["clips"]] == [str(allowed / "own.mp4")]
    assert listed["folders"] == []
    frames = allowed / "frames"
    frames.mkdir()
    for path in write_pictures(STAR, tmp_path / "outside"):
        (frames / path.name).symlink_to(path)
    assert served.list_clips(frames) == []
    for name in ("frames", "frames@8", "frames/%04d.png", "frames/%04d.png@8"):
        assert served.post("/v1/compare", a=str(allowed / name), b=CIRCLE).status_code == 403, name
    for name in ("link.mp4", "folder/secret.mp4", "round", "pipe.mp4"):
        assert served.post("/v1/compare", a=str(allowed / name), b=CIRCLE).status_code in (400, 403), name
    for clips in ([str(allowed)], [str(frames), str(allowed / "own.mp4")]):
        ranked = served.post("/v1/rank", clips=clips, wait=True)
        assert ranked.status_code in (400, 422), "only one clip may be used"


@ONLY_LINUX
def test_names_that_are_no_text_are_listed_and_ranked(served: Served) -> None:
    allowed = served.make_folder("odd")
    for name, clip in ((b"\xff\xfe.mp4", STAR), ("\u202e<b>\x1b[31m\n.mp4".encode(), CIRCLE)):
        Path(os.fsdecode(bytes(allowed) + b"/" + name)).write_bytes(Path(clip).read_bytes())
    listed = sorted(clip["name"] for clip in served.list_clips(allowed))
    assert listed == ["\u202e<b>\x1b[31m\n.mp4", "\udcff\udcfe.mp4"]
    job = served.rank(str(allowed), name="odd").headers["x-job"]
    runs = ("/run", "/view/run", "/v1/run/export", "/v1/votes/next")
    for path in (*runs, f"/jobs/{job}", f"/view/jobs/{job}"):
        assert served.client.get(path, params={"run": "odd"}).status_code == 200, path


@ONLY_LINUX
def test_a_file_exchanged_for_a_link_is_never_sent(served: Served, tmp_path: Path) -> None:
    clip, new, outside = served.make_folder("exchanged") / "clip.mp4", tmp_path / "new", tmp_path / "outside.mp4"
    own, secret = Path(STAR).read_bytes(), Path(CIRCLE).read_bytes()
    clip.write_bytes(own)
    outside.write_bytes(secret)
    [listed] = served.list_clips(clip.parent)
    end = threading.Event()

    def exchange() -> None:
        while not end.is_set():
            new.symlink_to(outside)
            new.replace(clip)
            new.write_bytes(own)
            new.replace(clip)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    try:
        answers = [served.client.get(listed["address"]) for _ in range(200)]
    finally:
        end.set()
        exchanging.join()
    assert {answer.status_code for answer in answers} <= {200, 403, 404}
    assert any(answer.content == own for answer in answers)
    assert not any(answer.content == secret for answer in answers)


@ONLY_LINUX
def test_what_was_checked_is_what_is_read(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder, content in ((allowed / "inner", b"own"), (outside, b"other")):
        folder.mkdir(parents=True)
        (folder / "clip.mp4").write_bytes(content)
    clip, clips = allowed / "inner" / "clip.mp4", ClipStore([allowed], tmp_path)
    with clips.open(clip) as opened:
        clip.parent.rename(allowed / "away")
        clip.parent.symlink_to(outside)
        assert clip.read_bytes() == b"other"
        assert opened.read_bytes() == b"own"
    with pytest.raises(RefusedRequestError), clips.open(clip):
        pass
    first, *_ = write_pictures(STAR, allowed / "frames")
    with pytest.raises(RefusedRequestError), clips.open(allowed / "frames"):
        first.unlink()
        first.symlink_to(outside / "clip.mp4")


def test_a_connection_that_asks_for_no_bytes_leaves_no_file_open(served: Served) -> None:
    address = served.list_clips(EXAMPLES)[0]["address"]
    process = psutil.Process(served.process.pid)

    def count_files() -> int:
        for _ in range(10):
            for headers in ({"range": "bytes=0-0"}, {"range": "bytes=9999999-"}, {"range": "none"}, {}):
                for method in ("GET", "HEAD"):
                    answer = served.client.request(method, address, headers=headers)
                    assert answer.status_code in (200, 206, 400, 416)
        return process.num_fds() if hasattr(process, "num_fds") else process.num_handles()

    before = count_files()
    assert count_files() <= before + 2


def test_an_announced_giant_is_refused_before_it_is_sent_and_removes_nothing(unchanged: Served) -> None:
    assert 2 * MOST_UPLOAD_BYTES < 10 * 10**9
    for size in (10 * 10**9, 10**15):
        for path, kind in (("/v1/clips?name=a.mp4", "video/mp4"), ("/v1/compare", FORM)):
            head = (f"POST {path} HTTP/1.1", f"Content-Type: {kind}", f"Content-Length: {size}")
            with unchanged.connect(*head) as connection:
                assert connection.recv(4096).split()[1] == b"413"


PART = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.mp4"\r\n\r\nabc\r\n--x--\r\n'
NO_FILE = PART.replace(b'; filename="a.mp4"', b"")
TEXT = b'--x\r\nContent-Disposition: form-data; name="t%d"\r\n\r\n\r\n'
DAMAGED = {
    "no boundary": ("multipart/form-data", PART),
    "long boundary": ("multipart/form-data; boundary=" + "y" * 5000, PART),
    "nothing": (FORM, b""),
    "no end": (FORM, PART[:60]),
    "no name": (FORM, PART.replace(b"name=", b"nam=", 1)),
    "other field": (FORM, PART.replace(b'"a"', b'"../a"')),
    "no file": (FORM, NO_FILE),
    "long header": (FORM, b"--x\r\nA: " + b"b" * 10**6),
    "long text": (FORM, NO_FILE.replace(b"abc", b"z" * 2**21)),
    "many texts": (FORM, b"".join(TEXT % n for n in range(50))),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_form_is_refused_and_leaves_nothing(unchanged: Served, damage: str) -> None:
    kind, body = DAMAGED[damage]
    for path in ("/v1/compare", "/v1/clips"):
        answer = unchanged.client.post(path, content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "usage"), answer.text


def test_an_upload_goes_to_the_servers_own_folder_and_leaves_nothing_when_it_is_cut_off(unchanged: Served) -> None:
    arrived = (unchanged.home / "uploads").glob
    for path, kind, begin in (("clips", "video/mp4", b""), ("compare", FORM, PART.partition(b"abc")[0])):
        head = (f"POST /v1/{path} HTTP/1.1", f"Content-Type: {kind}", "Content-Length: 4194304")
        with unchanged.connect(*head) as connection:
            connection.sendall(begin + bytes(3 * 2**20))
            wait_until(lambda: sum(path.stat().st_size for path in arrived("draft-*/*/*/*")) > 2 * 2**20)
            assert unchanged.client.get("/v1/jobs").status_code == 200
        wait_until(lambda: not list(arrived("draft-*")))


def test_an_upload_that_stops_coming_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05 if not sent else 60)
        sent.append(1)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def upload() -> None:
        reader = BodyReader(UploadFolder(tmp_path / "uploads", Decoder()), silence_seconds=0.3)
        request = Request({"type": "http", "query_string": b"", "headers": []}, receive)
        await asyncio.wait_for(reader.take_clips(request, "clip"), 20)

    sent: list[int] = []
    # A browser's driver may have an event loop in this thread.
    with ThreadPoolExecutor(1) as pool, pytest.raises(RefusedRequestError) as refused:
        pool.submit(lambda: asyncio.run(upload())).result()
    assert refused.value.http_status == 408
    assert sent
    assert list((tmp_path / "uploads").iterdir()) == []


NAMES = ["../../../x.mp4", "..", "", "a/b\\c.mp4", HOSTILE, "x" * 5000, "\x00", "con.mp4", ".mp4"]


@pytest.mark.parametrize("name", NAMES)
def test_an_uploads_name_stays_in_its_folder(served: Served, name: str) -> None:
    content = Path(STAR).read_bytes() + name.encode("utf-8", "replace")
    made = served.client.post("/v1/clips", params={"name": name}, content=content)
    assert made.status_code == 201, made.text
    [path] = (served.home / "uploads" / made.json()["clip"].removeprefix("upload:")).iterdir()
    assert path.name == made.json()["name"]
    assert not set(path.name) & set("<>&\"'/\\\0\u202e")
    assert len(path.name.encode()) < 200


NO_CLIPS = {
    "song.mp3": b"ID3\x04\x00\x00\x00\x00\x00\x00" + bytes(4000),
    "notes.txt": b"A fox runs through snow.\n" * 100,
    "page.mp4": b"<html><video src=/etc/passwd></html>",
    "list.mp4": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
    "cut.mp4": Path(STAR).read_bytes()[:500],
}


@pytest.mark.parametrize("name", NO_CLIPS)
def test_what_is_no_clip_is_refused_when_it_is_sent(unchanged: Served, name: str) -> None:
    post, file = unchanged.client.post, (name, NO_CLIPS[name])
    for answer in (
        post("/v1/clips", params={"name": name}, content=NO_CLIPS[name]),
        post("/v1/clips", files={"clip": file}),
        post("/v1/compare", files={"a": file, "b": ("b.mp4", Path(CIRCLE).read_bytes())}),
    ):
        assert (answer.status_code, answer.json()["error"]["kind"]) == (422, "broken_clip"), answer.text
        assert str(unchanged.home) not in answer.text
        assert name.rpartition(".")[0] in answer.text


def test_an_error_about_an_upload_tells_no_path_of_the_server(served: Served) -> None:
    content = Path(A).read_bytes() + b"of its own, as uploads are kept by their content"
    sent = served.client.post("/v1/clips", params={"name": "damaged.mp4"}, content=content).json()["clip"]
    [path] = (served.home / "uploads" / sent.removeprefix("upload:")).iterdir()
    path.write_bytes(b"no clip any more")
    clips = {"clips": [sent, CIRCLE]}
    for way, body in (("compare", {"a": sent, "b": CIRCLE}), ("rank", clips), ("rewards", clips)):
        answer = served.post(f"/v1/{way}", **body, prompt="", wait=True)
        assert str(served.home) not in answer.text
        events = served.client.get(f"/v1/jobs/{answer.headers['x-job']}/events").text
        assert str(served.home / "uploads") not in events


def test_captions_are_data_of_every_page_and_never_part_of_it(served: Served) -> None:
    caption = HOSTILE.replace("\x00", "")
    job = served.compare(caption).headers["x-job"]
    run = {"run": served.rank(STAR, CIRCLE, prompt=caption, name=caption).json()["run"]}
    pages = [f"/jobs/{job}", "/runs?search=<script>", f"/run?{urlencode(run)}", f"/vote?{urlencode(run)}", "/"]
    answers = [served.client.get(page) for page in pages]
    assert len({answer.text for answer in answers}) == 1, "the page is the same at every address"
    assert not [evil for evil in ("<script>alert(1)", "<img src=x", "\u202e", "\x1b") if evil in answers[0].text]
    policy = answers[0].headers["content-security-policy"]
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    for path, query in ((f"/view/jobs/{job}", {}), ("/view/run", run), ("/view/pair", run | {"pair": "1"})):
        answer = served.client.get(path, params=query)
        assert answer.headers["content-type"] == "application/json", answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; base-uri 'none'")
        assert "\u202e" not in answer.text
        assert "alert(1)" in answer.text


def test_any_other_address_or_name_needs_the_token(servers: Servers) -> None:
    for arguments in (("--host", "0.0.0.0"), ("--host-name", "Judge.example.org")):
        served = servers(*arguments)
        client, token = served.client, served.url.rpartition("token=")[2]
        assert served.url.startswith("http://127.0.0.1:"), "0.0.0.0 is no address that can be opened"
        assert len(token) >= 16
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "vrt_lite_token=wrong"}):
            for path in ("/", "/v1/runs", "/view/run", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == 401
        bearer = {"authorization": f"Bearer {token}"}
        assert client.get("/v1/runs", headers=bearer).status_code == 200
        assert client.get("/v1/runs", headers=bearer | {"host": "evil.example"}).status_code == 421
        moved = client.get("/", params={"token": token})
        assert (moved.status_code, moved.headers["location"]) == (303, "/")
        assert "httponly" in moved.headers["set-cookie"].lower()
        assert "samesite=strict" in moved.headers["set-cookie"].lower()
        assert client.get("/v1/runs").status_code == 200
        client.cookies.clear()
    own, name = f"127.0.0.1:{client.base_url.port}", "judge.example.org"
    assert client.get("/v1/runs", headers={"host": name}).status_code == 401, "through the proxy too"
    foreign = ["example.org", "a.judge.example.org", "judge.example.org.evil.example", "x@judge.example.org"]
    for host, origin, status in (
        *((host, "", 200) for host in (name, f"{name}:8443", "JUDGE.example.org", own)),
        (name, f"https://{name}", 200),
        (f"{name}:8443", f"https://{name}:8443", 200),
        *((host, "", 421) for host in foreign),
        *((name, other, 403) for other in ("https://evil.example", "https://example.org", f"https://{name}:1", "null")),
        (own, f"https://{name}", 403),
    ):
        headers = bearer | {"host": host} | ({"origin": origin} if origin else {})
        assert client.get("/v1/runs", headers=headers).status_code == status, (host, origin)


def test_a_killed_server_loses_nothing_and_goes_on(servers: Servers) -> None:
    first = servers("--allow", EXAMPLES)
    job = first.post("/v1/rank", clips=[STAR, CIRCLE, A], prompt=PROMPT, both_orders=False, name="r").json()["id"]
    wait_until(lambda: (first.find_job(job)["progress"] or {"done": 0})["done"] >= 1)
    ticket = first.client.get("/v1/votes/next", params={"run": "r"}).json()["ticket"]
    assert first.post("/v1/votes", ticket=ticket, choice=1).status_code == 201
    first.process.kill()
    first.process.wait()
    with Store(first.home / "runs.sqlite") as store:
        kept = {result.key for result in store.run("r").results()}
    assert kept
    second = servers("--allow", EXAMPLES)
    wait_until(lambda: "id" in second.find_job(job))
    ranked = second.until(job)["result"]
    assert ranked["found"] >= 1
    assert ranked["ladders"][0]["judgements"] == 3
    with Store(second.home / "runs.sqlite") as store:
        assert kept < {result.key for result in store.run("r").results()}
    assert list((second.home / "jobs").iterdir()) == []
    assert second.client.get("/v1/votes/next", params={"run": "r"}).json()["votes"] == 1


@ONLY_LINUX
def test_a_disk_that_takes_nothing_is_one_line_and_loses_no_vote(unchanged: Served) -> None:
    served = unchanged
    served.rank(STAR, CIRCLE, prompt="Full.", name="full")
    ticket = served.client.get("/v1/votes/next", params={"run": "full"}).json()["ticket"]
    process = psutil.Process(served.process.pid)
    hard = process.rlimit(psutil.RLIMIT_FSIZE)[1]
    process.rlimit(psutil.RLIMIT_FSIZE, (1, hard))
    try:
        refused = [
            (served.client.post("/v1/clips", content=b"x" * 1000), 507),
            (served.client.post("/v1/compare", files={"a": ("a.mp4", b"x" * 1000), "b": ("b.mp4", b"x")}), 507),
            (served.post("/v1/rank", clips=[STAR, CIRCLE]), 507),
            (served.post("/v1/compare", a=STAR, b=CIRCLE, prompt="Nothing is taken."), 500),
            (served.post("/v1/votes", ticket=ticket, choice=1), 500),
        ]
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))
    for answer, status in refused:
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["kind"] in ("disk", "store"), answer.text
    assert list((served.home / "jobs").iterdir()) == []
    assert served.post("/v1/votes", ticket=ticket, choice=1).status_code == 201
    served.compare("Nothing is taken.")
