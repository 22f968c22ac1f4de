"""Pulling a model with the real huggingface_hub client, from a hub on loopback that misbehaves in each known way."""

from __future__ import annotations

import inspect
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, serving
from huggingface_hub import hf_hub_download
from pull_commands import Commands, child, isolate_client, stop_pull
from split_gguf import split

from vrt_lite.errors import ModelError
from vrt_lite.models import BUNDLED, bundled_names, find, library
from vrt_lite.models.gguf import quant_of
from vrt_lite.models.hub import HubFile, Listing
from vrt_lite.models.library import recipes
from vrt_lite.pulling import parse_reference, select_files
from vrt_lite.pulling.pull_source import SHARE_OF_MEMORY

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")
TEXT, PROJECTOR = JUDGE.text.name, JUDGE.projector.name
FILES = {path.name: path.read_bytes() for path in (JUDGE.text, JUDGE.projector)}
PROFILE = (JUDGE.text.parent / "profile.toml").read_text(encoding="utf-8")
CLIPS = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
REPO = "someone/judge-GGUF"
TELLING = pytest.mark.skipif(
    "tqdm_class" not in inspect.signature(hf_hub_download).parameters,
    reason="the client goes on in one call, and tells how far it is, from its release 1 on",
)


@pytest.fixture(autouse=True)
def commands(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    isolate_client(tmp_path / "hf", monkeypatch)
    return Commands(capfd)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub(dict(FILES))) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def pulled(commands: Commands, reference: str = REPO) -> str:
    messages = commands.pull(reference)
    assert_whole()
    return messages


def assert_whole() -> None:
    """Every model has the bytes of the bundled one, in files of its own."""
    models = library.stored_models()
    assert models
    for model in models:
        found = {path.name: path for path in model.folder.iterdir()}
        assert FILES.keys() <= found.keys() <= {*FILES, "manifest.json", "profile.toml"}
        assert not any(path.is_symlink() for path in found.values())
        assert {name: found[name].read_bytes() for name in FILES} == FILES


def test_the_next_pull_keeps_what_has_arrived_whole(hub: Hub, commands: Commands) -> None:
    folder = library.partial_folder(REPO)
    (folder / ".arriving").mkdir(parents=True)
    (folder / PROJECTOR).write_bytes(FILES[PROJECTOR])
    (folder / ".arriving" / "killed.incomplete").write_bytes(bytes(1_000_000))
    (folder / "left-by-another-quant.gguf").write_bytes(b"x")
    assert library.partial_bytes(REPO) == len(FILES[PROJECTOR]) + 1_000_001
    pulled(commands)
    assert hub.ranges == [(TEXT, 0)]
    assert not list(library.home().rglob("*.incomplete"))


def test_models_lists_what_is_here_begun_or_damaged(hub: Hub, commands: Commands) -> None:
    pulled(commands)
    [model] = library.stored_models()
    # A recipe takes GGUF files if its repository has them.
    hub.repository = "qunwang13/vr-thinker"
    lfs = {"sha256": "0" * 64, "size": 10**10, "pointerSize": 134}
    hub.listed = {"config.json": {"size": 2}, "model.safetensors": {"size": 10**10, "lfs": lfs}}
    assert "licence: MIT (https://huggingface.co/qunwang13/vr-thinker)" in pulled(commands, "vr-thinker-7b")
    assert find("vr-thinker-7b").profile.name == "vr-thinker-7b"
    (model.folder / TEXT).write_bytes(FILES[TEXT][:1000])
    (library.partial_folder("someone/other")).mkdir()
    (library.partial_folder("someone/other") / "x.gguf").write_bytes(bytes(2_000_000))
    _, out, err = commands.run("models")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert re.search("bundled.* yes", rows[BUNDLED])
    assert re.search(r"here +Q8_0 +12\.8 MB +~\S+ GB +.* MIT", rows["vr-thinker-7b"])
    assert re.search("can be pulled.*non-commercial", rows["qwen2.5-vl-3b"])
    assert re.search("damaged .*no +mit", rows[REPO])
    assert "begun" in rows["someone/other"]
    assert "someone/other: 2.0 MB have arrived. Go on: vrt-lite pull someone/other" in err
    assert f"{TEXT} is missing or has another size" in err
    assert not {"\t", "\x1b"} & set(out)
    commands.refuse(f"Repair it: vrt-lite pull {REPO}", "compare", *CLIPS, "--model", REPO)
    hub.repository, hub.listed = REPO, {}
    hub.ranges.clear()
    assert commands.run("pull", REPO)[0] == 0
    assert_whole()
    assert hub.ranges == [(TEXT, 0)]


def test_a_pulled_model_is_found_by_its_name_and_can_be_deleted(hub: Hub, commands: Commands) -> None:
    messages = pulled(commands)
    assert f"{REPO} at {hub.commit[:12]}, Q8_0, 12.8 MB" in messages
    assert "licence: mit" in messages
    assert messages.count("sha256 checked") == 2
    [model] = library.stored_models()
    assert (model.manifest.revision, model.manifest.quant) == (hub.commit, "Q8_0")
    assert find(f"{REPO}:q8_0").text == model.folder / TEXT
    assert commands.run("rm", REPO)[:2] == (0, f"{REPO} is deleted, 12.8 MB\n")
    assert not list(library.home().rglob("*.gguf"))
    for name, says in ((REPO, "is not here"), (BUNDLED, "comes with vrt-lite"), ("../models", "is not here")):
        commands.refuse(says, "rm", name)


def test_a_newer_revision_replaces_the_model_once_it_is_whole(hub: Hub, commands: Commands) -> None:
    pulled(commands)
    [old] = library.stored_models()
    hub.commit, hub.failing = "3" * 40, {TEXT: 503}
    commands.refuse("status 503", "pull", REPO)
    assert library.partial_names() == [REPO]
    assert library.stored_models() == [old]
    assert find(REPO).text == old.path("text")
    hub.failing = {TEXT: 404}
    commands.refuse(f"has no {REPO}, or not all of its files", "pull", REPO)
    hub.failing = {}
    pulled(commands)
    [new] = library.stored_models()
    assert (new.manifest.revision, library.partial_names()) == (hub.commit, [])


def test_a_published_profile_comes_along_and_a_given_one_wins(hub: Hub, tmp_path: Path, commands: Commands) -> None:
    assert "profile: VR-Thinker's, as none is published" in pulled(commands)
    hub.files["profile.toml"] = PROFILE.encode()
    hub.small, hub.commit = {"profile.toml"}, "1" * 40
    assert "profile: the repository's own" in pulled(commands)
    assert find(REPO).profile.name == JUDGE.profile.name
    hub.files["profile.toml"], hub.commit = b"rounds = 0", "2" * 40
    commands.refuse("nothing of it was kept", "pull", REPO)
    assert find(REPO).profile.name == JUDGE.profile.name

    (tmp_path / "own.txt").write_text("Judge {caption} by {dim_name_1}", encoding="utf-8")
    given = tmp_path / "given.toml"
    given.write_text('name = "given"\nuser_prompt_file = "own.txt"\n[clock]\nrule = "exact"\n', encoding="utf-8")
    assert f"profile: {given}" in commands.pull(REPO, "--profile", str(given))
    profile = find(REPO).profile
    assert (profile.name, profile.clock.rule) == ("given", "exact")
    assert profile.user_prompt == "Judge {caption} by {dim_name_1}"
    # A model that is here can be given one too. Nothing is fetched again.
    hub.ranges.clear()
    given.write_text('name = "later"\n', encoding="utf-8")
    assert f"profile: {given}" in commands.pull(REPO, "--profile", str(given))
    assert "here already" in pulled(commands)
    given.write_text("rounds = 0", encoding="utf-8")
    commands.refuse("rounds = 0", "pull", REPO, "--profile", str(given))
    assert (find(REPO).profile.name, hub.ranges) == ("later", [])


@TELLING
def test_a_cut_connection_is_resumed(hub: Hub, commands: Commands) -> None:
    """Cut at once, on a chunk's edge, and one byte before the end, in one pull."""
    hub.cuts[TEXT] = [0, 3 * 2**20, len(FILES[TEXT]) - 1]
    assert "arrived damaged" not in pulled(commands)
    assert [name for name, _ in hub.ranges].count(TEXT) == 4


@pytest.mark.parametrize(
    ("fault", "name", "count", "says"),
    [
        ("flips", TEXT, 1, f"{TEXT} of {REPO} arrived damaged: it is not what the hub lists.* Pull again"),
        ("flips", PROJECTOR, 1, f"{PROJECTOR} of {REPO} arrived damaged: it is not what the hub lists.* Pull again"),
        ("short", TEXT, 1000, f"gave nothing usable for {REPO} .*size.*pull again"),
        pytest.param("longer", TEXT, 600 * 2**20, f"{TEXT} of .* arrived damaged: it is not what", marks=TELLING),
    ],
)
def test_a_damaged_file_is_refused(hub: Hub, commands: Commands, fault: str, name: str, count: int, says: str) -> None:
    """The next pull repairs it."""
    getattr(hub, fault)[name] = count
    commands.refuse(says, "pull", REPO)
    assert not [*library.home().glob(f"partial/*/{name}"), *library.home().rglob("*.incomplete")]
    assert hub.sent[name] < 2 * len(FILES[name]) + 32 * 2**20  # what the sockets hold was sent as well
    getattr(hub, fault).clear()
    pulled(commands)


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:evil", "a//b", "x\x00"])
def test_a_path_that_leads_out_is_refused(hub: Hub, commands: Commands, name: str) -> None:
    hub.listed[f"{name}.gguf"] = {"size": 1, "lfs": {"sha256": "0" * 64, "size": 1, "pointerSize": 1}}
    commands.refuse("lists the unsafe file name", "pull", REPO)
    assert hub.ranges == []
    assert not list(library.home().rglob("*evil*"))


def test_links_planted_in_the_store_are_not_followed(hub: Hub, tmp_path: Path, commands: Commands) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in (TEXT, library.MANIFEST_NAME):
        (victim / name).write_bytes(b"precious")
    model, partial = library.model_folder(REPO), library.partial_folder(REPO)
    model.parent.mkdir(parents=True)
    partial.mkdir(parents=True)
    model.symlink_to(victim, target_is_directory=True)
    (partial / TEXT).symlink_to(victim / TEXT)
    (partial / ".arriving").symlink_to(victim, target_is_directory=True)
    assert library.stored_models() == []
    pulled(commands)
    model.rename(tmp_path / "elsewhere")
    model.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert library.stored_models() == []
    model.unlink()
    (tmp_path / "elsewhere").rename(model)
    assert commands.run("rm", REPO)[0] == 0
    assert {path.read_bytes() for path in victim.iterdir()} == {b"precious"}
    assert len(list(victim.iterdir())) == 2


def test_what_a_repository_lacks_or_mixes_up_is_named(hub: Hub, commands: Commands) -> None:
    commands.refuse("has no quant 'Q4_K_M' with all its parts; it has Q8_0", "pull", f"{REPO}:Q4_K_M")
    projector = hub.files.pop(PROJECTOR)
    commands.refuse(r"publishes no projector .\*mmproj\*.gguf", "pull", REPO)
    hub.files = {"README.md": b"# A judge\n"}
    commands.refuse("kept: .* lists neither a GGUF file nor the shard 'model.safetensors'", "pull", REPO)
    hub.files["x-Q8_0-00001-of-00002.gguf"] = hub.files["mmproj-x.gguf"] = projector
    for reference in (REPO, f"{REPO}:Q8_0"):
        commands.refuse("publishes no GGUF text model with all its parts", "pull", reference)
    assert {name for name, _ in hub.ranges} == {"README.md"}
    key = b"clip.vision.projection_dim\x04\x00\x00\x00"
    other = projector.replace(key + b"\x00\x01\x00\x00", key + b"\x00\x0e\x00\x00")
    hub.repository, hub.files = REPO, FILES | {PROJECTOR: other}
    commands.refuse("nothing of it was kept: .* gives vectors of 3584 values, but .* takes 256", "pull", REPO)
    assert not list(library.home().rglob("*.gguf"))


def test_a_split_model_is_pulled_in_all_its_parts(hub: Hub, tmp_path: Path, commands: Commands) -> None:
    parts = split(JUDGE.text, tmp_path / "judge-Q8_0.gguf", tensors=25)
    del hub.files[TEXT]
    hub.files |= {f"Q8_0/{part.name}": part.read_bytes() for part in reversed(parts)}
    # A larger quant of which one part is missing cannot be chosen.
    hub.files["UD-Q8_0/x-00001-of-00002.gguf"] = FILES[TEXT]
    hub.flips[f"Q8_0/{parts[1].name}"] = 1
    commands.refuse(f"{parts[1].name} of {REPO} arrived damaged", "pull", REPO)
    commands.pull(REPO)
    [model] = library.stored_models()
    stored = [(file.name, file.size) for file in model.manifest.files if file.role == "text"]
    assert stored == [(part.name, part.stat().st_size) for part in parts]
    assert all((model.folder / part.name).read_bytes() == part.read_bytes() for part in parts)
    assert find(REPO).text == model.folder / parts[0].name
    hub.ranges.clear()
    assert "is here already" in commands.pull(REPO)
    assert hub.ranges == []
    (model.folder / parts[2].name).unlink()
    commands.refuse(f"{parts[2].name} is missing", "compare", *CLIPS, "-m", REPO)
    commands.pull(f"{REPO}:Q8_0")
    assert hub.ranges == [(f"Q8_0/{parts[2].name}", 0)]


@pytest.mark.parametrize(
    ("answer", "name", "says", "status"),
    [
        (401, REPO, "status 401.*hf auth login", 4),
        (403, REPO, "status 403.*hf auth login", 4),
        (
            404,
            REPO,
            f"http://127.* has no {REPO}, or not all of its files, or wants a login .status 404.. Check the",
            4,
        ),
        (500, REPO, "status 500", 4),
        (200, "someone/else", "http://127.* has no someone/else, .*status 40", 4),
        (200, "nobody", "'nobody' is not known. Pull one of .*qwen2.5-vl-7b", 4),
        (200, "a/b/c", "'a/b/c' is not known. Pull one of .*, or owner/repo", 4),
        (200, "../x", "'../x' is not known", 4),
        (200, "a/b--c", "'a/b--c' is not known", 4),
        (200, f"{REPO}:../x", "has no quant '../X'", 4),
    ],
)
def test_what_cannot_be_pulled(hub: Hub, commands: Commands, answer: int, name: str, says: str, status: int) -> None:
    hub.status = answer
    commands.refuse(says, "pull", name, status=status)
    assert hub.ranges == []


def test_a_model_that_can_be_pulled_is_named_with_the_command(commands: Commands) -> None:
    for model in ("vr-thinker-7b", "hub/vr-thinker-7b", "./vr-thinker-7b", "vr-thinker-7b/"):
        says = "with vrt-lite pull vr-thinker-7b, and use it with --model vr-thinker-7b"
        commands.refuse(says, "compare", *CLIPS, "--model", model)
    assert commands.run("pull", BUNDLED)[0] == 0
    assert parse_reference(f"https://huggingface.co/{REPO}:Q8_0").name == REPO


def test_without_a_network_what_is_here_is_taken(hub: Hub, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled(commands)
    with child("pull", REPO, HF_HUB_OFFLINE="1") as process:  # the client reads it once
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search("is here already; whether there is a newer one is not known: .*HF_HUB_OFFLINE", err)
    hub.status = 404
    assert "there is a newer one is not known: http://127" in pulled(commands)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    assert "is here already; whether there is a newer one is not known" in pulled(commands)
    assert commands.run("rm", REPO)[0] == 0
    says = f"http://127.0.0.1:9 gave nothing usable for {REPO}"
    commands.refuse(f"{says}.*pull again; what has arrived whole is kept", "pull", "-q", REPO)
    with child("pull", REPO, HF_HUB_OFFLINE="1") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert re.search(f"gave nothing usable for {REPO} .*HF_HUB_OFFLINE", err)


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_point_it_is_whole_or_not_here(hub: Hub, commands: Commands, kills: int) -> None:
    """Kills spread over a pull's whole length, the store left as it fell; the next runs go on and end whole."""
    hub.seconds_per_chunk = 0.004
    dice = random.Random(3)
    finished = 0
    for _ in range(kills):
        hub.ranges.clear()
        status, _ = stop_pull(REPO, lambda: bool(hub.ranges), seconds=dice.uniform(0, 0.25))
        finished += status == 0
        if library.stored_models():
            assert_whole()
            assert commands.run("rm", REPO)[0] == 0
    hub.seconds_per_chunk = 0
    pulled(commands)
    assert finished < kills


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for another process")
def test_an_interrupt_is_130_and_loses_one_file(hub: Hub, commands: Commands) -> None:
    hub.seconds_per_chunk = 0.01
    status, err = stop_pull(REPO, lambda: len(hub.ranges) >= 2, by="SIGINT")
    assert (status, err.splitlines()[-1]) == (130, "vrt-lite: Interrupted.")
    assert "the same command goes on" in err.splitlines()[-2]
    assert library.stored_models() == []
    hub.seconds_per_chunk = 0
    pulled(commands)
    first, *second = (name for name, _ in hub.ranges)
    assert second == list(FILES.keys() - {first}) * 2


def test_two_at_once_bring_one_whole_model(hub: Hub, commands: Commands) -> None:
    hub.seconds_per_chunk = 0.002
    with child("pull", REPO) as process:
        while not hub.ranges and process.poll() is None:
            time.sleep(0.002)
        assert pulled(commands).count("waiting for another process that is changing") == 1
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(hub.ranges) == 2


def test_the_quant_is_the_largest_good_one_that_fits() -> None:
    sizes = {"Q2_K": 3.0, "Q3_K_M": 3.8, "Q4_K_M": 4.7, "Q6_K": 6.3, "Q8_0": 8.1, "f16": 15.2}
    gigabytes = {f"x-{quant}": size for quant, size in sizes.items()} | {"imatrix": 0.01}
    gigabytes |= dict.fromkeys(("mmproj-x-Q8_0", "x.mmproj-f16", "mmproj-x-bf16"), 1.0)
    files = [HubFile(f"{name}.gguf", int(size * 1e9), "0" * 64) for name, size in gigabytes.items()]
    listed = Listing(REPO, "0" * 40, "", tuple(files))

    def chosen(room_gb: float) -> str:
        usable = (room_gb + 1) * 1e9
        projector, text = select_files(listed, quant="", memory_bytes=int(usable / SHARE_OF_MEMORY) + 1)
        assert projector.name == "x.mmproj-f16.gguf"
        return quant_of(text.name)

    assert [chosen(room) for room in (64, 8.2, 7, 4.8, 4, 3.1)] == ["Q8_0", "Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M", "Q2_K"]
    with pytest.raises(
        ModelError,
        match=r"No quant of .* fits: the smallest, Q2_K, has 4.00 GB, and 60% .* is 3.00 GB. .* name it: .*:Q2_K",
    ):
        chosen(2)
    assert select_files(listed, quant="F16", memory_bytes=0)[1].name == "x-f16.gguf"
    names = ("q8_0", "IQ4_XS", "UD-Q4_K_XL", "fp16", "BF16-00001-of-00002", "model")
    assert [quant_of(f"x.{n}.gguf") for n in names] == ["Q8_0", "IQ4_XS", "UD-Q4_K_XL", "F16", "BF16", ""]


def test_every_recipe_is_complete_listed_and_packed() -> None:
    table = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    packed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[([\w.-]+)\]\(\1\.toml\) \|", table, re.MULTILINE)) == recipes().keys()
    for name, recipe in recipes().items():
        assert recipe.licence
        assert name in bundled_names() or all((recipe.repository, recipe.config, recipe.profile))
        # vrt-tiny-0 is the judge of the tests.
        assert name == "vrt-tiny-0" or f'"models/{name}.toml" = "vrt_lite/recipes/{name}.toml"' in packed
