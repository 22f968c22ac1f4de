"""Pulling a model with the real huggingface_hub client, from a hub on loopback that misbehaves in each known way."""

from __future__ import annotations

import inspect
import json
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serving
from huggingface_hub import hf_hub_download
from pull_commands import child, command, isolate_client, refused
from split_gguf import split

from vrt_lite.errors import ModelError
from vrt_lite.models import BUNDLED, bundled_names, find, library
from vrt_lite.models.gguf import quant_of
from vrt_lite.models.hub import HubFile, Listing
from vrt_lite.models.library import recipes
from vrt_lite.models.quants import CONTEXT_BYTES
from vrt_lite.pulling import parse_reference, select_files

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
TEXT, PROJECTOR = JUDGE.text.name, JUDGE.projector.name
CLIPS = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
REPO = "someone/judge-GGUF"
PROFILE = (JUDGE.text.parent / "profile.toml").read_text(encoding="utf-8")
TELLING = pytest.mark.skipif(
    "tqdm_class" not in inspect.signature(hf_hub_download).parameters,
    reason="the client goes on in one call, and tells how far it is, from its release 1 on",
)


@pytest.fixture(autouse=True)
def home(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate_client(tmp_path / "hf", monkeypatch)
    return own_home


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {TEXT: JUDGE.text.read_bytes(), PROJECTOR: JUDGE.projector.read_bytes()}
    with serving(Hub(files)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def pulled(capfd: pytest.CaptureFixture[str], reference: str = REPO) -> str:
    """Pull, which must succeed; its messages."""
    status, out, err = command(capfd, "pull", reference)
    assert status == 0, err
    assert_whole(Path(out.strip()))
    return err


def assert_whole(folder: Path) -> None:
    assert (folder / TEXT).read_bytes() == JUDGE.text.read_bytes()
    assert (folder / PROJECTOR).read_bytes() == JUDGE.projector.read_bytes()
    assert not [path for path in folder.iterdir() if path.is_symlink()]
    assert {path.name for path in folder.iterdir()} <= {TEXT, PROJECTOR, "manifest.json", "profile.toml"}


def test_a_pulled_model_judges_by_its_name(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    messages = pulled(capfd)
    assert f"{REPO} at {hub.commit[:12]}, Q8_0, 12.8 MB" in messages
    assert "licence: mit" in messages
    assert messages.count("sha256 checked") == 2
    [model] = library.stored_models()
    assert (model.manifest.revision, model.manifest.quant, model.damage) == (hub.commit, "Q8_0", "")
    assert not list(home.glob("partial/*"))
    (model.folder / "profile.toml").write_text(PROFILE, encoding="utf-8")
    status, out, _ = command(
        capfd, "compare", *CLIPS, "--prompt", "A red square moving right.", "-m", REPO, "--json", "--threads", "1"
    )
    assert status == 0
    assert json.loads(out)["verdict"]["overall"]["winner"] == 1
    assert find(f"{REPO}:q8_0").text == model.folder / TEXT


def test_models_lists_and_rm_deletes(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pulled(capfd)
    _, out, _ = command(capfd, "models")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert "bundled" in rows[BUNDLED]
    assert "yes" in rows[BUNDLED]
    assert re.search(r"here +Q8_0 +0\.01 GB +~\S+ GB +- .* no +mit", rows[REPO])
    assert "non-commercial" in rows["qwen2.5-vl-3b"]
    assert "Apache-2.0" in rows["qwen2.5-vl-7b"]
    assert re.search("can be pulled.*MIT", rows["vr-thinker-7b"])
    assert not {"\t", "\x1b"} & set(out)
    _, out, _ = command(capfd, "models", "--json")
    entry = next(e for e in json.loads(out) if e["name"] == REPO)
    assert (
        entry["memory_bytes"] > entry["disk_bytes"] == len(JUDGE.text.read_bytes()) + len(JUDGE.projector.read_bytes())
    )
    assert command(capfd, "rm", REPO)[:2] == (0, f"{REPO} is deleted, 12.8 MB\n")
    assert library.stored_models() == []
    assert not list(home.rglob("*.gguf"))
    refused(capfd, "is not here", "rm", REPO)
    refused(capfd, "comes with vrt-lite", "rm", BUNDLED)
    refused(capfd, "is not here", "rm", "../models")


@TELLING
def test_a_cut_connection_is_resumed(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    """Cut at once, on a chunk's edge, and one byte before the end, in one pull."""
    hub.cuts[TEXT] = [0, 3 * 2**20, len(hub.files[TEXT]) - 1]
    assert "arrived damaged" not in pulled(capfd)
    assert [name for name, _ in hub.ranges].count(TEXT) == 4


def test_the_next_pull_keeps_what_has_arrived_whole(hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = library.partial_folder(REPO)
    (folder / ".arriving").mkdir(parents=True)
    (folder / PROJECTOR).write_bytes(hub.files[PROJECTOR])
    (folder / ".arriving" / "killed.incomplete").write_bytes(bytes(1_000_000))
    (folder / "left-by-another-quant.gguf").write_bytes(b"x")
    held = len(hub.files[PROJECTOR]) + 1_000_001
    assert library.partial_bytes(REPO) == held
    assert f"{REPO}: {held / 1e6:.1f} MB have arrived. Go on: vrt-lite pull {REPO}" in command(capfd, "models")[2]
    pulled(capfd)
    assert hub.ranges == [(TEXT, 0)]
    assert not list(home.rglob("*.incomplete"))


def test_a_published_profile_comes_along_and_is_named(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    assert f"profile: VR-Thinker's, as {REPO} has none" in pulled(capfd)
    hub.files["profile.toml"] = PROFILE.encode()
    hub.small, hub.commit = {"profile.toml"}, "1" * 40
    assert "profile: the repository's own" in pulled(capfd)
    assert find(REPO).profile.name == JUDGE.profile.name
    hub.files["profile.toml"], hub.commit = b"rounds = 0", "2" * 40
    status, _, err = command(capfd, "pull", REPO)
    assert status == 4
    assert "nothing of it was kept" in err
    assert find(REPO).profile.name == JUDGE.profile.name


PLACED = pytest.mark.parametrize("model", ["hub/vr-thinker-7b", "./vr-thinker-7b", "vr-thinker-7b/"])


@PLACED
def test_a_path_with_a_known_name_says_both_ways_to_get_it(model: str, capfd: pytest.CaptureFixture[str]) -> None:
    says = "with vrt-lite pull vr-thinker-7b, and use it with --model vr-thinker-7b"
    refused(capfd, says, "compare", *CLIPS, "--model", model)


def test_a_profile_that_is_given_comes_with_its_prompts_and_is_named(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may be given to a model that is here, of which nothing is fetched again."""
    (tmp_path / "own.txt").write_text("Judge {caption} by {dim_name_1}", encoding="utf-8")
    given = tmp_path / "given.toml"
    given.write_text('name = "given"\nuser_prompt_file = "own.txt"\n[clock]\nrule = "exact"\n', encoding="utf-8")
    hub.files["profile.toml"], hub.small = PROFILE.encode(), {"profile.toml"}
    _, _, err = command(capfd, "pull", REPO, "--profile", str(given))
    assert f"profile: {given}" in err
    profile = find(REPO).profile
    assert (profile.name, profile.clock.rule) == ("given", "exact")
    assert profile.user_prompt == "Judge {caption} by {dim_name_1}"
    asked = len(hub.ranges)
    given.write_text('name = "later"\n', encoding="utf-8")
    assert f"profile: {given}" in command(capfd, "pull", REPO, "--profile", str(given))[2]
    assert "here already" in pulled(capfd)
    assert (find(REPO).profile.name, len(hub.ranges)) == ("later", asked)
    given.write_text("rounds = 0", encoding="utf-8")
    status, _, err = command(capfd, "pull", REPO, "--profile", str(given))
    assert (status, find(REPO).profile.name) == (4, "later")
    assert "rounds = 0" in err


@pytest.mark.parametrize("name", [TEXT, PROJECTOR])
def test_a_flipped_byte_is_refused_and_the_next_pull_repairs_it(
    hub: Hub, home: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.flips[name] = 1
    refused(capfd, f"{name} of {REPO} arrived damaged: it is not what the hub lists.* Pull again", "pull", REPO)
    assert not list(home.glob(f"partial/*/{name}"))
    pulled(capfd)


def test_a_file_that_is_shorter_at_its_source_is_refused(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.short[TEXT] = 1000
    refused(capfd, f"of {REPO} arrived damaged: its size is not the one that is listed", "pull", REPO)
    hub.short.clear()
    pulled(capfd)


def test_damage_here_is_named_and_repaired(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    pulled(capfd)
    [model] = library.stored_models()
    with (model.folder / TEXT).open("r+b") as file:
        file.truncate(1000)
    status, out, err = command(capfd, "models")
    assert status == 0
    assert re.search(rf"{REPO} +damaged", out)
    assert f"{TEXT} has 1000 bytes" in err
    status, _, err = command(capfd, "compare", *CLIPS, "--model", REPO)
    assert status == 4
    assert f"Repair it: vrt-lite pull {REPO}" in err
    hub.ranges.clear()
    pulled(capfd)
    assert {name for name, _ in hub.ranges} == {TEXT}


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.gguf",
        "/etc/evil.gguf",
        "a/../../evil.gguf",
        "..\\evil.gguf",
        "C:evil.gguf",
        "a//b.gguf",
        "x\x00.gguf",
    ],
)
def test_a_path_that_leads_out_is_refused(hub: Hub, home: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    hub.listed[name] = {"size": 1, "lfs": {"sha256": "0" * 64, "size": 1, "pointerSize": 1}}
    refused(capfd, "lists the unsafe file name", "pull", REPO)
    assert hub.ranges == []
    assert not list(home.rglob("*evil*"))


def test_links_planted_in_the_store_are_not_followed(
    hub: Hub, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / TEXT).write_bytes(b"precious")
    model, partial = library.model_folder(REPO), library.partial_folder(REPO)
    for folder in (model, partial):
        folder.parent.mkdir(parents=True)
    model.symlink_to(victim, target_is_directory=True)
    partial.mkdir()
    (partial / TEXT).symlink_to(victim / TEXT)
    (partial / ".arriving").symlink_to(victim, target_is_directory=True)
    assert library.stored_models() == []
    pulled(capfd)
    assert command(capfd, "rm", REPO)[0] == 0
    assert (victim / TEXT).read_bytes() == b"precious"


def test_a_wrong_projector_is_refused_and_leaves_nothing(
    hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = b"clip.vision.projection_dim\x04\x00\x00\x00"
    hub.files[PROJECTOR] = hub.files[PROJECTOR].replace(key + b"\x00\x01\x00\x00", key + b"\x00\x0e\x00\x00")
    refused(capfd, "nothing of it was kept: .* gives vectors of 3584 values, but .* takes 256", "pull", REPO)
    assert not list(home.rglob("*.gguf"))


def test_what_a_repository_lacks_is_named(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    refused(capfd, "has no quant 'Q4_K_M'; it has Q8_0", "pull", f"{REPO}:Q4_K_M")
    projector = hub.files.pop(PROJECTOR)
    refused(capfd, r"publishes no projector .a file named mmproj\*.gguf", "pull", REPO)
    hub.files.clear()
    refused(capfd, "publishes no GGUF text model .it lists README.md", "pull", REPO)
    hub.files["x-Q8_0-00001-of-00002.gguf"] = hub.files["mmproj-x.gguf"] = projector
    refused(capfd, r"lists only some parts of Q8_0 .x-Q8_0-00001-of-00002.gguf", "pull", f"{REPO}:Q8_0")
    refused(capfd, "lists only some parts of its text models", "pull", REPO)
    assert hub.ranges == []


def test_a_recipe_takes_gguf_files_if_its_repository_has_them(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.repository = "qunwang13/vr-thinker"
    hub.listed = {"config.json": {"size": 2}, "model.safetensors": {"size": 10**10}}
    messages = pulled(capfd, "vr-thinker-7b")
    assert "licence: MIT (https://huggingface.co/qunwang13/vr-thinker)" in messages
    assert find("vr-thinker-7b").profile.name == "vr-thinker-7b"


def test_a_split_model_is_pulled_in_all_its_parts(hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts = split(JUDGE.text, tmp_path / "judge-Q8_0.gguf", tensors=25)
    assert len(parts) == 3
    whole = hub.files.pop(TEXT)
    hub.files |= {f"Q8_0/{part.name}": part.read_bytes() for part in reversed(parts)}
    # A larger quant of which one part is missing cannot be chosen.
    hub.files["UD-Q8_0/x-00001-of-00002.gguf"] = whole
    hub.flips[f"Q8_0/{parts[1].name}"] = 1
    refused(capfd, f"{parts[1].name} of {REPO} arrived damaged", "pull", REPO)
    status, out, err = command(capfd, "pull", REPO)
    assert status == 0, err
    [model] = library.stored_models()
    texts = [file for file in model.manifest.files if file.role == "text"]
    assert [file.name for file in texts] == [part.name for part in parts]
    for part, file in zip(parts, texts, strict=True):
        assert (model.folder / part.name).read_bytes() == part.read_bytes()
        assert file.size == part.stat().st_size
    assert find(REPO).text == model.folder / parts[0].name
    (model.folder / "profile.toml").write_text(PROFILE, encoding="utf-8")
    arguments = ["--prompt", "A red square moving right.", "-m", REPO, "--json", "--threads", "1"]
    status, out, _ = command(capfd, "compare", *CLIPS, *arguments)
    assert status == 0
    assert json.loads(out)["verdict"]["overall"]["winner"] == 1
    asked = len(hub.ranges)
    assert "is here already" in command(capfd, "pull", REPO)[2]
    assert len(hub.ranges) == asked
    (model.folder / parts[2].name).unlink()
    refused_status, _, err = command(capfd, "compare", *CLIPS, "-m", REPO)
    assert refused_status == 4
    assert f"{parts[2].name} is missing" in err
    assert command(capfd, "pull", f"{REPO}:Q8_0")[0] == 0
    assert {name for name, _ in hub.ranges[asked:]} == {f"Q8_0/{parts[2].name}"}


@TELLING
def test_a_server_that_sends_more_than_it_lists_is_stopped(
    hub: Hub, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.longer[TEXT] = 600 * 2**20
    listed = len(hub.files[TEXT])
    refused(capfd, f"{TEXT} of .* arrived damaged: it is not what the hub lists", "pull", REPO)
    assert hub.sent[TEXT] < 2 * listed + 32 * 2**20  # what the sockets hold was sent as well
    assert not list(home.rglob("*.incomplete"))
    hub.longer.clear()
    pulled(capfd)


def test_a_recipe_whose_sums_the_hub_contradicts_is_refused(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = recipes()["qwen2.5-vl-3b"]
    hub.repository = recipe.repository
    hub.files = {name: hub.files[PROJECTOR if "mmproj" in name else TEXT] for name in recipe.sums}
    refused(capfd, "but the recipe of qwen2.5-vl-3b says .* vrt-lite pull ggml-org/", "pull", "qwen2.5-vl-3b")
    assert hub.ranges == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "is not at|answered 401"),
        (403, "answered 403"),
        (404, "is not at|answered 404"),
        (500, "answered 500"),
    ],
)
def test_what_the_hub_answers_is_one_line(hub: Hub, status: int, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    hub.status = status
    refused(capfd, says, "pull", REPO)


def test_names_that_cannot_be_pulled(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    refused(capfd, "with vrt-lite pull qwen2.5-vl-7b, and use", "compare", *CLIPS, "--model", "qwen2.5-vl-7b")
    refused(capfd, "'nobody' is not known. Pull one of .*qwen2.5-vl-7b", "pull", "nobody")
    refused(capfd, "is no owner/repo", "pull", "a/b/c", status=2)
    refused(capfd, "is no owner/repo", "pull", "../x", status=2)
    refused(capfd, "no quant after the colon", "pull", f"{REPO}:../x", status=2)
    refused(capfd, "is not at http://127", "pull", "someone/else")
    assert command(capfd, "pull", BUNDLED)[0] == 0
    assert parse_reference(f"https://huggingface.co/{REPO}:Q8_0").name == REPO
    assert hub.ranges == []


def test_no_network_is_one_line_with_the_next_step(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    offline = {"HF_HUB_OFFLINE": "1"}
    children = [child("pull", "-q", REPO, **env) for env in (closed, offline)]
    messages = [process.communicate(timeout=60)[1] for process in children]
    assert [process.returncode for process in children] == [4, 4]
    assert all(len(message.splitlines()) == 1 for message in messages), messages
    assert f"{REPO} would be fetched from {REPO}, but http://127.0.0.1:9 cannot be reached" in messages[0]
    assert "pull again; what has arrived whole is kept" in messages[0]
    assert "HF_HUB_OFFLINE is set" in messages[1]
    assert "vrt-lite models" in messages[1]
    pulled(capfd)
    with child("pull", REPO, **offline) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "is here already; the hub was not asked" in err
    assert_whole(Path(out.strip()))


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_point_it_is_whole_or_not_here(hub: Hub, capfd: pytest.CaptureFixture[str], kills: int) -> None:
    """Kills spread over a pull's whole length, the store left as it fell; the next runs go on and end whole."""
    hub.seconds_per_chunk = 0.004
    dice = random.Random(3)
    finished = 0
    for kill in range(kills):
        asked = len(hub.ranges)
        process = child("pull", REPO)
        deadline = time.monotonic() + 30
        while len(hub.ranges) == asked and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.25))
        process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        process.communicate(timeout=30)
        finished += process.returncode == 0
        for model in library.stored_models():
            assert model.damage == "", kill
            assert_whole(model.folder)
            assert command(capfd, "rm", REPO)[0] == 0
    hub.seconds_per_chunk = 0
    pulled(capfd)
    assert finished < kills


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_an_interrupt_is_130_and_loses_one_file(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.seconds_per_chunk = 0.01
    with child("pull", REPO) as process:
        while len(hub.ranges) < 2 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on" in err.splitlines()[-2]
    assert err.splitlines()[-1] == "vrt-lite: Interrupted."
    assert library.stored_models() == []
    hub.seconds_per_chunk = 0
    (first, _), (second, _) = hub.ranges
    pulled(capfd)
    assert [name for name, _ in hub.ranges] == [first, second, second]


def test_two_at_once_bring_one_whole_model(hub: Hub) -> None:
    hub.seconds_per_chunk = 0.002
    both = [child("pull", REPO) for _ in range(2)]
    messages = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], messages
    assert len(hub.ranges) == 2
    [model] = library.stored_models()
    assert_whole(model.folder)


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen2.5-VL-7B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-vl-7b-instruct-q8_0.gguf", "Q8_0"),
        ("model.IQ4_XS.gguf", "IQ4_XS"),
        ("Qwen2.5-VL-7B-Instruct-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("mmproj-model-f16.gguf", "F16"),
        ("x-fp16.gguf", "F16"),
        ("x-BF16-00001-of-00002.gguf", "BF16"),
        ("ggml-model.gguf", ""),
    ],
)
def test_quants_are_read_from_names(name: str, quant: str) -> None:
    assert quant_of(name) == quant


def test_the_quant_is_the_largest_good_one_that_fits() -> None:
    sizes = {"Q2_K": 3.0, "Q3_K_M": 3.8, "Q4_K_M": 4.7, "Q6_K": 6.3, "Q8_0": 8.1, "f16": 15.2}
    files = [HubFile(f"x-{quant}.gguf", int(size * 1e9), "0" * 64) for quant, size in sizes.items()]
    files += [HubFile(f"{name}.gguf", 10**9, "0" * 64) for name in ("mmproj-x-Q8_0", "x.mmproj-f16", "mmproj-x-bf16")]
    files += [HubFile("imatrix.gguf", 10**7, "0" * 64)]
    listed = Listing(REPO, "0" * 40, "", "", tuple(files))

    def chosen(room_gb: float) -> str:
        choice = select_files(listed, quant="", memory_bytes=int(room_gb * 1e9) + 10**9 + CONTEXT_BYTES)
        assert choice.projector.name == "x.mmproj-f16.gguf"
        return choice.quant

    assert [chosen(room) for room in (64, 8.2, 7, 4.8, 4, 3.1)] == ["Q8_0", "Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M", "Q2_K"]
    with pytest.raises(ModelError, match=r"No quant of .* fits: the smallest, Q2_K, needs .* name it: .*:Q2_K"):
        chosen(2)
    assert select_files(listed, quant="F16", memory_bytes=0).texts[0].name == "x-f16.gguf"


def test_every_recipe_names_its_licence_and_row() -> None:
    table = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    assert set(recipes()) == {
        *bundled_names(),
        *("vr-thinker-7b", "qwen2.5-vl-3b", "qwen2.5-vl-7b"),
        *("unifiedreward-7b", "unifiedreward-7b-point", "unifiedreward-think-7b"),
        *("unifiedreward-flex-2b", "unifiedreward-flex-4b", "unifiedreward-flex-8b"),
        *("videoreward-2b", "qwen3-vl-2b"),
    }
    for recipe in recipes().values():
        assert recipe.licence
        assert f"[{recipe.name}]({recipe.name}.toml) |" in table
        assert recipe.name in bundled_names() or (recipe.repository and recipe.config and recipe.profile)
    packed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    unpacked = {name for name in recipes() if f'"models/{name}.toml" = "vrt_lite/recipes/{name}.toml"' not in packed}
    assert unpacked == {"vrt-tiny-0"}  # the judge of the tests
