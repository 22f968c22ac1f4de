"""A folder with a model in several types: which one is taken, who says so, and what is refused."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from vrt_lite.api import Judge
from vrt_lite.cli import run
from vrt_lite.machine import Machine
from vrt_lite.models import find
from vrt_lite.models.quants import CONTEXT_BYTES, SHARE_OF_MEMORY
from vrt_lite.tuning import choose_projector

ROOT = Path(__file__).parent.parent
CLIPS = [str(ROOT / "examples" / name) for name in ("a.mp4", "b.mp4")]
PROMPT = "A red square moving right."
JUDGE = find("vrt-tiny-0")
MB = 10**6
F32, F16, Q3_K_M, Q2_K, Q4_K_M, Q5_K_M, Q8_0, BF16 = 0, 1, 12, 10, 15, 17, 7, 32
Kinds = Mapping[str, tuple[int, int]]
"""Files to write, by name: the type that the header says, and the size in MB."""


def write(folder: Path, kinds: Kinds) -> Path:
    """The bundled judge under other names, types and sizes; its weights stay what they are."""
    folder.mkdir()
    for path in JUDGE.text.parent.iterdir():
        if path != JUDGE.text:
            shutil.copy(path, folder)
    for name, (kind, size) in kinds.items():
        (folder / name).write_bytes(changed(JUDGE.text.read_bytes(), "general.file_type", Q8_0, kind))
        with (folder / name).open("r+b") as file:
            file.truncate(size * MB)
    return folder


def changed(data: bytes, key: str, old: int, new: int) -> bytes:
    """A GGUF with another 32-bit number in its header."""
    entry = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 4)
    assert data.count(entry + struct.pack("<I", old)) == 1
    return data.replace(entry + struct.pack("<I", old), entry + struct.pack("<I", new))


def memory_for(megabytes: float) -> int:
    """The memory of a machine whose largest fitting text file is of so many MB."""
    needed = megabytes * MB + CONTEXT_BYTES + JUDGE.projector.stat().st_size
    return int(needed / SHARE_OF_MEMORY) + 2


@pytest.mark.parametrize(
    ("kinds", "megabytes", "taken"),
    [
        ({"x-BF16.gguf": (BF16, 16), "x-Q4_K_M.gguf": (Q4_K_M, 6)}, 99, "x-Q4_K_M.gguf"),
        ({"x-Q8_0.gguf": (Q8_0, 9), "x-Q4_K_M.gguf": (Q4_K_M, 6), "x-Q5_K_M.gguf": (Q5_K_M, 7)}, 9, "x-Q8_0.gguf"),
        ({"x-Q8_0.gguf": (Q8_0, 9), "x-Q4_K_M.gguf": (Q4_K_M, 6), "x-Q5_K_M.gguf": (Q5_K_M, 7)}, 8.9, "x-Q5_K_M.gguf"),
        # Below Q4_K_M any is better than none, but none of them is better than Q4_K_M.
        ({"x-Q3_K_M.gguf": (Q3_K_M, 8), "x-Q4_K_M.gguf": (Q4_K_M, 7)}, 99, "x-Q4_K_M.gguf"),
        ({"x-Q3_K_M.gguf": (Q3_K_M, 7), "x-Q2_K.gguf": (Q2_K, 6), "x-F16.gguf": (F16, 16)}, 99, "x-Q3_K_M.gguf"),
        ({"x-F16.gguf": (F16, 8), "x-F32.gguf": (F32, 16)}, 15, "x-F16.gguf"),
        # Nothing fits: the plan says what follows.
        ({"x-BF16.gguf": (BF16, 16), "x-Q8_0.gguf": (Q8_0, 9), "x-Q4_K_M.gguf": (Q4_K_M, 6)}, 1, "x-Q4_K_M.gguf"),
    ],
)
def test_the_largest_good_quant_that_fits_is_taken(kinds: Kinds, megabytes: float, taken: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "judge", kinds)
    files = find(folder, memory_bytes=memory_for(megabytes))
    assert (files.name, files.text, set(files.texts)) == ("judge", folder / taken, {folder / name for name in kinds})
    assert files.choice.startswith(f"Using {folder / taken} (of {len(kinds)} in the folder; ")
    for name in kinds:
        named = find(folder / name, memory_bytes=0)
        assert (named.text, named.choice) == (folder / name, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A judge in two types; one does not fit a machine with 1.7 GB."""
    return write(tmp_path / "judge", {"x-BF16.gguf": (BF16, 16), "x-Q8_0.gguf": (Q8_0, 150), "x-Q4_K_M.gguf": (15, 6)})


def test_a_choice_of_projectors_stays(folder: Path) -> None:
    shutil.copy(folder / JUDGE.projector.name, folder / "mmproj-vrt-tiny-0-Q8_0.gguf")
    files = choose_projector(find(folder), lambda: Machine("A processor", 8, (), "an engine", "0123"))
    assert (files.text.name, files.projector.name) == ("x-Q8_0.gguf", JUDGE.projector.name)
    assert len(files.projectors) == 2
    assert files.choice


def test_one_text_file_leaves_no_choice() -> None:
    assert [find(model).choice for model in ("vrt-tiny-0", JUDGE.text, JUDGE.text.parent)] == ["", "", ""]


def test_files_of_other_names_are_named_and_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "x-Q4_K_M.gguf").rename(folder / "y-Q4_K_M.gguf")
    (folder / "x.imatrix.gguf").write_bytes(b"it is none of the model's files")
    assert run(["compare", *CLIPS, "--model", str(folder)]) == 4
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "found x-BF16.gguf, x-Q8_0.gguf, y-Q4_K_M.gguf. Give the file." in err
    assert find(folder / "x-Q8_0.gguf").text.name == "x-Q8_0.gguf"


def test_every_command_says_which_file_it_uses(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = find(folder).choice + "\n"
    table = tmp_path / "pairs.csv"
    table.write_text(f"a,b,prompt,overall\na.mp4,b.mp4,{PROMPT},A\n", encoding="utf-8")
    for first, *rest in (
        ("compare", *CLIPS, "--prompt", PROMPT),
        ("rank", *CLIPS, "--prompt", PROMPT, "--orders", "one"),
        ("eval", str(table), "--from", str(ROOT / "examples")),
        ("estimate", str(folder)),
        ("tune", str(folder), "--forget"),
    ):
        judging = [] if str(folder) in rest else ["--model", str(folder)]
        assert run([first, *rest, *judging]) == 0, capfd.readouterr().err
        out, err = capfd.readouterr()
        assert line in err
        assert line not in out
        if first == "compare":
            assert run([first, *rest, *judging, "-q"]) == 0
            assert line not in "".join(capfd.readouterr())


def test_a_smaller_machine_is_estimated_with_what_it_would_use(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for options, name in (((), "x-Q8_0.gguf"), (("--memory", "1.7"), "x-Q4_K_M.gguf")):
        assert run(["estimate", str(folder), "--json", *options]) == 0
        assert json.loads(capfd.readouterr().out)["notes"][0].startswith(f"Using {folder / name} (of 3")


def test_the_judgement_names_the_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Judge(folder) as judge:
        assert judge.files
        assert judge.files.choice
        judgement = judge.compare(*CLIPS, prompt=PROMPT)
    assert judgement.model.text
    assert judgement.model.text.file == judgement.to_json()["model"]["text"]["file"] == "x-Q8_0.gguf"
    assert not judgement.warnings
    assert run(["compare", *CLIPS, "--prompt", PROMPT, "--model", str(folder), "--json"]) == 0
    out, err = capfd.readouterr()
    assert (json.loads(out)["model"]["text"]["file"], err) == ("x-Q8_0.gguf", "")
