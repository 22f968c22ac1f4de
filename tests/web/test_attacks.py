"""What must not be served: other sites and names, paths outside, endless and slow uploads, markup in what is said."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import psutil
import pytest
from pages.example_records import HOSTILE
from web.conftest import CIRCLE, EXAMPLES, PROMPT, STAR, Served

from vrt_lite.decoder import Decoder
from vrt_lite.runs.store import Store
from vrt_lite.web.upload_folder import MOST_UPLOAD_BYTES, UploadFolder

FOREIGN = "evil.example evil.example:80 127.0.0.1.evil.example localhost.evil.example 10.0.0.1 a@127.0.0.1 [::1"


@pytest.mark.parametrize("host", ["", *FOREIGN.split()])
def test_another_host_is_refused(served: Served, host: str) -> None:
    for path in ("/", "/v1/runs", "/view/run"):
        answer = served.client.get(path, headers={"host": host})
        assert answer.status_code in (400, 421), (path, answer.status_code)
        assert "vrt-tiny" not in answer.text


def test_two_hosts_are_refused(served: Served) -> None:
    with served.connect("GET / HTTP/1.1", "Host: evil.example", "Connection: close") as connection:
        assert connection.recv(100).split()[1] in (b"400", b"421")


def test_names_of_loopback_are_served(served: Served) -> None:
    port = urlsplit(served.url).port
    for host in (f"127.0.0.1:{port}", f"127.8.9.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert served.client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_requests_from_other_sites_are_refused(served: Served, headers: dict[str, str]) -> None:
    answer = served.client.post("/v1/compare", json={"a": STAR, "b": CIRCLE}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "origin")
    assert served.client.get("/v1/runs", headers=headers).status_code == 403


def test_a_form_of_another_site_cannot_be_json(served: Served) -> None:
    body = f'{{"a": "{STAR}", "b": "{CIRCLE}"}}'
    answer = served.client.post("/v1/compare", content=body, headers={"content-type": "text/plain"})
    assert answer.status_code == 415


def test_every_answer_has_the_policy(served: Served) -> None:
    for path in ("/", "/v1/runs", "/view/run", "/nothing"):
        headers = served.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_paths_outside_are_refused_alike_whether_they_are_there_or_not(served: Served, tmp_path: Path) -> None:
    there = tmp_path / "there.mp4"
    there.write_bytes(Path(STAR).read_bytes())
    outside = [
        str(there),
        str(tmp_path / "none.mp4"),
        "/etc/passwd",
        f"{EXAMPLES}/../pyproject.toml",
        f"{EXAMPLES}/../examples/../README.md",
        str(served.home / "runs.sqlite"),
        "star.mp4",
        "",
        "\0",
        f"{STAR}\0.mp4",
        "upload:../../runs.sqlite",
        "file:///etc/passwd",
    ]
    for path in outside:
        answers = [
            served.post("/v1/compare", a=path, b=CIRCLE),
            served.post("/v1/rank", clips=[path, CIRCLE]),
            served.post("/v1/rewards", prompt="", clips=[path, CIRCLE]),
        ]
        assert {answer.status_code for answer in answers} <= {400, 403, 404}, (path, [a.text for a in answers])
        if path.startswith("/") and "\0" not in path:
            assert {answer.status_code for answer in answers} == {403}, path
    for folder in (str(tmp_path), "/", f"{EXAMPLES}/.."):
        assert served.client.get("/v1/folders", params={"path": folder}).status_code == 403


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_that_lead_outside_are_refused(servers: Callable[..., Served], tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder in (allowed, outside):
        folder.mkdir()
    (outside / "secret.mp4").write_bytes(Path(STAR).read_bytes())
    (allowed / "own.mp4").write_bytes(Path(CIRCLE).read_bytes())
    (allowed / "link.mp4").symlink_to(outside / "secret.mp4")
    (allowed / "folder").symlink_to(outside)
    (allowed / "round").symlink_to(allowed / "round")
    os.mkfifo(allowed / "pipe.mp4")
    served = servers("--allow", allowed)
    listed = served.client.get("/v1/folders", params={"path": str(allowed)}).json()
    assert [clip["path"] for clip in listed["clips"]] == [str(allowed / "own.mp4")]
    assert listed["folders"] == []
    for name in ("link.mp4", "folder/secret.mp4", "round", "pipe.mp4"):
        answer = served.post("/v1/compare", a=str(allowed / name), b=str(allowed / "own.mp4"))
        assert answer.status_code in (400, 403), name
    ranked = served.post("/v1/rank", clips=[str(allowed)], wait=True)
    assert ranked.status_code in (400, 422), "only one clip of the folder may be used"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_no_text_are_listed_and_ranked(servers: Callable[..., Served], tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    for name, clip in ((b"\xff\xfe.mp4", STAR), ("\u202e<b>\x1b[31m\n.mp4".encode(), CIRCLE)):
        Path(os.fsdecode(bytes(allowed) + b"/" + name)).write_bytes(Path(clip).read_bytes())
    served = servers("--allow", allowed)
    clips = served.client.get("/v1/folders", params={"path": str(allowed)}).json()["clips"]
    assert sorted(clip["name"] for clip in clips) == ["\u202e<b>\x1b[31m\n.mp4", "\udcff\udcfe.mp4"]
    ranked = served.post("/v1/rank", clips=[str(allowed)], both_orders=False, wait=True, name="odd")
    assert ranked.status_code == 200, ranked.text
    job = ranked.headers["x-job"]
    runs = ("/v1/run", "/run", "/view/run", "/v1/run/export", "/v1/votes/next")
    for path in (*runs, f"/jobs/{job}", f"/view/jobs/{job}"):
        assert served.client.get(path, params={"run": "odd"}).status_code == 200, path


def test_static_files_and_clips_are_only_those_that_are_named(served: Served) -> None:
    for path in (
        "/static/../server.py",
        "/static/%2e%2e%2fserver.py",
        "/app.js%00",
        "/clips/..%2f..%2fetc%2fpasswd",
        "/clips/0" + "0" * 31,
        "/clips/0" + "0" * 31 + "/frames/0",
        "/jobs/..%2f..",
    ):
        assert served.client.get(path).status_code in (400, 404), path


@pytest.mark.parametrize("size", [10 * 10**9, 10**15])
def test_an_announced_giant_is_refused_before_it_is_sent_and_removes_nothing(served: Served, size: int) -> None:
    kept = served.client.post("/v1/clips?name=kept.mp4", content=Path(STAR).read_bytes()).json()["clip"]
    for path, kind in (("/v1/clips?name=a.mp4", "video/mp4"), ("/v1/compare", "multipart/form-data; boundary=x")):
        head = (f"POST {path} HTTP/1.1", f"Content-Type: {kind}", f"Content-Length: {size}")
        with served.connect(*head) as connection:
            assert connection.recv(4096).split()[1] == b"413"
    assert 2 * MOST_UPLOAD_BYTES < 10 * 10**9
    assert not list((served.home / "uploads").glob("draft-*"))
    assert (served.home / "uploads" / kept.removeprefix("upload:")).is_dir()


def test_a_forms_files_go_straight_to_the_servers_own_folder(served: Served) -> None:
    head = ("POST /v1/compare HTTP/1.1", "Content-Type: multipart/form-data; boundary=x", "Content-Length: 4194304")
    with served.connect(*head) as connection:
        part = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.mp4"\r\n\r\n'
        connection.sendall(part + bytes(3 * 2**20))

        def arrived() -> int:
            drafts = (served.home / "uploads").glob("draft-*/a/a.mp4")
            return sum(path.stat().st_size for path in drafts)

        end = time.monotonic() + 10
        while arrived() < 2 * 2**20:
            assert time.monotonic() < end
            time.sleep(0.02)
    while list((served.home / "uploads").glob("draft-*")):
        assert time.monotonic() < end
        time.sleep(0.02)


PART = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.mp4"\r\n\r\nabc\r\n--x--\r\n'
TEXT = b'--x\r\nContent-Disposition: form-data; name="t%d"\r\n\r\n\r\n'
DAMAGED = {
    "no boundary": ("", PART),
    "long boundary": ("; boundary=" + "y" * 5000, PART),
    "nothing": ("; boundary=x", b""),
    "no end": ("; boundary=x", PART[:60]),
    "no name": ("; boundary=x", PART.replace(b"name=", b"nam=", 1)),
    "other field": ("; boundary=x", PART.replace(b'"a"', b'"../a"')),
    "no file": ("; boundary=x", PART.replace(b'; filename="a.mp4"', b"")),
    "long header": ("; boundary=x", b"--x\r\nA: " + b"b" * 10**6),
    "long text": ("; boundary=x", PART.replace(b'; filename="a.mp4"', b"").replace(b"abc", b"z" * 2**21)),
    "many texts": ("; boundary=x", b"".join(TEXT % n for n in range(50))),
}


@pytest.mark.parametrize(("kind", "body"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_form_is_refused_and_leaves_nothing(served: Served, kind: str, body: bytes) -> None:
    before = sorted((served.home / "uploads").iterdir())
    for path in ("/v1/compare", "/v1/clips"):
        answer = served.client.post(path, content=body, headers={"content-type": f"multipart/form-data{kind}"})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "usage"), answer.text
    assert sorted((served.home / "uploads").iterdir()) == before


def test_an_upload_that_stops_coming_is_ended_and_leaves_nothing(served: Served, tmp_path: Path) -> None:
    import asyncio

    from starlette.requests import Request

    from vrt_lite.web.refusals import RefusedRequestError
    from vrt_lite.web.uploading import BodyReader

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05 if not sent else 60)
        sent.append(1)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def upload() -> None:
        reader = BodyReader(UploadFolder(tmp_path / "uploads", decoder), silence_seconds=0.3)
        await reader.take_clips(Request({"type": "http", "query_string": b"", "headers": []}, receive), "clip")

    sent: list[int] = []
    decoder = Decoder()  # which is not needed
    # A browser's driver may have an event loop in this thread.
    with ThreadPoolExecutor(1) as pool, pytest.raises(RefusedRequestError) as refused:
        pool.submit(lambda: asyncio.run(upload())).result()
    assert refused.value.http_status == 408
    assert sent
    assert list((tmp_path / "uploads").iterdir()) == []


def test_an_upload_that_is_cut_off_leaves_nothing_and_others_are_served(served: Served) -> None:
    before = sorted((served.home / "uploads").iterdir())
    with served.connect("POST /v1/clips HTTP/1.1", "Content-Length: 100000") as connection:
        connection.sendall(b"x" * 1000)
        time.sleep(0.2)
        assert served.client.get("/v1/jobs").status_code == 200
    end = time.monotonic() + 10
    while sorted((served.home / "uploads").iterdir()) != before:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    "name", ["../../../x.mp4", "..", "", "a/b\\c.mp4", HOSTILE, "x" * 5000, "\x00", "con.mp4", ".mp4"]
)
def test_an_uploads_name_stays_in_its_folder(served: Served, name: str) -> None:
    content = Path(STAR).read_bytes() + name.encode("utf-8", "replace")
    made = served.client.post("/v1/clips", params={"name": name}, content=content)
    assert made.status_code == 201, made.text
    [path] = (served.home / "uploads" / made.json()["clip"].removeprefix("upload:")).iterdir()
    assert path.name == made.json()["name"]
    assert not set(path.name) & set("<>&\"'/\\\0\u202e")
    assert len(path.name.encode()) < 200


def test_captions_are_data_of_every_page_and_never_part_of_it(served: Served) -> None:
    caption = HOSTILE.replace("\x00", "")
    done = served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=caption)
    assert done.status_code == 200, done.text
    ranked = served.post("/v1/rank", clips=[STAR, CIRCLE], prompt=caption, both_orders=False, name=caption, wait=True)
    job = done.headers["x-job"]
    run = {"run": ranked.json()["run"]}
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


def test_another_address_needs_the_token(servers: Callable[..., Served]) -> None:
    served = servers("--host", "0.0.0.0", "--allow", EXAMPLES)
    token = served.url.rpartition("token=")[2]
    base = served.url.partition("?")[0]
    assert base.startswith("http://127.0.0.1:"), "0.0.0.0 is no address that can be opened"
    with httpx.Client(base_url=base, timeout=30) as client:
        assert len(token) >= 16
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "vrt_lite_token=wrong"}):
            for path in ("/", "/v1/runs", "/view/run", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == 401
        assert client.get("/v1/runs", headers={"authorization": f"Bearer {token}"}).status_code == 200
        foreign = {"host": "evil.example", "authorization": f"Bearer {token}"}
        assert client.get("/v1/runs", headers=foreign).status_code == 421
        moved = client.get("/", params={"token": token})
        assert (moved.status_code, moved.headers["location"]) == (303, "/")
        assert "httponly" in moved.headers["set-cookie"].lower()
        assert "samesite=strict" in moved.headers["set-cookie"].lower()
        assert client.get("/v1/runs").status_code == 200


def test_behind_a_proxy_its_names_are_served_and_no_others(servers: Callable[..., Served]) -> None:
    served = servers("--host-name", "Judge.example.org", "--allow", EXAMPLES)
    token = {"authorization": f"Bearer {served.url.rpartition('token=')[2]}"}
    body = {"a": STAR, "b": CIRCLE, "wait": False}

    def ask(host: str, **more: str) -> int:
        return served.client.post("/v1/compare", json=body, headers={"host": host} | token | more).status_code

    own = f"127.0.0.1:{served.client.base_url.port}"
    for host in ("judge.example.org", "judge.example.org:8443", "JUDGE.example.org", own):
        assert ask(host) == 202, host
    assert ask("judge.example.org", origin="https://judge.example.org") == 202
    assert ask("judge.example.org:8443", origin="https://judge.example.org:8443") == 202
    others = "evil.example example.org a.judge.example.org judge.example.org.evil.example x@judge.example.org"
    for host in others.split():
        assert ask(host) == 421, host
    for origin in ("https://evil.example", "https://example.org", "https://judge.example.org:1", "null"):
        assert ask("judge.example.org", origin=origin) == 403, origin
    assert ask(own, origin="https://judge.example.org") == 403
    without = served.client.get("/v1/runs", headers={"host": "judge.example.org"})
    assert without.status_code == 401, "who comes through the proxy needs the token"
    assert served.client.get("/v1/runs").status_code == 401


def test_a_killed_server_loses_nothing_and_goes_on(servers: Callable[..., Served]) -> None:
    clips = [STAR, CIRCLE, str(EXAMPLES / "a.mp4")]
    first = servers("--allow", EXAMPLES)
    job = first.post("/v1/rank", clips=clips, prompt=PROMPT, both_orders=False).json()["id"]
    end = time.monotonic() + 60
    while ((told := first.client.get(f"/v1/jobs/{job}").json())["progress"] or {"done": 0})["done"] < 1:
        assert time.monotonic() < end, told
    first.process.kill()
    first.process.wait()
    with Store(first.home / "runs.sqlite") as store:
        [run] = store.runs()
        kept = {result.key for result in store.run(run.name).results()}
    assert kept
    second = servers("--allow", EXAMPLES)
    assert second.client.get(f"/v1/jobs/{job}").json()["state"] == "paused"
    second.client.post(f"/v1/jobs/{job}/resume")
    ranked = second.until(job, "done", "failed")["result"]
    assert ranked["found"] >= 1
    assert ranked["ladders"][0]["judgements"] == 3
    with Store(second.home / "runs.sqlite") as store:
        assert kept < {result.key for result in store.run(run.name).results()}
    assert list((second.home / "jobs").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems set no limit for a process that runs")
def test_a_disk_that_takes_nothing_is_one_line_and_loses_no_vote(servers: Callable[..., Served]) -> None:
    served = servers("--allow", EXAMPLES)
    served.post("/v1/compare", a=STAR, b=CIRCLE, prompt=PROMPT)
    [run] = served.client.get("/v1/runs").json()["runs"]
    ticket = served.client.get("/v1/votes/next", params={"run": run["name"]}).json()["ticket"]
    process = psutil.Process(served.process.pid)
    hard = process.rlimit(psutil.RLIMIT_FSIZE)[1]
    process.rlimit(psutil.RLIMIT_FSIZE, (1, hard))
    refused = [
        (served.client.post("/v1/clips", content=b"x" * 1000), 507),
        (served.client.post("/v1/compare", files={"a": ("a.mp4", b"x" * 1000), "b": ("b.mp4", b"x")}), 507),
        (served.post("/v1/rank", clips=[STAR, CIRCLE]), 507),
        (served.post("/v1/compare", a=STAR, b=CIRCLE, prompt="Nothing is taken."), 500),
        (served.post("/v1/votes", ticket=ticket, choice=1), 500),
    ]
    for answer, status in refused:
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["kind"] in ("disk", "store"), answer.text
    process.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))
    assert list((served.home / "uploads").iterdir()) == list((served.home / "jobs").iterdir()) == []
    assert served.post("/v1/votes", ticket=ticket, choice=1).status_code == 201
    assert served.post("/v1/compare", a=STAR, b=CIRCLE, prompt="Nothing is taken.").status_code == 200
