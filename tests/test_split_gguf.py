"""A model whose text GGUF is split into parts: found, chosen, estimated and judged with like the whole file."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import sharded_checkpoint
from split_gguf import split

from convert.quantize import quantize_pair
from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.disk import file_sha256
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import read_shape
from vrt_lite.machine import Machine
from vrt_lite.models import find
from vrt_lite.models.gguf import list_pair, quant_of, read_gguf
from vrt_lite.records.judgement import Judgement
from vrt_lite.tuning import tuning_path

ROOT = Path(__file__).parent.parent
JUDGE = find("vrt-tiny-0")


@pytest.fixture(scope="module", params=[False, True], ids=["weights in each part", "no weights in the first"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled judge, its text split into four parts or more."""
    folder = tmp_path_factory.mktemp("made") / "judge"
    shutil.copytree(JUDGE.text.parent, folder, ignore=shutil.ignore_patterns(JUDGE.text.name))
    assert len(split(JUDGE.text, folder / JUDGE.text.name, tensors=20, small_first=request.param)) >= 4
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(made, tmp_path / "judge"))


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("vrt-tiny-0-*-of-*.gguf"))


def test_a_split_model_is_found_and_read_like_the_whole_file(made: Path) -> None:
    first, *_, last = parts(made)
    assert list_pair(made) == ([first], [made / JUDGE.projector.name])
    for given in (made, *parts(made)):
        files = find(given)
        assert (files.text, files.projector.name) == (first, JUDGE.projector.name)
    assert (find(made).name, find(last).name, quant_of(first.name)) == ("judge", JUDGE.text.stem, "Q8_0")
    whole, joined = read_gguf(JUDGE.text), read_gguf(first)
    assert joined.tensors == whole.tensors
    extra = {"split.no": 0, "split.count": len(parts(made)), "split.tensors.count": len(whole.tensors)}
    assert joined.values == whole.values | extra
    assert read_shape(find(made)) == read_shape(JUDGE)


def judged_by(model: Path) -> Judgement:
    clips = [ROOT / "examples" / name for name in ("a.mp4", "b.mp4")]
    with Judge(model) as judge:
        return judge.compare(*clips, prompt="A red square moving right.")


@pytest.fixture(scope="module")
def reference() -> Judgement:
    """That of the whole file."""
    return judged_by(JUDGE.text.parent)


def test_its_verdict_is_that_of_the_whole_file(made: Path, reference: Judgement) -> None:
    def told(judgement: Judgement) -> object:
        rounds = [judged for order in judgement.orders for judged in order.rounds]
        return judgement.verdict, [(judged.text, judged.tokens_in, judged.tokens_out) for judged in rounds]

    judgement = judged_by(parts(made)[0])
    assert told(judgement) == told(reference)
    assert judgement.model.text
    assert judgement.model.text.file == parts(made)[0].name
    digests = "".join(file_sha256(path) for path in parts(made))
    assert judgement.model.text.sha256 == hashlib.sha256(digests.encode()).hexdigest()


def test_a_tuning_is_that_of_all_parts(folder: Path) -> None:
    machine, files = Machine("A processor", 8, (), "an engine", "0123"), find(folder)
    before = tuning_path(files, machine)
    assert tuning_path(replace(files, name="another"), machine) == before
    with parts(folder)[-1].open("ab") as file:
        file.write(bytes(32))
    assert tuning_path(files, machine) != before


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_missing_or_damaged_part_is_named_in_one_line(
    folder: Path, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    files = parts(folder)
    part, other = files[number], files[number - 1]
    data = part.read_bytes()
    part.write_bytes(data[: len(data) // 3])
    for damage, says in (
        (lambda: None, "is not a whole GGUF file"),
        (part.unlink, f"cannot be read: No such file or directory. The model is split into {len(files)} files"),
    ):
        damage()
        for given in (folder, other):
            assert run(["estimate", str(given)]) == 4
            out, err = capfd.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert part.name in err
            assert says in err


def test_parts_that_do_not_belong_together_are_refused(folder: Path, tmp_path: Path) -> None:
    first, second, third, *_ = parts(folder)
    shutil.copy(third, second)
    with pytest.raises(ModelError, match=r"00001-of-\d+\.gguf: what is in the file and its name do not agree"):
        find(folder)
    with pytest.raises(ModelError, match=r"alone\.gguf: what is in the file and its name do not agree"):
        read_gguf(Path(shutil.copy(third, tmp_path / "alone.gguf")))
    other = find("vrt-tiny-2").text
    count = len(read_gguf(other).tensors) // (len(parts(folder)) - 1)
    shutil.copy(split(other, tmp_path / "other.gguf", tensors=count)[1], second)
    with pytest.raises(ModelError, match="or they are of several models"):
        read_gguf(first)


def test_a_split_file_is_quantised_like_the_whole_one(tmp_path: Path) -> None:
    text, _ = export_pair(sharded_checkpoint.make(tmp_path / "judge", shards=1), tmp_path / "whole", text_type="bf16")
    (tmp_path / "split").mkdir()
    assert len(split(text, tmp_path / "split" / text.name, tensors=20)) > 2
    done = [quantize_pair(tmp_path / name, text_type="q8_0")[0] for name in ("whole", "split")]
    assert file_sha256(done[0]) == file_sha256(done[1])
    assert done[0].name == done[1].name == "judge-Q8_0.gguf"
