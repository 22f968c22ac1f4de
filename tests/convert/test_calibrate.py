"""An importance matrix: the numbers an independent forward pass gives, and the file that llama.cpp reads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from llama_cpp._ctypes_extensions import load_shared_library
from llama_cpp._ggml import libggml_base_path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "golden")]

import fidelity_cases as golden  # noqa: E402
from convert_commands import run_convert  # noqa: E402

from convert.activations import Watch, node_of  # noqa: E402
from convert.calibrate import CHUNK_TOKENS, CalibrationProgress, calibrate, find_judge_files  # noqa: E402
from convert.clip_pairs import EXAMPLE, ClipPair  # noqa: E402
from convert.quantize import quantize_pair  # noqa: E402
from convert.stage_outputs import FRAME, StagedBackend, StageOutputs  # noqa: E402
from convert.verify import FittedFrames, divergence  # noqa: E402
from vrt_lite.api import Judge  # noqa: E402
from vrt_lite.conversion.convert_folder import export_pair  # noqa: E402
from vrt_lite.conversion.quantization import read_importance  # noqa: E402
from vrt_lite.errors import ModelError, UsageError  # noqa: E402
from vrt_lite.interfaces import FrameStore  # noqa: E402
from vrt_lite.judge import Pair, opening  # noqa: E402
from vrt_lite.machine import EngineSettings  # noqa: E402
from vrt_lite.models import find  # noqa: E402
from vrt_lite.pair_frames import PairFrames, workspace_of  # noqa: E402
from vrt_lite.protocol.messages import Conversation  # noqa: E402
from vrt_lite.video import open_clip  # noqa: E402

BUNDLED = find("vrt-tiny-0")
PROFILE = f"""
system_prompt = "the judge"
user_prompt = "Which shows {{caption}} best?"
rounds = 2
max_new_tokens = 6
min_pixels = {golden.PROFILE.min_pixels}
max_pixels = {golden.PROFILE.max_pixels}
"""
EPSILON, THETA, SECTIONS = 1e-6, 1e6, (4, 6, 6)  # as in the random checkpoint's config


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random model, in F32, that writes no verdict."""
    folder = tmp_path_factory.mktemp("calibrate")
    golden.make_checkpoint(folder / "tiny")
    export_pair(folder / "tiny", folder / "pair", text_type="f32", projector_type="f32")
    (folder / "pair" / "profile.toml").write_text(PROFILE, "utf-8")
    return folder / "pair"


def weights_of(path: Path) -> dict[str, np.ndarray]:
    return {
        tensor.name: np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float64)
        for tensor in gguf.GGUFReader(path).tensors
    }


def columns_of(path: Path) -> dict[str, int]:
    """Of every matrix that is multiplied."""
    found = {name: values.shape[1] for name, values in weights_of(path).items() if values.ndim == 2}
    return {name: count for name, count in found.items() if name != "token_embd.weight" or "output.weight" not in found}


class Forward:
    """The language model in float64, by its published definition; keeps what enters every weight."""

    def __init__(self, weights: dict[str, np.ndarray], reading: StageOutputs) -> None:
        self.weights, self.inputs = weights, dict[str, np.ndarray]()
        is_text = reading.tokens != FRAME
        x = np.empty((len(is_text), golden.WIDTH))
        x[is_text], x[~is_text] = weights["token_embd.weight"][reading.tokens[is_text]], reading.embeddings
        for layer in range(golden.LAYERS):
            x = x + self._attention(f"blk.{layer}", self._norm(f"blk.{layer}.attn_norm", x), reading.positions)
            if layer == golden.LAYERS - 1:
                x = x[is_text]  # nobody asks what follows a frame
            x = x + self._feed_forward(f"blk.{layer}", self._norm(f"blk.{layer}.ffn_norm", x))
        self.logits = self._times("output", self._norm("output_norm", x))

    def _times(self, name: str, x: np.ndarray) -> np.ndarray:
        self.inputs[f"{name}.weight"] = x
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * self.weights[f"{name}.weight"]

    def _attention(self, block: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        q, k, v = (self._times(f"{block}.attn_{part}", x).reshape(len(x), -1, 32).swapaxes(0, 1) for part in "qkv")
        k, v = (np.repeat(heads, golden.HEADS // golden.KV_HEADS, axis=0) for heads in (k, v))
        scores = self._turned(q, positions) @ self._turned(k, positions).swapaxes(1, 2) / np.sqrt(32)
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed = (shares / shares.sum(axis=2, keepdims=True)) @ v
        return self._times(f"{block}.attn_output", mixed.swapaxes(0, 1).reshape(len(x), -1))

    def _turned(self, heads: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Rotary positions; each frequency belongs to one of the three axes."""
        axis = np.repeat(range(3), SECTIONS)
        angles = positions[axis].T * THETA ** (-np.arange(16) / 16)
        low, high = heads[..., :16], heads[..., 16:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def _feed_forward(self, block: str, x: np.ndarray) -> np.ndarray:
        gate, up = (self._times(f"{block}.ffn_{part}", x) for part in ("gate", "up"))
        return self._times(f"{block}.ffn_down", gate / (1 + np.exp(-gate)) * up)


@pytest.mark.parametrize("name", ["all tool frames seen", "odd sides, two and eight frames"])
def test_the_sums_are_those_of_an_independent_forward_pass(talker: Path, name: str) -> None:
    files = find(talker)
    case = next(case for case in golden.cases({}) if case.name == name)
    frames = FittedFrames(golden.Displayed(case.sizes), golden.PROFILE)
    watch = Watch(columns_of(files.text))
    settings = EngineSettings(gpu_layers=0, exact=True, on_eval=watch.callback)
    with StagedBackend(files.text, files.projector, profile=golden.PROFILE, settings=settings) as backend:
        reading = backend.evaluate_stages(case.conversation, frames)
    sums = watch.take()
    forward = Forward(weights_of(files.text), reading)
    assert np.linalg.norm(forward.logits - reading.logits) < 1e-4 * np.linalg.norm(forward.logits)
    assert sums.keys() == forward.inputs.keys() == columns_of(files.text).keys()
    for weight, x in forward.inputs.items():
        assert sums[weight].rows == len(x), weight
        assert np.linalg.norm(sums[weight].squares - (x * x).sum(axis=0)) < 1e-4 * np.linalg.norm((x * x).sum(axis=0))
    text = int((reading.tokens != FRAME).sum())
    assert {sums[f"blk.{golden.LAYERS - 1}.ffn_down.weight"].rows, sums["output.weight"].rows} == {text}
    assert sums["blk.0.attn_q.weight"].rows == len(reading.tokens) > text
    assert watch.take() == {}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled judge's matrix."""
    out = tmp_path_factory.mktemp("matrix") / "m.gguf"
    return calibrate(BUNDLED.text, [EXAMPLE], out=out, datasets=["examples"]).path


def test_every_token_counts_once_and_no_verdict_changes(matrix: Path) -> None:
    watch = Watch(columns_of(BUNDLED.text))
    judgements = []
    for on_eval in (None, watch.callback):
        settings = EngineSettings(on_eval=on_eval)
        with (
            StagedBackend(BUNDLED.text, BUNDLED.projector, profile=BUNDLED.profile, settings=settings) as backend,
            Judge(BUNDLED.name, backend=backend) as judge,
        ):
            backend.guesses = 0
            judgements.append(judge.compare(EXAMPLE.a, EXAMPLE.b, prompt=EXAMPLE.caption))
    plain, watched = ([[r.text for r in o.rounds] for o in j.orders] for j in judgements)
    assert plain == watched
    assert judgements[0].verdict == judgements[1].verdict
    assert judgements[0].winner == 1
    rounds = [r for order in judgements[0].orders for r in order.rounds]
    assert len(rounds) == 2  # with frames that the judge called for
    read, written_tokens = sum(r.tokens_prefilled for r in rounds), sum(r.tokens_out for r in rounds)
    found = contents(matrix)
    counts = {name: int(values[0]) for name, values in found.items() if name.endswith(".counts")}
    # The last token of a turn need not be evaluated, and of a small model a lone one is evaluated beside itself.
    assert read + written_tokens - len(rounds) <= counts["blk.0.attn_q.weight.counts"] <= read + 2 * written_tokens
    last = max(int(name.split(".")[1]) for name in counts if name.startswith("blk."))
    assert counts[f"blk.{last}.attn_output.weight.counts"] == counts["blk.0.attn_q.weight.counts"]
    assert counts[f"blk.{last}.ffn_up.weight.counts"] == counts["token_embd.weight.counts"]
    assert written_tokens <= counts["token_embd.weight.counts"] < read
    for weight, inputs in watch.take().items():
        assert np.array_equal(found[f"{weight}.in_sum2"], inputs.squares.astype(np.float32)), weight


def contents(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def test_the_file_is_as_llama_imatrix_writes_it(talker: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.imatrix.gguf"
    calibrate(talker, [EXAMPLE, EXAMPLE], out=out, datasets=["pairs.csv"])
    once = calibrate(talker, [EXAMPLE], out=tmp_path / "once.gguf", datasets=["pairs.csv"])
    reader = gguf.GGUFReader(out)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    rows = int(contents(out)["blk.0.attn_q.weight.counts"][0])
    assert fields == {
        "general.type": "imatrix",
        "imatrix.datasets": ["pairs.csv"],
        "imatrix.chunk_count": -(-rows // CHUNK_TOKENS),
        "imatrix.chunk_size": CHUNK_TOKENS,
    }
    columns = columns_of(find(talker).text)
    names = [f"{weight}.{kind}" for weight in sorted(columns) for kind in ("in_sum2", "counts")]
    assert [tensor.name for tensor in reader.tensors] == names == read_by_the_engine(out)
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {"F32"}
    for weight, mean in read_importance(out).items():
        assert mean.shape == (columns[weight],)
        assert mean.min() > 0
    for name, values in contents(once.path).items():  # a pair given twice counts twice, kept from before or not
        assert np.allclose(2 * values, contents(out)[name], rtol=1e-5)


def read_by_the_engine(path: Path) -> list[str]:
    """Names of the tensors, by llama.cpp's own reader."""

    class Parameters(ctypes.Structure):
        _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))

    library = load_shared_library("ggml-base", libggml_base_path)
    library.gguf_init_from_file.argtypes = [ctypes.c_char_p, Parameters]
    library.gguf_init_from_file.restype = ctypes.c_void_p
    library.gguf_get_n_tensors.argtypes, library.gguf_get_n_tensors.restype = [ctypes.c_void_p], ctypes.c_int64
    library.gguf_get_tensor_name.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.gguf_get_tensor_name.restype = ctypes.c_char_p
    library.gguf_free.argtypes = [ctypes.c_void_p]
    opened = library.gguf_init_from_file(str(path).encode(), Parameters(True, None))
    assert opened
    names = [library.gguf_get_tensor_name(opened, i).decode() for i in range(library.gguf_get_n_tensors(opened))]
    library.gguf_free(opened)
    return names


def unquantised(source: Path, target: Path) -> Path:
    """The same weights in F32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            value = 0 if key == "general.file_type" else field.contents()
            item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, value, field.types[0], item)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Conversation, FrameStore]]:
    """What the bundled judge is shown of the example first."""
    profile = BUNDLED.profile
    with open_clip(EXAMPLE.a) as a, open_clip(EXAMPLE.b) as b:
        pair = Pair(EXAMPLE.caption, (a.info.duration_seconds, b.info.duration_seconds))
        yield opening(pair, profile), PairFrames((a, b), (workspace_of(a, profile), workspace_of(b, profile)))


@pytest.mark.parametrize(("kind", "at_most"), [("q2_k", 0.8), ("iq4_xs", 0.95)])
def test_a_matrix_lessens_the_error_where_much_passes(
    tmp_path: Path, matrix: Path, shown: tuple[Conversation, FrameStore], kind: str, at_most: float
) -> None:
    source = unquantised(BUNDLED.text, tmp_path / "judge-F32.gguf")
    means, exact = read_importance(matrix), weights_of(source)
    settings = EngineSettings(gpu_layers=0, threads=1)

    def logits(text: Path) -> np.ndarray:
        with StagedBackend(text, BUNDLED.projector, profile=BUNDLED.profile, settings=settings) as backend:
            return backend.evaluate_stages(*shown).logits

    errors, far, digests = list[np.ndarray](), list[float](), set[str]()
    for given in (None, matrix):
        (written,) = quantize_pair(source, text_type=kind, imatrix=given)
        digests.add(written.sha256)
        got = weights_of(written.path)
        errors.append(np.array([((got[name] - exact[name]) ** 2 @ mean).sum() for name, mean in means.items()]))
        far.append(float(divergence(logits(source), logits(written.path)).mean()))
    assert len(digests) == 2
    # Of what comes out of each weight. Measured: medians 0.71 and 0.89, at most 0.96.
    assert (errors[1] / errors[0]).max() < 1
    assert np.median(errors[1] / errors[0]) < at_most
    # KL divergence. Measured: 0.126 becomes 0.116, and 0.0137 becomes 0.0100; one conversation's scatter.
    assert far[1] < 1.1 * far[0]


def test_a_broken_pair_is_passed_over(talker: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(EXAMPLE.a.read_bytes()[:900])
    pairs = [ClipPair(broken, EXAMPLE.b), ClipPair(EXAMPLE.a, EXAMPLE.a), EXAMPLE]
    out, passed = tmp_path / "m.gguf", list[tuple[ClipPair, str]]()
    progress = CalibrationProgress(skips=lambda pair, reason: passed.append((pair, reason)))
    calibrate(talker, pairs, out=out, datasets=[], progress=progress)
    assert [pair for pair, _ in passed] == pairs[:2]
    assert "broken.mp4" in passed[0][1]
    assert "same file" in passed[1][1]
    alone = calibrate(talker, pairs[2:], out=tmp_path / "alone.gguf", datasets=[])
    assert out.read_bytes() == alone.path.read_bytes()
    out.unlink()
    with pytest.raises(ModelError, match="no pair could be judged"):
        calibrate(talker, pairs[:2], out=out, datasets=[])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.gguf", "broken.mp4"]


def test_what_cannot_be_written_is_said_before_anything_is_judged(talker: Path, tmp_path: Path) -> None:
    model = find(talker).text
    before = model.read_bytes()
    for out, reason in (
        (tmp_path / "absent" / "m.gguf", "there is no folder"),
        (model, "is no importance matrix"),
        (tmp_path, "is no importance matrix"),
    ):
        with pytest.raises(UsageError, match=reason):
            calibrate(talker, [EXAMPLE], out=out, datasets=[])
    with pytest.raises(UsageError, match="nothing to judge"):
        calibrate(talker, [], out=tmp_path / "m.gguf", datasets=[])
    with pytest.raises(UsageError, match="longer than 8000"):
        calibrate(talker, [ClipPair(EXAMPLE.a, EXAMPLE.b, "a" * 8001)], out=tmp_path / "m.gguf", datasets=[])
    assert model.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_which_files_judge(talker: Path, tmp_path: Path) -> None:
    for name in ("tiny-F32.gguf", "tiny-Q8_0.gguf", "tiny-F16.gguf", "mmproj-tiny-F32.gguf", "mmproj-x.gguf"):
        kind = "mmproj-tiny-F32.gguf" if name.startswith("mmproj") else "tiny-F32.gguf"
        (tmp_path / name).write_bytes((talker / kind).read_bytes())
    with pytest.raises(ModelError, match=r"holds tiny-F16\.gguf, tiny-F32\.gguf, tiny-Q8_0\.gguf: give one"):
        find_judge_files(tmp_path, None)
    assert find_judge_files(tmp_path / "tiny-F32.gguf", None).projector.name == "mmproj-tiny-F32.gguf"
    assert find_judge_files(tmp_path / "tiny-F16.gguf", None).projector.name in (
        "mmproj-tiny-F32.gguf",
        "mmproj-x.gguf",
    )
    given = tmp_path / "mmproj-x.gguf"
    assert find_judge_files(tmp_path / "tiny-F16.gguf", given).projector == given
    assert find_judge_files(BUNDLED.text.parent, None).text == BUNDLED.text
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no text model"):
        find_judge_files(tmp_path / "empty", None)
    with pytest.raises(ModelError, match="does not exist"):
        find_judge_files(tmp_path / "absent.gguf", None)


def test_a_weight_of_another_architecture_is_refused_by_name() -> None:
    assert node_of("blk.12.ffn_down.weight") == "ffn_swiglu-12"
    for weight in ("blk.0.attn_qkv.weight", "blk.0.ffn_down_exps.weight", "rope_freqs.weight", "v.blk.0.attn_q.weight"):
        with pytest.raises(ModelError, match=weight):
            node_of(weight)


def test_command_line(talker: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    listed = tmp_path / "pairs.csv"
    listed.write_text(f"a,b,caption\nbroken.mp4,broken.mp4,x\n{EXAMPLE.a},{EXAMPLE.b},a square\n", "utf-8")
    out = tmp_path / "m.imatrix.gguf"
    command = [sys.executable, "-m", "convert", "calibrate", talker, "--pairs", listed, "--out", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == [str(out.stat().st_size), str(out)]
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"convert: {broken}, {broken} passed over: ")
    status, printed, err = run_convert(capfd, "quantize", talker, "--type", "q4_0", "--imatrix", out)
    assert status == 0, err
    Path(printed.split()[2]).unlink()
    out.unlink()
    here: Sequence[Any] = ("--out", out)
    for arguments, status, message in (
        ((talker, *here), 2, "nothing to judge"),
        ((talker, "--clips", EXAMPLE.a, tmp_path / "absent.mp4", *here), 2, "absent.mp4"),
        ((talker, "--clips", EXAMPLE.a, EXAMPLE.b, "--caption", "a", "--caption", "b", *here), 2, "--caption"),
        ((talker, "--clips", broken, broken, *here), 4, "no pair could be judged"),
        ((tmp_path, "--clips", EXAMPLE.a, EXAMPLE.b, *here), 4, "holds no text model"),
        ((talker, "--clips", EXAMPLE.a, EXAMPLE.b, "--out", listed), 2, "is no importance matrix"),
    ):
        failed = run_convert(capfd, "calibrate", *arguments)
        assert failed[:2] == (status, ""), failed
        assert message in failed[2].splitlines()[-1]
        assert not out.exists()


def test_the_page_of_help_has_its_parts(capfd: pytest.CaptureFixture[str]) -> None:
    _, page, _ = run_convert(capfd, "calibrate", "--help")
    for part in ("Usage: python -m convert calibrate", "Options:", "Examples:", "Exit status:"):
        assert part in page
    assert max(len(line) for line in page.splitlines()) <= 110
