"""Clips whose names lead elsewhere a moment later, names that no file can have, and what is sent and is no clip."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from web.conftest import CIRCLE, EXAMPLES, STAR, Served, write_pictures

from vrt_lite.web.clip_store import ClipStore
from vrt_lite.web.refusals import RefusedRequestError

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file is checked before and after")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that is allowed, and one outside with another clip."""
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder, clip in ((allowed, STAR), (outside, CIRCLE)):
        folder.mkdir()
        (folder / "clip.mp4").write_bytes(Path(clip).read_bytes())
    return allowed, outside


@ONLY_LINUX
def test_a_file_exchanged_for_a_link_is_never_sent(
    servers: Callable[..., Served], folders: tuple[Path, Path], tmp_path: Path
) -> None:
    allowed, outside = folders
    served = servers("--allow", allowed)
    own, secret = (allowed / "clip.mp4").read_bytes(), (outside / "clip.mp4").read_bytes()
    served.post("/v1/rank", clips=[str(allowed / "clip.mp4"), str(outside / "clip.mp4")])
    job = served.post("/v1/compare", a=str(allowed / "clip.mp4"), b=str(allowed / "clip.mp4"), wait=False).json()["id"]
    address = served.client.get(f"/view/jobs/{job}").json()["clips"][0]["address"]
    end = threading.Event()

    def exchange() -> None:
        while not end.is_set():
            (tmp_path / "new").symlink_to(outside / "clip.mp4")
            (tmp_path / "new").replace(allowed / "clip.mp4")
            (tmp_path / "new").write_bytes(own)
            (tmp_path / "new").replace(allowed / "clip.mp4")

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    try:
        answers = [served.client.get(address) for _ in range(600)]
    finally:
        end.set()
        exchanging.join()
    assert {answer.status_code for answer in answers} <= {200, 403, 404}
    assert any(answer.content == own for answer in answers)
    assert not any(answer.content == secret for answer in answers)


@ONLY_LINUX
def test_what_was_checked_is_what_is_read(folders: tuple[Path, Path], tmp_path: Path) -> None:
    allowed, outside = folders
    (allowed / "inner").mkdir()
    (allowed / "inner" / "clip.mp4").write_bytes(b"own")
    clips = ClipStore([allowed], tmp_path)
    with clips.open(allowed / "inner" / "clip.mp4") as opened:
        (allowed / "inner").rename(allowed / "away")
        (allowed / "inner").symlink_to(outside)
        assert (allowed / "inner" / "clip.mp4").read_bytes() == Path(CIRCLE).read_bytes()
        assert opened.read_bytes() == b"own"
    with pytest.raises(RefusedRequestError), clips.open(allowed / "inner" / "clip.mp4"):
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with clips.open(allowed / "clip.mp4") as opened:
            assert opened.read_bytes() == Path(STAR).read_bytes()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@ONLY_LINUX
def test_pictures_exchanged_while_they_are_used_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    allowed, outside = folders
    first, *_ = write_pictures(STAR, allowed / "frames")
    clips = ClipStore([allowed], tmp_path)
    with pytest.raises(RefusedRequestError), clips.open(allowed / "frames"):
        first.unlink()
        first.symlink_to(outside / "clip.mp4")


def test_a_connection_that_asks_for_no_bytes_leaves_no_file_open(served: Served) -> None:
    import psutil

    job, address = served.place_clip()
    served.until(job, "done")
    process = psutil.Process(served.process.pid)
    asked = [{"range": "bytes=0-0"}, {"range": "bytes=9999999-"}, {"range": "none"}, {}]

    def ask() -> None:
        for headers in asked:
            assert served.client.get(address, headers=headers).status_code in (200, 206, 400, 416)
            assert served.client.head(address, headers=headers).status_code in (200, 206, 400, 416)

    ask()
    before = process.num_fds() if hasattr(process, "num_fds") else process.num_handles()
    for _ in range(10):
        ask()
    assert (process.num_fds() if hasattr(process, "num_fds") else process.num_handles()) <= before + 2


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".mp4", "y" * 300 + "/clip.mp4", "é" * 200 + "@8"])
def test_a_name_that_no_file_can_have_is_refused(served: Served, name: str) -> None:
    path = f"{EXAMPLES}/{name}"
    answers = [
        served.post("/v1/compare", a=path, b=CIRCLE),
        served.post("/v1/rank", clips=[path, CIRCLE]),
        served.post("/v1/rewards", prompt="", clips=[path, CIRCLE]),
        served.client.get("/v1/folders", params={"path": path}),
        served.post("/v1/run/copy", run="none", top=1, folder=path),
    ]
    assert {answer.status_code for answer in answers} <= {400, 403, 404}, [answer.text for answer in answers]
    assert all("\n" not in answer.json()["error"]["message"] for answer in answers)


def test_a_relative_path_is_named_as_one(served: Served) -> None:
    for path in ("star.mp4", "./examples/star.mp4", "examples/../star.mp4"):
        answer = served.post("/v1/compare", a=path, b=CIRCLE)
        assert answer.status_code == 403
        assert "relative" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("song.mp3", b"ID3\x04\x00\x00\x00\x00\x00\x00" + bytes(4000)),
        ("notes.txt", b"A fox runs through snow.\n" * 100),
        ("page.mp4", b"<html><video src=/etc/passwd></html>"),
        ("list.mp4", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"),
        ("cut.mp4", Path(STAR).read_bytes()[:500]),
    ],
)
def test_what_is_no_clip_is_refused_when_it_is_sent(served: Served, name: str, content: bytes) -> None:
    before = sorted((served.home / "uploads").iterdir())
    other = ("b.mp4", Path(CIRCLE).read_bytes())
    answers = [
        served.client.post("/v1/clips", params={"name": name}, content=content),
        served.client.post("/v1/clips", files={"clip": (name, content)}),
        served.client.post("/v1/compare", files={"a": (name, content), "b": other}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["kind"]) == (422, "broken_clip"), answer.text
        assert str(served.home) not in answer.text
        assert name.rpartition(".")[0] in answer.text
    assert sorted((served.home / "uploads").iterdir()) == before


def test_an_error_about_an_upload_tells_no_path_of_the_server(served: Served) -> None:
    """A clip whose header is whole and whose frames are not: it opens, and fails when it is judged."""
    data = bytearray(Path(STAR).read_bytes())
    begin = data.index(b"mdat") + 4
    middle = begin + 1200
    data[middle : len(data) - 1500] = os.urandom(max(len(data) - 1500 - middle, 0))
    sent = served.client.post("/v1/clips", params={"name": "damaged.mp4"}, content=bytes(data))
    if sent.status_code == 422:
        assert str(served.home) not in sent.text
        return
    path = next((served.home / "uploads" / sent.json()["clip"].removeprefix("upload:")).iterdir())
    path.write_bytes(b"no clip any more")
    for answer in (
        served.post("/v1/compare", a=sent.json()["clip"], b=CIRCLE),
        served.post("/v1/rank", clips=[sent.json()["clip"], CIRCLE], wait=True),
        served.post("/v1/rewards", prompt="", clips=[sent.json()["clip"], CIRCLE]),
    ):
        assert str(served.home) not in answer.text, answer.text
        job = answer.headers.get("x-job")
        if job:
            assert str(served.home / "uploads") not in served.client.get(f"/v1/jobs/{job}/events").text
