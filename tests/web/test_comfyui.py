"""The pack for ComfyUI against a real `vrt-lite serve`: beside a stand-in of ComfyUI's modules, and in ComfyUI itself.

ComfyUI's own loader, check of a workflow and executor need torch and packages of its own. They run in an environment
that has them: VRT_LITE_COMFYUI=~/ComfyUI python -m pytest tests/web/test_comfyui.py
"""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from clips import write_clip
from web.comfyui_pack import PACK, Pack, load_pack
from web.conftest import CIRCLE, PROMPT, ROOT, STAR, Served, Servers

from vrt_lite import compare
from vrt_lite.show.pair_words import list_verdict

NOBODY = "http://127.0.0.1:9"
COMFYUI = os.environ.get("VRT_LITE_COMFYUI", "")


@pytest.fixture
def pack() -> Iterator[Pack]:
    with load_pack() as loaded:
        yield loaded


def write_clips(folder: Path, count: int) -> list[Path]:
    return [write_clip(folder / f"{n}.mp4", frames=8 + n, size=(56, 56)) for n in range(count)]


def test_the_nodes_are_as_comfyui_asks_for_them(pack: Pack) -> None:
    for node in pack.nodes.values():
        required = node.INPUT_TYPES()["required"]
        assert all(isinstance(spec, tuple) and isinstance(spec[0], str | list) for spec in required.values())
        assert list(inspect.signature(getattr(node, node.FUNCTION)).parameters)[1:] == list(required)
        assert len(node.RETURN_TYPES) == len(node.RETURN_NAMES)
        assert len(getattr(node, "OUTPUT_IS_LIST", node.RETURN_TYPES)) == len(node.RETURN_TYPES)
        assert node.CATEGORY == "vrt-lite"


def test_the_better_video_comes_out(pack: Pack, served: Served) -> None:
    videos = {"video_1": pack.file(CIRCLE), "video_2": pack.file(STAR)}
    inputs = {**videos, "prompt": PROMPT, "both_orders": False, "server": served.url}
    better, verdict, warnings, frames, first, tie, second, winner = pack.run("VrtLiteCompare", **inputs)
    assert (better, winner) == (videos["video_2"], 2)
    expected = [line for line in list_verdict(compare(CIRCLE, STAR, prompt=PROMPT)) if "seconds: " not in line]
    told = [line for line in verdict.splitlines() if "seconds: " not in line]
    assert told == [line for line in expected if not line.startswith("warning: ")]
    assert warnings == "Video 1 is flagged: repeated 47 %."
    assert first + tie + second == pytest.approx(1)
    assert frames.shape[0] == 1
    assert frames.shape[1:3] == (4 * 133 + 3 * 4, 4 * 240 + 3 * 4), "two rounds of two videos, four frames each"
    assert 0 <= frames.min() < frames.max() <= 1


def test_batches_of_images_are_sent_without_loss(pack: Pack, served: Served) -> None:
    def read_images(path: str | io.BytesIO) -> Any:
        with av.open(path) as file:
            frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
        return np.stack(frames).astype(np.float32) / 255

    images = read_images(STAR)
    written, name = pack.parts["clips"].read_clip(images, 6.0)
    assert name == "images.mkv"
    assert np.array_equal(read_images(io.BytesIO(written)), images)
    inputs = {"video_1": images, "video_2": pack.file(CIRCLE), "both_orders": False, "server": served.url}
    better, *_, winner = pack.run("VrtLiteCompare", **inputs, prompt=PROMPT)
    assert winner == 1
    assert better is images


def test_four_videos_become_the_best_two(pack: Pack, served: Served, tmp_path: Path) -> None:
    videos = [pack.file(path) for path in write_clips(tmp_path, 4)]
    inputs = {"videos": videos, "prompt": PROMPT, "both_orders": False, "server": served.url}
    told: list[tuple[int, int]] = []
    pack.progress.PROGRESS_BAR_HOOK = lambda value, total: told.append((value, total))
    ranked, best, strengths, board, _ = pack.run("VrtLiteRank", **inputs)
    assert sorted(ranked, key=videos.index) == videos
    assert best is ranked[0]
    assert strengths == sorted(strengths, reverse=True)
    assert board.startswith(f"1. video {videos.index(best) + 1}  {strengths[0]:+.2f}\n")
    assert told[-1] == (6, 6), "6 pairs of four"
    in_order, scores, _ = pack.run("VrtLiteScore", **inputs)
    assert [in_order[videos.index(video)] for video in ranked] == strengths
    assert scores.startswith(f"video 1  {in_order[0]:+.2f}\n")
    kept = pack.run("VrtLiteKeepBest", ranked=ranked, strengths=strengths, best=2)
    assert kept == (ranked[:2], strengths[:2])
    none, _ = pack.run("VrtLiteKeepBest", ranked=ranked, strengths=strengths, best=2, least=strengths[0] + 1)
    assert none == []


def test_an_interrupt_cancels_the_servers_job(pack: Pack, served: Served, tmp_path: Path) -> None:
    videos = [pack.file(path) for path in write_clips(tmp_path, 5)]

    def press(value: int, total: int) -> None:
        if 0 < value < total:
            pack.interrupts.interrupt_current_processing()

    pack.progress.PROGRESS_BAR_HOOK = press
    with pytest.raises(pack.interrupts.InterruptProcessingException):
        pack.run("VrtLiteRank", videos=videos, prompt="A red square.", both_orders=False, server=served.url)
    newest = served.client.get("/v1/jobs").json()["jobs"][0]
    assert served.until(newest["id"])["state"] == "cancelled"


def test_the_token_is_sent_and_a_server_that_dies_meanwhile_is_one_line(
    pack: Pack, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRT_LITE_TOKEN", "a-long-enough-token-of-our-own")
    served = servers("--host", "0.0.0.0")
    inputs = {"video_1": pack.file(STAR), "video_2": pack.file(CIRCLE), "both_orders": False, "prompt": PROMPT}
    inputs["server"] = str(httpx.URL(served.url).copy_with(host="127.0.0.1", query=None))
    assert pack.run("VrtLiteCompare", **inputs)[-1] == 1
    with monkeypatch.context() as without, pytest.raises(RuntimeError, match=r"^vrt-lite: .*token"):
        without.delenv("VRT_LITE_TOKEN")
        pack.run("VrtLiteCompare", **inputs)
    videos = [pack.file(path) for path in write_clips(tmp_path, 5)]

    def kill(value: int, total: int) -> None:
        if value:
            served.process.kill()

    pack.progress.PROGRESS_BAR_HOOK = kill
    with pytest.raises(RuntimeError, match=r"^vrt-lite: no server answers at .*vrt-lite serve.* is kept\.$") as said:
        pack.run("VrtLiteRank", videos=videos, prompt="Dies.", both_orders=False, server=inputs["server"])
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
    for name in ("notes.txt", "b.mp4", "a.MP4"):
        (tmp_path / name).touch()
    videos, names = pack.run("VrtLiteFolder", folder=str(tmp_path))
    assert names == [Path(video.file).name for video in videos] == ["a.MP4", "b.mp4"]
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
    own = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {key: told["project"][key] for key in ("name", "version")} == {key: own[key] for key in ("name", "version")}
    assert told["project"].keys() >= {"description", "license", "dependencies", "urls"}
    assert told["tool"]["comfy"].keys() >= {"PublisherId", "DisplayName", "Icon", "requires-comfyui"}


@pytest.mark.skipif(not COMFYUI, reason="VRT_LITE_COMFYUI names no checkout of ComfyUI")
@pytest.mark.parametrize(
    ("when", "ends"), [("", "execution_success"), ("interrupt", "execution_interrupted"), ("kill", "execution_error")]
)
def test_comfyui_itself_runs_the_example_workflow(servers: Servers, tmp_path: Path, when: str, ends: str) -> None:
    """On eight clips; at the first progress it is interrupted, or the server is killed."""
    served = servers()
    (tmp_path / "renders").mkdir()
    write_clips(tmp_path / "renders", 8)
    workflow = json.loads((PACK / "best_two_api.json").read_text("utf-8"))
    workflow["1"]["inputs"]["folder"] = str(tmp_path / "renders")
    workflow["2"]["inputs"] |= {"server": served.url, "both_orders": False}
    (tmp_path / "workflow.json").write_text(json.dumps(workflow), "utf-8")
    worker = Path(__file__).with_name("comfyui_worker.py")
    command = [sys.executable, str(worker), str(PACK), str(tmp_path), when, str(served.process.pid)]
    surroundings = {"cwd": COMFYUI, "env": os.environ | {"VRT_LITE_SERVER": served.url}, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **surroundings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["loaded"] == ["VrtLiteCompare", "VrtLiteFolder", "VrtLiteKeepBest", "VrtLiteRank", "VrtLiteScore"]
    assert told["valid"], told
    assert told["display"] == "vrt-lite"
    assert {"vrt-tiny-0", "vrt-tiny-2"} <= set(told["menu"])
    assert told["messages"][-1] == ends, told
    if when == "interrupt":
        newest = served.client.get("/v1/jobs").json()["jobs"][0]
        assert served.until(newest["id"])["state"] == "cancelled"
    elif when == "kill":
        assert told["error"].startswith("vrt-lite: no server answers at ")
        assert "\n" not in told["error"].strip()
    else:
        assert len(told["saved"]) == 2
        assert told["shown"].startswith("1. video ")
        assert [28, 28] in told["progress"]
