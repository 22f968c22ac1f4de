"""An importance matrix: the numbers an independent forward pass gives, and the file that llama.cpp reads."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import bundled_checkpoint
import fidelity_cases as golden
import gguf
import numpy as np
import pytest
import synthetic_checkpoint as synthetic
from convert_commands import run_convert
from llama_cpp._ctypes_extensions import load_shared_library
from llama_cpp._ggml import libggml_base_path

from convert.activations import Watch, node_of
from convert.calibrate import CHUNK_TOKENS, CalibrationProgress, calibrate, find_judge_files
from convert.clip_pairs import EXAMPLE, ClipPair
from convert.quantize import quantize_pair
from convert.stage_outputs import FRAME, StagedBackend, StageOutputs
from convert.verify import FittedFrames
from vrt_lite.api import Judge
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.quantization import read_importance
from vrt_lite.errors import ModelError
from vrt_lite.machine import EngineSettings
from vrt_lite.models import find

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
    settings = EngineSettings(gpu_layers=0, threads=1, exact=True, on_eval=watch.callback)
    with StagedBackend(files.text, files.projector, profile=golden.PROFILE, settings=settings) as backend:
        reading = backend.evaluate_stages(case.conversation, frames)
    sums = watch.take()
    forward = Forward(weights_of(files.text), reading)
    assert np.linalg.norm(forward.logits - reading.logits) < 1e-4 * np.linalg.norm(forward.logits)
    assert sums.keys() == forward.inputs.keys() == columns_of(files.text).keys()
    for weight, x in forward.inputs.items():
        squares = (x * x).sum(axis=0)
        assert sums[weight].rows == len(x), weight
        assert np.linalg.norm(sums[weight].squares - squares) < 1e-4 * np.linalg.norm(squares), weight
    text = int((reading.tokens != FRAME).sum())
    assert {sums[f"blk.{golden.LAYERS - 1}.ffn_down.weight"].rows, sums["output.weight"].rows} == {text}
    assert sums["blk.0.attn_q.weight"].rows == len(reading.tokens) > text
    assert watch.take() == {}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled judge's matrix."""
    out = tmp_path_factory.mktemp("matrix") / "m.gguf"
    return calibrate(BUNDLED.text, [EXAMPLE], out=out, datasets=["examples"])


def contents(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def test_every_token_counts_once_and_no_verdict_changes(matrix: Path) -> None:
    watch = Watch(columns_of(BUNDLED.text))
    judgements = []
    for on_eval in (None, watch.callback):
        settings = EngineSettings(threads=1, on_eval=on_eval)
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


def test_a_matrix_lessens_the_error_where_much_passes(tmp_path: Path, matrix: Path) -> None:
    bundled_checkpoint.make(tmp_path / "judge", (BUNDLED.text, BUNDLED.projector))
    synthetic.write_json(tmp_path / "judge" / "tokenizer_config.json", {"eos_token": "<|im_end|>"})
    source, _ = export_pair(tmp_path / "judge", tmp_path / "out", text_type="f32")
    exact, found, errors = weights_of(source), contents(matrix), []
    names = [name.removesuffix(".counts") for name in found if name.endswith(".counts")]
    means = {name: found[f"{name}.in_sum2"] / found[f"{name}.counts"] for name in names}
    for given in (None, matrix):
        (written,) = quantize_pair(source, text_type="q2_k", imatrix=given)
        got = weights_of(written)
        errors.append(np.array([((got[name] - exact[name]) ** 2 @ mean).sum() for name, mean in means.items()]))
    # Of what comes out of each weight. Measured: the median is 0.71.
    assert (errors[1] / errors[0]).max() < 1
    assert np.median(errors[1] / errors[0]) < 0.8


def test_the_file_is_as_llama_imatrix_writes_it(talker: Path, tmp_path: Path) -> None:
    """A pair given twice counts twice, kept from before or not; one that cannot be judged is passed over."""
    broken = ClipPair(tmp_path / "broken.mp4", EXAMPLE.b)
    broken.a.write_bytes(EXAMPLE.a.read_bytes()[:900])
    pairs = [broken, ClipPair(EXAMPLE.a, EXAMPLE.a), EXAMPLE]
    once, twice, passed = tmp_path / "once.gguf", tmp_path / "twice.gguf", list[tuple[ClipPair, str]]()
    progress = CalibrationProgress(skips=lambda pair, reason: passed.append((pair, reason)))
    calibrate(talker, pairs, out=once, datasets=["pairs.csv"], progress=progress)
    assert [pair for pair, _ in passed] == pairs[:2]
    assert "broken.mp4" in passed[0][1]
    assert "same file" in passed[1][1]
    calibrate(talker, [EXAMPLE, EXAMPLE], out=twice, datasets=["pairs.csv"])
    for name, values in contents(once).items():
        assert np.allclose(2 * values, contents(twice)[name], rtol=1e-5)
    reader = gguf.GGUFReader(once)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    rows = int(contents(once)["blk.0.attn_q.weight.counts"][0])
    assert fields == {
        "general.type": "imatrix",
        "imatrix.datasets": ["pairs.csv"],
        "imatrix.chunk_count": -(-rows // CHUNK_TOKENS),
        "imatrix.chunk_size": CHUNK_TOKENS,
    }
    columns = columns_of(find(talker).text)
    names = [f"{weight}.{kind}" for weight in sorted(columns) for kind in ("in_sum2", "counts")]
    assert [tensor.name for tensor in reader.tensors] == names == read_by_the_engine(once)
    assert {tensor.tensor_type.name for tensor in reader.tensors} == {"F32"}
    for weight, mean in read_importance(once).items():
        assert mean.shape == (columns[weight],)
        assert mean.min() > 0
    once.unlink()
    with pytest.raises(ModelError, match="no pair could be judged"):
        calibrate(talker, pairs[:2], out=once, datasets=[])
    assert not once.exists()


def read_by_the_engine(path: Path) -> list[str]:
    """Names of the tensors, by llama.cpp's own reader."""

    class Parameters(ctypes.Structure):
        _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))

    library = load_shared_library("ggml-base", libggml_base_path)
    for name, result, *arguments in (
        ("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, Parameters),
        ("gguf_get_n_tensors", ctypes.c_int64, ctypes.c_void_p),
        ("gguf_get_tensor_name", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64),
        ("gguf_free", None, ctypes.c_void_p),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    opened = library.gguf_init_from_file(str(path).encode(), Parameters(True, None))
    assert opened
    names = [library.gguf_get_tensor_name(opened, i).decode() for i in range(library.gguf_get_n_tensors(opened))]
    library.gguf_free(opened)
    return names


def test_which_files_judge(talker: Path, tmp_path: Path) -> None:
    text, projector, other = "tiny-F32.gguf", "mmproj-tiny-F32.gguf", "mmproj-x.gguf"
    for name in (text, "tiny-Q8_0.gguf", "tiny-F16.gguf", projector, other):
        shutil.copy(talker / (projector if name.startswith("mmproj") else text), tmp_path / name)
    with pytest.raises(ModelError, match=r"holds tiny-F16\.gguf, tiny-F32\.gguf, tiny-Q8_0\.gguf: give one"):
        find_judge_files(tmp_path, None)
    assert find_judge_files(tmp_path / text, None).projector.name == projector
    assert find_judge_files(tmp_path / "tiny-F16.gguf", None).projector.name in (projector, other)
    assert find_judge_files(tmp_path / "tiny-F16.gguf", tmp_path / other).projector == tmp_path / other
    assert find_judge_files(BUNDLED.text.parent, None).text == BUNDLED.text
    with pytest.raises(ModelError, match="is not here"):
        find_judge_files(tmp_path / "absent.gguf", None)


def test_a_weight_of_another_architecture_is_refused_by_name() -> None:
    assert node_of("blk.12.ffn_down.weight") == "ffn_swiglu-12"
    for weight in ("blk.0.attn_qkv.weight", "blk.0.ffn_down_exps.weight", "rope_freqs.weight", "v.blk.0.attn_q.weight"):
        with pytest.raises(ModelError, match=weight):
            node_of(weight)


def test_command_line(talker: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken, listed, out = tmp_path / "broken.mp4", tmp_path / "pairs.csv", tmp_path / "m.imatrix.gguf"
    broken.write_bytes(b"no video")
    listed.write_text(f"a,b,caption\nbroken.mp4,broken.mp4,x\n{EXAMPLE.a},{EXAMPLE.b},a square\n", "utf-8")
    status, printed, err = run_convert(capfd, "calibrate", talker, "--pairs", listed, "--out", out)
    assert (status, printed.split()[1:]) == (0, [str(out.stat().st_size), str(out)])
    assert err.splitlines()[-1].startswith(f"convert: {broken}, {broken} passed over: ")
    status, printed, err = run_convert(capfd, "quantize", talker, "--type", "q4_0", "--imatrix", out)
    assert status == 0, err
    Path(printed.split()[2]).unlink()
    out.unlink()
    before = {path: path.read_bytes() for folder in (tmp_path, talker) for path in folder.iterdir()}
    pair, here = ("--clips", EXAMPLE.a, EXAMPLE.b), ("--out", out)
    for arguments, status, message in (
        ((talker, *here), 2, "nothing to judge"),
        ((talker, "--clips", EXAMPLE.a, tmp_path / "absent.mp4", *here), 2, "absent.mp4"),
        ((talker, *pair, "--caption", "a", "--caption", "b", *here), 2, "--caption"),
        ((talker, *pair, "--caption", "a" * 8001, *here), 2, "longer than 8000"),
        ((talker, "--clips", broken, broken, *here), 4, "no pair could be judged"),
        ((tmp_path, *pair, *here), 4, "holds no text model"),
        ((talker, *pair, "--out", listed), 2, "is no importance matrix"),
        ((talker, *pair, "--out", find(talker).text), 2, "is no importance matrix"),
        ((talker, *pair, "--out", tmp_path), 2, "is no importance matrix"),
        ((talker, *pair, "--out", tmp_path / "absent" / "m.gguf"), 2, "there is no folder"),
    ):
        failed = run_convert(capfd, "calibrate", *arguments)
        assert failed[:2] == (status, ""), failed
        assert message in failed[2].splitlines()[-1]
    assert {path: path.read_bytes() for folder in (tmp_path, talker) for path in folder.iterdir()} == before
