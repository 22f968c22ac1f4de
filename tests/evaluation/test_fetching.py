"""Sets by name from a hub on loopback: fetched only when asked to, resumed, checked, never outside the folder."""

from __future__ import annotations

import inspect
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serving
from huggingface_hub import hf_hub_download
from pull_commands import isolate_client

from vrt_lite.cli import run
from vrt_lite.errors import ModelError
from vrt_lite.evaluation.fetching import fetch_named_clips, fetch_set, set_folder
from vrt_lite.evaluation.sets import Layout, layouts_of, locate_set, read_set
from vrt_lite.models.hub import Transfer

SETS = Path(__file__).parent / "sets"
CLIP = os.urandom(3 * 2**20)
VIDEOGEN = layouts_of("videogen-rewardbench")[0]


@pytest.fixture(autouse=True)
def quiet_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_client(tmp_path / "hf", monkeypatch)


def archive(*members: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for member in members:
            packed.writestr(member, CLIP)
    return made.getvalue()


def served(monkeypatch: pytest.MonkeyPatch, repository: str, files: dict[str, bytes]) -> Iterator[Hub]:
    with serving(Hub(files, repository=repository, kind="dataset")) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def videogen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {
        "videogen-rewardbench.csv": (SETS / "videogen-rewardbench" / "videogen-rewardbench.csv").read_bytes(),
        "videos.zip": archive("videos/one/v1a.mp4", "videos/other/v1b.mp4"),
        "other.bin": b"not chosen",
    }
    yield from served(monkeypatch, "KlingTeam/VideoGen-RewardBench", files)


class Lines(list[str], Transfer):
    """What is said."""

    say = list[str].append


def fetch(chosen: Layout = VIDEOGEN) -> tuple[Path, list[str]]:
    """The folder of a set that is fetched, and what is reported."""
    lines = Lines()
    return fetch_set(chosen, progress=lines), lines


def test_a_set_is_fetched_unpacked_and_not_fetched_again(videogen: Hub) -> None:
    folder, lines = fetch()
    assert folder == set_folder("videogen-rewardbench")
    assert (folder / "videos" / "one" / "v1a.mp4").read_bytes() == CLIP
    table, videos, mark = sorted(path.name for path in folder.iterdir())
    assert (table, videos) == ("videogen-rewardbench.csv", "videos") and mark.endswith(".unpacked")
    assert len(read_set(locate_set(folder)).pairs) == 5
    assert any("KlingTeam/VideoGen-RewardBench at 5037fcf163dd, licence mit" in line for line in lines)
    asked = len(videogen.ranges)
    fetch()
    assert len(videogen.ranges) == asked
    videogen.status = 503
    assert "is here already" in fetch()[1][-1]


@pytest.mark.skipif(
    "tqdm_class" not in inspect.signature(hf_hub_download).parameters,
    reason="the client goes on in one call from its release 1 on",
)
def test_a_cut_connection_is_resumed(videogen: Hub) -> None:
    videogen.cuts["videos.zip"] = [4 * 2**20]
    folder, _ = fetch()
    assert [name for name, _ in videogen.ranges].count("videos.zip") == 2
    assert (folder / "videos" / "other" / "v1b.mp4").read_bytes() == CLIP


def test_what_arrives_damaged_is_refused(videogen: Hub) -> None:
    videogen.flips["videos.zip"] = 1
    with pytest.raises(ModelError, match="arrived damaged"):
        fetch()
    assert not list(set_folder("videogen-rewardbench").rglob("*.mp4"))
    assert (fetch()[0] / "videos" / "one" / "v1a.mp4").is_file()


@pytest.mark.parametrize(
    "member", ["../outside.mp4", "videos/../../outside.mp4", "/outside.mp4", "videos\\..\\..\\outside.mp4"]
)
def test_an_archive_that_leaves_the_folder_is_refused(
    videogen: Hub, tmp_path: Path, own_home: Path, member: str
) -> None:
    videogen.files["videos.zip"] = archive("videos/one/v1a.mp4", member)
    with pytest.raises(ModelError, match="no path inside a folder"):
        fetch()
    assert not [*tmp_path.rglob("*outside.mp4"), *own_home.rglob("*outside.mp4"), *Path("/").glob("outside.mp4")]


def test_an_archive_that_is_none_and_a_hub_that_is_none_are_refused(videogen: Hub) -> None:
    videogen.files["videos.zip"] = b"PK no"
    with pytest.raises(ModelError, match="cannot be unpacked"):
        fetch()
    (set_folder("videogen-rewardbench") / "videogen-rewardbench.csv").unlink()
    videogen.status = 503
    with pytest.raises(ModelError, match="503"):
        fetch()


def test_the_command_fetches_only_when_asked_to(
    videogen: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "videogen-rewardbench", "--store", str(tmp_path / "s"), "--budget", "0", "--json"]
    assert run(command) == 2
    assert "fetch it (13.4 GB): vrt-lite eval videogen-rewardbench --pull" in capfd.readouterr().err
    assert videogen.ranges == []
    assert run([*command, "--pull", "-q"]) == 0
    assert len(videogen.ranges) == 2
    assert capfd.readouterr().err == "", "nor does the client show anything"
    assert run(command) == 0
    assert json.loads(capfd.readouterr().out)["set"] == "videogen-rewardbench"
    assert len(videogen.ranges) == 2


def test_mj_bench_video_brings_every_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (SETS / "mj-bench-video" / "test.json").read_bytes()
    files = {"test.json": table, "train.json": b"[]", "videos/test/0_0.mp4": b"clip"}
    for _ in served(monkeypatch, "MJ-Bench/MJ-BENCH-VIDEO", files):
        folder, _ = fetch(layouts_of("mj-bench-video")[0])
        kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
        assert kept == {"test.json", "videos/test/0_0.mp4"}


@pytest.mark.parametrize(("split", "pairs"), [(None, 6), ("test", 5)])
def test_genai_bench_brings_a_split_and_the_clips_that_its_table_names(
    monkeypatch: pytest.MonkeyPatch, split: str | None, pairs: int
) -> None:
    """The tables are of one repository and the clips of another; each has its own server here."""
    from pyarrow import Table, parquet

    tables: dict[str, bytes] = {}
    for path in (SETS / "genai-bench" / "video_generation").iterdir():
        made = io.BytesIO()
        parquet.write_table(Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()]), made)
        tables[f"video_generation/{path.stem}.parquet"] = made.getvalue()
    chosen, folder = layouts_of("genai-bench", split)[0], set_folder("genai-bench")
    for _ in served(monkeypatch, "TIGER-Lab/GenAI-Bench", tables):
        with pytest.raises(ModelError, match="genai-arena-video-mp4"):
            fetch(chosen)
    assert [path.name for path in folder.rglob("*.parquet")] == [f"{chosen.split}-00000-of-00001.parquet"]
    assert len(read_set(locate_set(folder)).pairs) == pairs
    lines = Lines()
    clips = {f"dir/g{n}{side}.mp4": f"{n}{side}".encode() for n in range(1, 7) for side in "ab" if n != 4}
    for hub in served(monkeypatch, "tianleliphoebe/genai-arena-video-mp4", clips):
        fetch_named_clips(chosen, folder, progress=lines)
        assert len(hub.ranges) == 2 * pairs - 2
    assert (folder / "videos" / "dir" / "g5b.mp4").read_bytes() == b"5b"
    assert "2 clip(s) are not in" in lines[-1]
