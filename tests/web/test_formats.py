"""GIF, WebP and numbered pictures: listed, sent, judged as the library judges them, and played as copies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from web.conftest import CIRCLE, PROMPT, STAR, Served, end, start, write_animation, write_pictures
from web.test_api import verdict_of

from vrt_lite import compare


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("formats")
    write_animation(STAR, found / "star.gif")
    write_animation(CIRCLE, found / "circle.webp")
    write_animation(CIRCLE, found / "still.webp").write_bytes(b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00")
    write_pictures(STAR, found / "frames")
    return found


@pytest.fixture(scope="module")
def site(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(tmp_path_factory.mktemp("home"), "--allow", folder)
    yield served
    end(served)


def test_they_are_in_the_list_of_a_folder(site: Served, folder: Path) -> None:
    listed = site.client.get("/v1/folders", params={"path": str(folder)}).json()
    assert [clip["path"] for clip in listed["clips"]] == [str(folder / name) for name in ("circle.webp", "star.gif")]
    assert listed["folders"] == [{"path": str(folder / "frames"), "name": "frames"}]
    listed = site.client.get("/v1/folders", params={"path": str(folder / "frames")}).json()
    [clip] = listed["clips"]
    assert (clip["path"], clip["name"]) == (str(folder / "frames" / "%04d.png"), "frames/%04d.png")
    frame = site.client.get(f"{clip['address'].removesuffix('.mp4')}/frames/middle")
    assert (frame.status_code, frame.headers["content-type"]) == (200, "image/jpeg")


@pytest.mark.parametrize(
    "pictures", ["frames@8", *(pytest.param(p, marks=pytest.mark.nightly) for p in ("frames", "frames/%04d.png"))]
)
def test_they_are_judged_as_the_library_judges_them(site: Served, folder: Path, pictures: str) -> None:
    pair = (str(folder / pictures), str(folder / "circle.webp"))
    answer = site.post("/v1/compare", a=pair[0], b=pair[1], prompt=PROMPT)
    assert answer.status_code == 200, answer.text
    told, expected = verdict_of(answer.json()), verdict_of(compare(*pair, prompt=PROMPT).to_json())
    for judged in (told, expected):
        judged["inputs"][0].pop("path")  # a folder is named by the pattern of its pictures
    assert told == expected


def test_each_is_played_as_a_video(site: Served, folder: Path, tmp_path: Path) -> None:
    site.post("/v1/rank", clips=[str(folder), str(folder / "frames")], name="all", both_orders=False, wait=True)
    pair = site.client.get("/v1/votes/next", params={"run": "all"}).json()
    played = site.client.get(pair["left"], headers={"range": "bytes=0-99"})
    assert (played.status_code, played.headers["content-type"]) == (206, "video/mp4")
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(site.client.get(pair["left"]).content)
    with av.open(str(copy)) as file:
        assert len(list(file.decode(video=0))) > 30  # Pillow joins equal frames of an animation


def test_pictures_are_sent_as_one_clip(site: Served, tmp_path: Path) -> None:
    star = write_pictures(STAR, tmp_path / "star")
    files: list[Any] = [("clip", (path.name, path.read_bytes())) for path in star]
    made = site.client.post("/v1/clips", files=files, data={"fps": "8"})
    assert made.status_code == 201, made.text
    assert made.json()["name"] == "pictures/%04d.png@8"
    files = [("a", (path.name, path.read_bytes())) for path in star]
    files.append(("b", ("circle.mp4", Path(CIRCLE).read_bytes())))
    sent = site.client.post("/v1/compare", files=files, data={"prompt": PROMPT, "fps": "8"}).json()
    named = site.post("/v1/compare", a=made.json()["clip"], b=sent["inputs"][1]["path"]).status_code
    assert named == 404, "a clip that came with its question is gone"
    expected = verdict_of(compare(Path(f"{tmp_path / 'star'}@8"), CIRCLE, prompt=PROMPT).to_json())
    for judged in (told := verdict_of(sent), expected):
        for clip in judged["inputs"]:
            clip.pop("path")
    assert told == expected
    assert len(list((site.home / "uploads").iterdir())) == 1


@pytest.mark.parametrize(
    ("names", "fps", "status"),
    [
        (("0.png", "2.png"), "", 422),
        (("0.png", "0.png"), "", 400),
        (("0.png", "1.png"), "0", 422),
        (("0.png", "1.png"), "..", 400),
        (("0.png", "1.png"), "1e9", 400),
        (("0.mp4", "1.mp4"), "", 422),
        (("0.png", "1.png", "a.mp4"), "", 422),
    ],
)
def test_several_files_that_are_no_pictures_of_one_clip_are_refused(
    site: Served, names: tuple[str, ...], fps: str, status: int
) -> None:
    before = sorted((site.home / "uploads").iterdir())
    answer = site.client.post("/v1/clips", files=[("clip", (name, b"x")) for name in names], data={"fps": fps})
    assert answer.status_code == status, answer.text
    assert str(site.home) not in answer.text
    assert sorted((site.home / "uploads").iterdir()) == before


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_pictures_that_are_links_to_outside_are_refused(servers: Callable[..., Served], tmp_path: Path) -> None:
    outside = write_pictures(STAR, tmp_path / "outside")
    allowed = tmp_path / "allowed"
    (allowed / "frames").mkdir(parents=True)
    for path in outside:
        (allowed / "frames" / path.name).symlink_to(path)
    (allowed / "own.mp4").write_bytes(Path(CIRCLE).read_bytes())
    served = servers("--allow", allowed)
    for name in ("frames", "frames@8", "frames/%04d.png", "frames/%04d.png@8"):
        answer = served.post("/v1/compare", a=str(allowed / name), b=str(allowed / "own.mp4"))
        assert answer.status_code == 403, (name, answer.text)
    assert served.client.get("/v1/folders", params={"path": str(allowed / "frames")}).json()["clips"] == []
    ranked = served.post("/v1/rank", clips=[str(allowed / "frames"), str(allowed / "own.mp4")], wait=True)
    assert ranked.status_code in (400, 422), "only one clip may be used"
