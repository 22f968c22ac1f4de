"""Animated and numbered pictures beyond one comparison: ranked, copied, evaluated, reported, and sent to a server."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from brightness import Brightness, group, names, ranked
from chat_server import says, serving
from judgements import FINAL
from PIL import Image
from reports import Report

from convert.clip_pairs import read_pairs
from vrt_lite import Judge, ScriptedBackend, Store, UsageError, evaluate
from vrt_lite.cli import run
from vrt_lite.clip_files import find_files
from vrt_lite.evaluation.clips import Clips
from vrt_lite.ranking.winners import copy_winners
from vrt_lite.video import open_clip
from vrt_lite.viewer import write_report


def greys(grey: int) -> list[Image.Image]:
    """Pictures of one grey each; the last ones differ a little, or a writer would join them."""
    return [Image.new("RGB", (56, 56), (grey + number // 2,) * 3) for number in range(12)]


@pytest.fixture
def renders(tmp_path: Path) -> Path:
    """A folder with a clip of each form, the GIF the darkest."""
    folder, dark, grey = tmp_path / "renders", greys(40), greys(110)
    (folder / "bright").mkdir(parents=True)
    dark[0].save(folder / "dark.gif", save_all=True, append_images=dark[1:], duration=100)
    grey[0].save(folder / "grey.webp", save_all=True, append_images=grey[1:], duration=100, lossless=True)
    for number, image in enumerate(greys(200)):
        image.save(folder / "bright" / f"{number:03d}.png")
    return folder


@pytest.fixture
def forms(renders: Path) -> list[Path]:
    return [renders / "dark.gif", renders / "grey.webp", renders / "bright" / "%03d.png@8"]


def test_all_forms_are_ranked_together_and_copied(forms: list[Path], renders: Path, tmp_path: Path) -> None:
    with Store() as store:
        [ladder] = ranked(store, Brightness(), group(forms)).ladders
        assert names(ladder) == ("bright/%03d.png@8", "grey.webp", "dark.gif")
        assert ranked(store, Brightness(), group(forms)).found == 6, "nothing is judged twice"
        assert ranked(store, Brightness(), group([renders / "bright@8", forms[0]])).found == 0
    for _ in range(2):
        copies = copy_winners([("", ladder.ranked)], tmp_path / "best")
        assert [copy.name for copy in copies] == ["01-bright", "02-grey.webp", "03-dark.gif"]
    assert find_files(Path(f"{copies[0]}@8")).digest() == ladder.ranked[0].sha256
    assert not [path for path in (tmp_path / "best").iterdir() if path.name.startswith(".")]
    (copies[0] / "005.png").write_bytes((copies[0] / "006.png").read_bytes())
    with pytest.raises(UsageError, match="is there already and is another file"):
        copy_winners([("", ladder.ranked)], tmp_path / "best")
    (renders / "bright" / "005.png").unlink()
    with pytest.raises(UsageError, match=r"cannot be copied|has changed since"):
        copy_winners([("", ladder.ranked[:1])], tmp_path / "more")
    assert not list((tmp_path / "more").iterdir())


def test_the_command_says_what_a_folder_holds_beside_its_clips(
    renders: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (renders / "notes.txt").touch()
    (renders / "grey.webp").unlink()
    assert run(["rank", str(renders), "--model", "vrt-tiny-0"]) == 2
    said = "2 left out: bright, notes.txt. --recursive takes the videos of its folders."
    assert capfd.readouterr().err.splitlines()[0] == f"{renders}: {said}"


def test_a_table_may_name_every_form(forms: list[Path], renders: Path, tmp_path: Path) -> None:
    rows = [
        "a,b,prompt,overall",
        "renders/dark.gif,renders/grey.webp,x,B",
        "renders/bright/%03d.png@8,renders/dark.gif,x,A",
        "renders/bright,renders/gone_%d.png,x,A",
    ]
    (tmp_path / "pairs.csv").write_text("\n".join(rows), "utf-8")
    backend = ScriptedBackend([f"<final answer>TA=0, VQ=0, MQ=0, OA={winner}</final answer>" for winner in (2, 1)])
    pairs = evaluate(tmp_path / "pairs.csv", backend=backend).figures.pairs
    assert (pairs.judged, pairs.failed) == (2, 1)
    clips = Clips(tmp_path)
    assert clips.find("renders/bright/%03d.png") == renders / "bright" / "%03d.png"
    assert clips.find("renders/bright@8") == renders / "bright@8"
    assert "is not in" in str(clips.find("renders/none/%03d.png"))
    (tmp_path / "list.csv").write_text("a,b,caption\nrenders/dark.gif,renders/bright/%03d.png@8,x\n", "utf-8")
    assert read_pairs(tmp_path / "list.csv")[0].b == forms[2]


def test_a_report_shows_an_animation_and_copies_play_whatever_the_form(
    forms: list[Path], renders: Path, tmp_path: Path
) -> None:
    with Judge(backend=ScriptedBackend([FINAL])) as judge:
        judgement = judge.compare(forms[0], renders / "bright@8", prompt="x")
    assert judgement.inputs[1].path == str(forms[2])
    write_report(judgement.to_json(), tmp_path / "report.html")
    page = Report(tmp_path / "report.html")
    animation, pictures = (page.media[clip.sha256] for clip in judgement.inputs)
    assert (animation["address"], pictures["address"]) == ("./renders/dark.gif", "./renders/bright/%2503d.png%408")
    assert len(page.pictures) == 8, "the frames of both are found again and drawn"
    write_report(judgement, tmp_path / "copies.html", embed=lambda _: None)
    page = Report(tmp_path / "copies.html")
    assert len(page.copies) == 2
    assert [page.media[clip.sha256]["address"][:1] for clip in judgement.inputs] == ["#"] * 2


def test_a_server_gets_every_form_as_a_lossless_file(capfd: pytest.CaptureFixture[str], forms: list[Path]) -> None:
    with serving(says(FINAL), extra={"/version": {"version": "0.33.0"}}) as server:
        assert run(["compare", *map(str, forms[1:]), "--backend", server.url, "-p", "x", "--json"]) == 0
    judgement: Any = json.loads(capfd.readouterr().out)
    parts = [part for part in server.bodies[0]["messages"][1]["content"] if part["type"] == "video_url"]
    for number, (part, path) in enumerate(zip(parts, forms[1:], strict=True), start=1):
        data = base64.b64decode(part["video_url"]["url"].removeprefix("data:video/mp4;base64,"), validate=True)
        with av.open(io.BytesIO(data)) as container:
            sent = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        frames = [frame for frame in judgement["orders"][0]["rounds"][0]["frames"] if frame["video"] == number]
        with open_clip(path) as clip:
            pixels = clip.frames({frame["source_frame"] for frame in frames}, size=sent[0].shape[1::-1])
        for rgb, frame in zip(sent, frames, strict=True):
            assert np.array_equal(rgb, pixels[frame["source_frame"]])
