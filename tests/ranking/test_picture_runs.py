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
from brightness import Brightness, judge_of, names, unwatched
from chat_server import says, serving
from judgements import FINAL
from PIL import Image
from reports import Report

from convert.clip_pairs import read_pairs
from vrt_lite.api import Judge
from vrt_lite.backends.scripted import ScriptedBackend
from vrt_lite.cli import run
from vrt_lite.clip_files import digest_clip
from vrt_lite.errors import UsageError
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.evaluate import PairSelection, evaluate
from vrt_lite.evaluation.sets import locate_set, read_set
from vrt_lite.ranking.entries import read_entries
from vrt_lite.ranking.rank import rank_clips
from vrt_lite.ranking.winners import copy_winners
from vrt_lite.records.ladders import Ranking
from vrt_lite.runs.store import Store
from vrt_lite.show.run_views import EvaluationView
from vrt_lite.show.screen import Screen
from vrt_lite.video import open_clip
from vrt_lite.viewer import write_report

SIZE = (56, 56)


def greys(grey: int, count: int = 12) -> list[Image.Image]:
    """Pictures of one grey each; the last ones differ a little, or a writer would join them."""
    return [Image.new("RGB", SIZE, (grey + number // 2,) * 3) for number in range(count)]


def write_forms(folder: Path) -> dict[str, Path]:
    """A clip of each form, the GIF the darkest."""
    folder.mkdir()
    gif, webp, pictures = folder / "dark.gif", folder / "grey.webp", folder / "bright"
    dark, grey = greys(40), greys(110)
    dark[0].save(gif, save_all=True, append_images=dark[1:], duration=100)
    grey[0].save(webp, save_all=True, append_images=grey[1:], duration=100, lossless=True)
    pictures.mkdir()
    for number, image in enumerate(greys(200)):
        image.save(pictures / f"{number:03d}.png")
    return {"gif": gif, "webp": webp, "pictures": pictures / "%03d.png@8"}


def ranked(arguments: list[str], store: Store) -> Ranking:
    with judge_of(Brightness()) as judge:
        return rank_clips(read_entries(arguments, prompt="x"), store=store, judge=judge, watcher=unwatched())


def test_all_forms_are_ranked_together_and_copied(tmp_path: Path) -> None:
    forms = write_forms(tmp_path / "renders")
    with Store(tmp_path / "runs.sqlite") as store:
        ranking = ranked([str(path) for path in forms.values()], store)
        [ladder] = ranking.ladders
        assert names(ladder) == ("bright/%03d.png@8", "grey.webp", "dark.gif")
        assert ranked([str(path) for path in forms.values()], store).found == 6, "nothing is judged twice"
        assert ranked([str(tmp_path / "renders" / "bright@8"), str(forms["gif"])], store).found == 0
    best = [ladder.clips[standing.clip] for standing in ladder.standings]
    for _ in range(2):
        copies = copy_winners([("", best)], tmp_path / "best")
        assert [copy.name for copy in copies] == ["01-bright", "02-grey.webp", "03-dark.gif"]
    assert digest_clip(Path(f"{copies[0]}@8")) == best[0].sha256
    assert not [path for path in (tmp_path / "best").iterdir() if path.name.startswith(".")]
    (copies[0] / "005.png").write_bytes((copies[0] / "006.png").read_bytes())
    with pytest.raises(UsageError, match="is there already and is another file"):
        copy_winners([("", best)], tmp_path / "best")
    (tmp_path / "renders" / "bright" / "005.png").unlink()
    with pytest.raises(UsageError, match=r"cannot be copied|has changed since"):
        copy_winners([("", best[:1])], tmp_path / "more")
    assert not list((tmp_path / "more").iterdir())


def test_the_command_says_what_a_folder_holds_beside_its_clips(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_forms(tmp_path / "renders")["gif"].parent
    (folder / "notes.txt").touch()
    (folder / "grey.webp").unlink()
    assert run(["rank", str(folder), "--model", "vrt-tiny-0", "--store", str(tmp_path / "s")]) == 2
    err = capfd.readouterr().err
    pattern = folder / "bright" / "%03d.png"
    said = f"{folder}: 2 left out: bright is a folder of 12 numbered pictures (give {pattern}); notes.txt is no clip."
    assert err.splitlines()[0] == said


def test_a_table_may_name_every_form(tmp_path: Path) -> None:
    forms = write_forms(tmp_path / "renders")
    rows = [
        "a,b,prompt,overall",
        "renders/dark.gif,renders/grey.webp,x,B",
        "renders/bright/%03d.png@8,renders/dark.gif,x,A",
    ]
    (tmp_path / "pairs.csv").write_text("\n".join([*rows, "renders/bright,renders/gone_%d.png,x,A"]), "utf-8")
    found = read_set(locate_set(tmp_path / "pairs.csv"))
    verdicts = [f"<final answer>TA=0, VQ=0, MQ=0, OA={winner}</final answer>" for winner in (2, 1)]
    view = EvaluationView(Screen(io.StringIO(), quiet=True), total=3)
    with Store(tmp_path / "runs.sqlite") as store, Judge(backend=ScriptedBackend(verdicts)) as judge, view:
        figures = evaluate(found, PairSelection(), store=store, judge=judge, watcher=view).figures.to_json()
    assert (figures["pairs"]["judged"], figures["pairs"]["failed"]) == (2, 1)
    clips = Clips(tmp_path)
    assert clips.find("renders/bright/%03d.png") == tmp_path / "renders" / "bright" / "%03d.png"
    assert clips.find("renders/bright@8") == tmp_path / "renders" / "bright@8"
    assert "is not in" in str(clips.find("renders/none/%03d.png"))
    (tmp_path / "list.csv").write_text("a,b,caption\nrenders/dark.gif,renders/bright/%03d.png@8,x\n", "utf-8")
    assert read_pairs(tmp_path / "list.csv")[0].b == forms["pictures"]


def test_a_report_shows_an_animation_and_says_why_pictures_do_not_play(tmp_path: Path) -> None:
    forms = write_forms(tmp_path / "renders")
    with Judge(backend=ScriptedBackend([FINAL])) as judge:
        judgement = judge.compare(forms["gif"], tmp_path / "renders" / "bright@8", prompt="x")
    assert judgement.inputs[1].path == str(forms["pictures"])
    write_report(judgement.to_json(), tmp_path / "report.html")
    page = Report(tmp_path / "report.html")
    animation, pictures = (page.media[clip.sha256] for clip in judgement.inputs)
    assert (animation["form"], animation["address"]) == ("animation", "./renders/dark.gif")
    assert pictures["form"] == "pictures"
    assert len(page.pictures) == 8, "the frames of both are found again and drawn"


def test_copies_in_a_report_play_whatever_the_form(tmp_path: Path) -> None:
    forms = write_forms(tmp_path / "renders")
    with Judge(backend=ScriptedBackend([FINAL])) as judge:
        judgement = judge.compare(forms["gif"], forms["pictures"], prompt="x")
    write_report(judgement, tmp_path / "report.html", embed=lambda _: None)
    page = Report(tmp_path / "report.html")
    assert len(page.copies) == 2
    assert [page.media[clip.sha256]["form"] for clip in judgement.inputs] == ["video"] * 2


def test_a_server_gets_every_form_as_a_lossless_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    forms = write_forms(tmp_path / "renders")
    shown = (str(forms["webp"]), str(forms["pictures"]))
    with serving(says(FINAL), extra={"/version": {"version": "0.33.0"}}) as server:
        assert run(["compare", *shown, "--backend", server.url, "-p", "x", "--json"]) == 0
    judgement: Any = json.loads(capfd.readouterr().out)
    parts = [part for part in server.bodies[0]["messages"][1]["content"] if part["type"] == "video_url"]
    assert len(parts) == 2
    for number, (part, path) in enumerate(zip(parts, shown, strict=True), start=1):
        data = base64.b64decode(part["video_url"]["url"].removeprefix("data:video/mp4;base64,"), validate=True)
        with av.open(io.BytesIO(data)) as container:
            sent = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        frames = [frame for frame in judgement["orders"][0]["rounds"][0]["frames"] if frame["video"] == number]
        with open_clip(Path(path)) as clip:
            pixels = clip.frames({frame["source_frame"] for frame in frames}, size=sent[0].shape[1::-1])
        for rgb, frame in zip(sent, frames, strict=True):
            assert np.array_equal(rgb, pixels[frame["source_frame"]])
