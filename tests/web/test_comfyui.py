"""The pack for ComfyUI against a real `vrt-lite serve`: loaded as ComfyUI loads a folder, run as it runs a node."""

from __future__ import annotations

import inspect
import io
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from clips import write_clip
from web.comfyui_pack import PACK, Pack, load_pack
from web.conftest import CIRCLE, PROMPT, STAR, Served

from vrt_lite import compare
from vrt_lite.show import list_verdict

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def pack() -> Iterator[Pack]:
    with load_pack() as loaded:
        yield loaded


def read_images(path: str | io.BytesIO) -> Any:
    """A clip as a batch of images: (frames, height, width, 3), 0 to 1."""
    with av.open(path) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]).astype(np.float32) / 255


def write_five(folder: Path) -> list[Path]:
    return [write_clip(folder / f"{n}.mp4", frames=8 + n, size=(56, 56)) for n in range(5)]


def test_the_nodes_are_as_comfyui_asks_for_them(pack: Pack) -> None:
    for node in pack.nodes.values():
        required = node.INPUT_TYPES()["required"]
        assert all(isinstance(spec, tuple) and isinstance(spec[0], str | list) for spec in required.values())
        assert list(inspect.signature(getattr(node, node.FUNCTION)).parameters)[1:] == list(required)
        assert len(node.RETURN_TYPES) == len(node.RETURN_NAMES)
        assert len(getattr(node, "OUTPUT_IS_LIST", node.RETURN_TYPES)) == len(node.RETURN_TYPES)
        assert node.CATEGORY == "vrt-lite"


def test_the_better_video_comes_out(pack: Pack, served: Served) -> None:
    circle, star = pack.file(CIRCLE), pack.file(STAR)
    inputs = {"video_1": circle, "video_2": star, "prompt": PROMPT, "both_orders": False, "server": served.url}
    better, verdict, warnings, frames, first, tie, second, winner = pack.run("VrtLiteCompare", **inputs)
    assert better is star
    assert winner == 2
    expected = [line for line in list_verdict(compare(CIRCLE, STAR, prompt=PROMPT)) if "seconds: " not in line]
    told = [line for line in verdict.splitlines() if "seconds: " not in line]
    assert told == [line for line in expected if not line.startswith("warning: ")]
    assert warnings == "Video 1 is flagged: repeated 47 %."
    assert first + tie + second == pytest.approx(1)
    assert frames.shape[0] == 1
    assert frames.shape[1:3] == (4 * 133 + 3 * 4, 4 * 240 + 3 * 4), "two rounds of two videos, four frames each"
    assert 0 <= frames.min() < frames.max() <= 1


def test_five_videos_become_the_best_two(pack: Pack, served: Served, tmp_path: Path) -> None:
    paths = write_five(tmp_path)
    videos = [pack.file(path) for path in paths]
    told: list[tuple[int, int]] = []
    pack.progress.PROGRESS_BAR_HOOK = lambda value, total: told.append((value, total))
    ranked, best, strengths, board, _ = pack.run(
        "VrtLiteRank", videos=videos, prompt=PROMPT, both_orders=False, server=served.url
    )
    assert sorted(ranked, key=videos.index) == videos
    assert best is ranked[0]
    assert strengths == sorted(strengths, reverse=True)
    assert board.startswith(f"1. video {videos.index(best) + 1}  {strengths[0]:+.2f}\n")
    assert told[-1] == (10, 10), "10 pairs of five"
    in_order, scores, _ = pack.run("VrtLiteScore", videos=videos, prompt=PROMPT, both_orders=False, server=served.url)
    assert [in_order[videos.index(video)] for video in ranked] == strengths
    assert scores.startswith(f"video 1  {in_order[0]:+.2f}\n")
    kept, of_kept = pack.run("VrtLiteKeepBest", ranked=ranked, strengths=strengths, best=2)
    assert (kept, of_kept) == (ranked[:2], strengths[:2])
    none, _ = pack.run("VrtLiteKeepBest", ranked=ranked, strengths=strengths, best=2, least=strengths[0] + 1)
    assert none == []


def test_an_interrupt_cancels_the_servers_job(pack: Pack, served: Served, tmp_path: Path) -> None:
    videos = [pack.file(path) for path in write_five(tmp_path)]

    def press(value: int, total: int) -> None:
        if 0 < value < total:
            pack.interrupts.interrupt_current_processing()

    pack.progress.PROGRESS_BAR_HOOK = press
    with pytest.raises(pack.interrupts.InterruptProcessingException):
        pack.run("VrtLiteRank", videos=videos, prompt="A red square.", both_orders=False, server=served.url)
    newest = served.client.get("/v1/jobs").json()["jobs"][0]
    assert served.until(newest["id"], "done", "cancelled")["state"] == "cancelled"


def test_a_server_that_dies_meanwhile_is_one_line(pack: Pack, servers: Callable[..., Served], tmp_path: Path) -> None:
    served = servers()
    videos = [pack.file(path) for path in write_five(tmp_path)]

    def kill(value: int, total: int) -> None:
        if value:
            served.process.kill()

    pack.progress.PROGRESS_BAR_HOOK = kill
    with pytest.raises(RuntimeError, match=r"^vrt-lite: no server answers at .*vrt-lite serve.* is kept\.$") as said:
        pack.run("VrtLiteRank", videos=videos, prompt=PROMPT, both_orders=False, server=served.url)
    assert "\n" not in str(said.value)


def test_what_is_wrong_is_one_line(pack: Pack, served: Served) -> None:
    videos = {"video_1": pack.file(STAR), "video_2": pack.file(CIRCLE)}
    for inputs, says in (
        ({"server": NOBODY}, rf"^vrt-lite: no server answers at {NOBODY} \(.*\)\. Start one with: vrt-lite serve\."),
        ({"server": "over there"}, r"^vrt-lite: no server answers at over there"),
        ({"server": served.url + "nowhere"}, r"^vrt-lite: "),
        ({"server": served.url, "judge": "none"}, r"^vrt-lite: Model 'none' is not here"),
    ):
        with pytest.raises(RuntimeError, match=says) as said:
            pack.run("VrtLiteCompare", **videos, **inputs)
        assert "\n" not in str(said.value)


def test_batches_of_images_are_sent_without_loss(pack: Pack, served: Served) -> None:
    images = read_images(STAR)
    written, name = pack.parts["clips"].read_clip(images, 6.0)
    assert name == "images.mkv"
    assert np.array_equal(read_images(io.BytesIO(written)), images)
    better, *_, winner = pack.run(
        "VrtLiteCompare", video_1=images, video_2=pack.file(CIRCLE), prompt=PROMPT, both_orders=False, server=served.url
    )
    assert winner == 1
    assert better is images


def test_the_menu_has_the_servers_judges(pack: Pack, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack.parts["server"], "DEFAULT_ADDRESS", served.url)
    menu, _ = pack.nodes["VrtLiteRank"].INPUT_TYPES()["required"]["judge"]
    assert menu[0] == "the server's default"
    assert {"vrt-tiny-0", "vrt-tiny-2"} <= set(menu)
    assert "vr-thinker-7b" not in menu
    monkeypatch.setattr(pack.parts["server"], "DEFAULT_ADDRESS", NOBODY)
    pack.parts["server"]._list_judges.cache_clear()
    assert pack.nodes["VrtLiteRank"].INPUT_TYPES()["required"]["judge"][0] == ["the server's default"]


def test_a_folder_is_read_anew_when_it_changes(pack: Pack, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="has no video"):
        pack.run("VrtLiteFolder", folder=str(tmp_path))
    (tmp_path / "notes.txt").write_text("no clip")
    for name in ("b.mp4", "a.MP4"):
        write_clip(tmp_path / name, frames=8, size=(56, 56))
    videos, names = pack.run("VrtLiteFolder", folder=str(tmp_path))
    assert names == ["a.MP4", "b.mp4"]
    assert [Path(video.file).name for video in videos] == names
    before = pack.nodes["VrtLiteFolder"].IS_CHANGED(str(tmp_path))
    assert pack.nodes["VrtLiteFolder"].IS_CHANGED(str(tmp_path)) == before
    (tmp_path / "b.mp4").unlink()
    assert pack.nodes["VrtLiteFolder"].IS_CHANGED(str(tmp_path)) != before


def test_the_example_workflow_names_what_is_there(pack: Pack) -> None:
    """Both forms have the same nodes; each of ours has all its inputs, and takes outputs that its source has."""
    drawn = json.loads((PACK / "example_workflows" / "best_two.json").read_text("utf-8"))
    asked = json.loads((PACK / "best_two_api.json").read_text("utf-8"))
    assert sorted(node["type"] for node in drawn["nodes"]) == sorted(node["class_type"] for node in asked.values())
    assert {"VrtLiteFolder", "VrtLiteRank", "VrtLiteKeepBest"} <= {node["class_type"] for node in asked.values()}
    for node in asked.values():
        if ours := pack.nodes.get(node["class_type"]):
            assert node["inputs"].keys() == ours.INPUT_TYPES()["required"].keys()
        for value in node["inputs"].values():
            if isinstance(value, list) and (source := pack.nodes.get(asked[value[0]]["class_type"])):
                assert value[1] < len(source.RETURN_TYPES)
    by_id = {node["id"]: node for node in drawn["nodes"]}
    for link, source, slot, target, place, _ in drawn["links"]:
        assert link in by_id[source]["outputs"][slot]["links"]
        assert by_id[target]["inputs"][place]["link"] == link


def test_the_registrys_fields_are_there() -> None:
    told = tomllib.loads((PACK / "pyproject.toml").read_text("utf-8"))
    own = tomllib.loads((PACK.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert {key: told["project"][key] for key in ("name", "version")} == {key: own[key] for key in ("name", "version")}
    assert told["project"].keys() >= {"description", "license", "dependencies", "urls"}
    assert told["tool"]["comfy"].keys() >= {"PublisherId", "DisplayName", "Icon", "requires-comfyui"}


def test_the_token_is_sent(pack: Pack, servers: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRT_LITE_TOKEN", "a-long-enough-token-of-our-own")
    served = servers("--host", "0.0.0.0")
    address = httpx.URL(served.url).copy_with(host="127.0.0.1", query=None)
    inputs = {"video_1": pack.file(STAR), "video_2": pack.file(CIRCLE), "both_orders": False, "server": str(address)}
    assert pack.run("VrtLiteCompare", **inputs, prompt=PROMPT)[-1] == 1
    monkeypatch.delenv("VRT_LITE_TOKEN")
    with pytest.raises(RuntimeError, match=r"^vrt-lite: .*token"):
        pack.run("VrtLiteCompare", **inputs, prompt=PROMPT)
