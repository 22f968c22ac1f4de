"""Reading a reward model's checkpoint: only tables of weights are read from a pickle, and LoRA must fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import head_cases
import numpy as np
import pytest
import synthetic_checkpoint as synthetic
import torch_archive as archive

from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.weights import read_weights
from vrt_lite.errors import ModelError, UsageError


class Hostile:
    def __reduce__(self) -> object:
        return exec, ("raise SystemExit('it was run')",)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_values_are_read_from_where_they_are(tmp_path: Path, dtype: str) -> None:
    tensors = {f"t{i}": synthetic.random_weights(f"t{i}", (3 + i, 5)) for i in range(4)}
    archive.write_state(tmp_path / "model.pth", tensors, dtype=dtype)
    found = read_weights(tmp_path / "model.pth")
    assert list(found) == list(tensors)
    for name, values in tensors.items():
        wanted = synthetic.widen(synthetic.stored(values, dtype), dtype)
        np.testing.assert_array_equal(found[name].rows(0, len(values)), wanted)


def test_tensors_may_share_a_storage(tmp_path: Path) -> None:
    values = synthetic.random_weights("shared", (6, 2))
    pieces = [("all", archive.piece("0", (6, 2), "F32")), ("end", archive.piece("0", (2, 2), "F32", offset=8))]
    archive.write_archive(tmp_path / "model.pth", archive.pickle_of(pieces), {"0": values.tobytes()})
    found = read_weights(tmp_path / "model.pth")
    np.testing.assert_array_equal(found["end"].rows(0, 2), values[4:])


def one(value: bytes) -> bytes:
    """The pickle of a state dict with one entry."""
    return archive.pickle_of([("x", value)])


ROWS = one(archive.piece("0", (2, 3), "F32"))
WRONG = {
    "a call": (pickle.dumps(Hostile(), protocol=2), "exec'?, which no table of weights needs"),
    "a call by another way": (b"cos\nsystem\n(X\x02\x00\x00\x00lstR.", "os.system"),
    "a class of torch": (b"ctorch.nn\nLinear\n)R.", "torch.nn.Linear"),
    "an old name": (b"c__builtin__\neval\n(X\x01\x00\x00\x001tR.", "eval"),
    "no table": (pickle.dumps([1, 2], protocol=2), "cannot be read"),
    "a number for a tensor": (one(archive.number(7)), "cannot be read"),
    "a storage that is too small": (one(archive.piece("0", (5, 5), "F32")), "does not hold"),
    "no storage": (one(archive.piece("1", (2,), "F32")), "cannot be read"),
    "cut": (ROWS[:-9], "cannot be read"),
    "rows in another order": (ROWS.replace(archive.numbers((3, 1)), archive.numbers((1, 2))), "the strides"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_table_of_weights_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    pickled, says = WRONG[case]
    archive.write_archive(tmp_path / "model.pth", pickled, {"0": bytes(48)})
    with pytest.raises(ModelError, match=says) as caught:
        read_weights(tmp_path / "model.pth")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "model.pth") in str(caught.value)


def test_no_file_or_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    with pytest.raises(ModelError, match="is missing"):
        read_weights(path)
    path.write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ModelError, match="cannot be read"):
        read_weights(path)


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    folder, out = tmp_path / "c", tmp_path / "out"
    head_cases.make_checkpoint(folder)
    with pytest.raises(UsageError, match="has an adapter of its own: leave out --lora"):
        export_pair(folder, out, adapter=tmp_path)
    weights = head_cases.state()
    half = next(name for name in weights if ".lora_A." in name)
    for given, says in (
        ({name: values for name, values in weights.items() if name != half}, "is None, "),
        (weights | {half: weights[half][:-1]}, r"is \(7, "),
        (weights | {"base_model.model.model.layers.0.mlp.more.weight": weights[half]}, "none that config.json"),
    ):
        archive.write_state(folder / "model.pth", given, dtype="BF16")
        with pytest.raises(ModelError, match=says):
            export_pair(folder, out)
    (folder / "model_config.json").unlink()
    with pytest.raises(ModelError, match=r"model_config\.json is missing"):
        export_pair(folder, out)
    assert not out.exists()
