"""Sets in their published layouts and plain tables: what is read, what is left out, where clips are found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from evaluation import make_sets

from vrt_lite.errors import UsageError
from vrt_lite.evaluation import published
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.layouts import named
from vrt_lite.evaluation.sets import LabelledSet, choose, locate, read

SETS = Path(__file__).parent / "sets"


def table(folder: Path, text: str, name: str = "pairs.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def labels(found: LabelledSet) -> list[dict[str, int]]:
    return [dict(pair.labels) for pair in found.pairs]


def test_the_fixtures_are_what_their_script_makes() -> None:
    for name, make in make_sets.FILES.items():
        assert (SETS / name).read_bytes() == make().encode()


@pytest.mark.parametrize("name", ["genai-bench", "videogen-rewardbench", "mj-bench-video"])
def test_a_folder_is_recognised(name: str) -> None:
    layout = named(name)
    assert layout is not None
    assert locate(SETS / name).layout is layout
    assert locate(SETS / name, layout=layout).table.is_file()
    assert locate(locate(SETS / name).table).layout is layout


def test_names_of_the_hub_are_known() -> None:
    assert (
        named("KlingTeam/VideoGen-RewardBench")
        is named("kwaivgi/videogen-rewardbench")
        is named("VideoGen-RewardBench")
    )
    assert named("somewhere/else") is None


def test_genai_labels() -> None:
    found = read(locate(SETS / "genai-bench"))
    assert labels(found) == [{"OA": label} for label in (1, 2, 0, 0, 1, 2)]
    assert found.pairs[0].a.endswith("/dir/g1a.mp4")


def test_videogen_labels_and_empty_cells() -> None:
    found = read(locate(SETS / "videogen-rewardbench"))
    assert labels(found) == [
        {"OA": 1, "TA": 1, "VQ": 0, "MQ": 1},
        {"OA": 2, "TA": 2, "VQ": 2},
        {"OA": 0, "TA": 1, "MQ": 0},
        {"OA": 1, "TA": 0, "VQ": 1, "MQ": 2},
        {"TA": 2, "VQ": 2, "MQ": 1},
    ]
    assert found.pairs[0].prompt == "Shared,\nby two."
    assert found.place.layout.preset == "videogen-reward"


def test_mj_labels_discard_and_hard_to_judge() -> None:
    found = read(locate(SETS / "mj-bench-video"))
    assert labels(found) == [
        {"OA": 1, "TA": 1, "VQ": 0, "MQ": 2},
        {"OA": 0, "TA": 0, "VQ": 0, "MQ": 0},
        {"OA": 2, "VQ": 2, "MQ": 0},
        {"TA": 0, "VQ": 1, "MQ": 0},
        {"OA": 0, "TA": 1, "VQ": 0, "MQ": 0},
    ]
    assert found.left_out_counts == {"discarded": 1}


def test_plain_tables(tmp_path: Path) -> None:
    lines = [
        "\ufeffid,A,b,prompt,TA,overall,group",
        "x,1.mp4,2.mp4,p,A,1,g",
        "y,1.mp4,2.mp4,,,same,",
        "z,1.mp4,2.mp4,,nan,NaN,",
    ]
    text = "\r\n".join(lines)
    found = read(locate(table(tmp_path, text)))
    assert [(p.name, p.a, p.prompt, dict(p.labels), p.group) for p in found.pairs] == [
        ("x", "1.mp4", "p", {"OA": 1, "TA": 1}, "g"),
        ("y", "1.mp4", "", {"OA": 0}, ""),
    ]
    assert found.left_out_counts == {"unlabelled": 1}
    objects = [{"a": "1.mp4", "b": "2.mp4", "overall": label} for label in (1, 2.0, 0, None, float("nan"))]
    found = read(locate(table(tmp_path, "".join(json.dumps(line) + "\n" for line in objects), "pairs.jsonl")))
    assert labels(found) == [{"OA": 1}, {"OA": 2}, {"OA": 0}]


def test_broken_rows_are_named_and_hide_no_other(tmp_path: Path) -> None:
    rows = [
        '{"a": "1.mp4", "b": "2.mp4", "overall": "A"}',
        '{"a": "1.mp4", "b": ',
        "[1, 2]",
        '{"a": "1.mp4", "overall": "A"}',
        '{"a": "", "b": "2.mp4", "overall": "A"}',
        '{"a": "1.mp4", "b": "2.mp4", "overall": "left"}',
        '{"a": "1\\u0000.mp4", "b": "2.mp4", "overall": "A"}',
        json.dumps({"a": "1.mp4", "b": "2.mp4", "overall": "A", "prompt": "x" * 8001}),
        '{"a": "1.mp4", "b": "2.mp4", "overall": "B"}',
    ]
    found = read(locate(table(tmp_path, "\n".join(rows), "pairs.jsonl")))
    assert [pair.row for pair in found.pairs] == [1, 9]
    assert [out.row for out in found.left_out] == [2, 3, 4, 5, 6, 7, 8]
    assert {out.kind for out in found.left_out} == {"broken"}
    assert "'left'" in found.left_out[4].why


def test_a_csv_row_of_another_length_is_broken(tmp_path: Path) -> None:
    found = read(locate(table(tmp_path, "a,b,overall\n1.mp4,2.mp4,A\n1.mp4,2.mp4\n\n1.mp4,2.mp4,B,x\n")))
    assert [out.why for out in found.left_out] == ["row 2 has 2 cells, not 3", "row 3 has 4 cells, not 3"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("pairs.csv", "x,y\n1,2\n", "no known table"),
        ("pairs.csv", "", "no known table"),
        ("pairs.csv", "a,b,overall\n", "no known table"),
        ("pairs.csv", "a,b,overall\n1,2,\n", "no pair that can be judged"),
        ("pairs.json", "{", "no known table"),
        ("pairs.json", "3", "no list of pairs"),
        ("pairs.txt", "a,b", "no table of pairs"),
    ],
)
def test_a_file_that_is_no_set_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(locate(table(tmp_path, text, name)))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_bytes(b"a,b,prompt,overall\n1,2,\xff\xfe,A\n")
    with pytest.raises(UsageError, match="UTF-8"):
        locate(tmp_path / "pairs.csv")


def test_two_tables_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        table(tmp_path, "a,b,overall\n1,2,A\n", name)
    with pytest.raises(UsageError, match=r"one\.csv, two\.csv"):
        locate(tmp_path)
    assert locate(tmp_path / "two.csv").table.name == "two.csv"


def test_a_set_by_name_must_have_its_columns(tmp_path: Path) -> None:
    (tmp_path / "videogen-rewardbench.csv").write_text("path_A,path_B\nx,y\n")
    with pytest.raises(UsageError, match=r"not laid out as VideoGen-RewardBench: videogen-rewardbench\.csv"):
        locate(tmp_path, layout=named("videogen-rewardbench"))


def test_parquet_is_read_as_jsonl_is(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    rows = [json.loads(line) for line in make_sets.genai().splitlines()]
    wrapped = [{**row, "left_video": {"path": row["left_video"], "bytes": None}, "extra": b"\xff"} for row in rows]
    for name, made in (("plain", rows), ("wrapped", wrapped)):
        path = tmp_path / name / "video_generation" / "test_v1-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(Table.from_pylist(made), path)
        (path.parent / "test-00000-of-00001.parquet").write_bytes(b"not this one")
        found = read(locate(tmp_path / name))
        assert found.pairs == read(locate(SETS / "genai-bench")).pairs
    path.write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match="no parquet"):
        locate(tmp_path / "wrapped")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"pip install 'vrt-lite\[eval\]'"):
        locate(tmp_path / "x.parquet")


def test_a_sample_is_the_same_each_time_and_holds_the_smaller_one(tmp_path: Path) -> None:
    text = "a,b,overall\n" + "1,2,A\n" * 50
    pairs = read(locate(table(tmp_path, text))).pairs
    small, large = (choose(pairs, sample=n, seed=5) for n in (7, 20))
    assert len(small) == 7
    assert {p.row for p in small} < {p.row for p in large}
    assert [p.row for p in small] == sorted(p.row for p in small)
    assert choose(pairs, sample=7, seed=5) == small != choose(pairs, sample=7, seed=6)
    assert [p.row for p in choose(pairs, limit=3)] == [1, 2, 3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "set/videos/test/0_0.mp4",
        "set/one/same.mp4",
        "set/other/same.mp4",
        "set/deep/er/name.mp4",
        "secret.mp4",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("test/0_0.mp4", "videos/test/0_0.mp4"),
        ("deep/er/name.mp4", "deep/er/name.mp4"),
        ("deep\\er\\name.mp4", "deep/er/name.mp4"),
        ("elsewhere/name.mp4", "deep/er/name.mp4"),
        ("/data/sets/er/name.mp4", "deep/er/name.mp4"),
        ("C:\\data\\name.mp4", "deep/er/name.mp4"),
        ("https://host.example/a/other/same.mp4?x=1", "other/same.mp4"),
        ("x/one/same.mp4", "one/same.mp4"),
    ],
)
def test_clips_are_found_in_the_folder(folder: Path, named: str, found: str) -> None:
    assert Clips(folder).find(named) == folder / found


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("../secret.mp4", "refused"),
        ("deep/../../secret.mp4", "refused"),
        ("..\\secret.mp4", "refused"),
        ("https://host.example/%2e%2e/secret.mp4", "refused"),
        ("secret.mp4", "is not in"),
        ("/etc/passwd", "is not in"),
        ("same.mp4", "may be"),
        ("/", "no file name"),
        ("file:///", "no file name"),
    ],
)
def test_clips_elsewhere_are_not(folder: Path, named: str, says: str) -> None:
    got: Any = Clips(folder).find(named)
    assert isinstance(got, str)
    assert says in got


def test_an_absolute_path_inside_the_folder_is_taken_as_it_is(folder: Path) -> None:
    path = folder / "one" / "same.mp4"
    assert Clips(folder).find(str(path)) == path
    assert isinstance(Clips(folder).find(str(folder.parent / "secret.mp4")), str)


def test_published_figures_are_the_papers() -> None:
    assert published.published("genai-bench")["VR-Thinker 7B"] == (0.687, 0.823)
    assert published.published("videogen-rewardbench")["VideoReward 2B"] == (0.608, 0.738)
    assert published.published("mj-bench-video")["VisionReward 13B"] == (0.541, 0.652)
    assert published.published("pairs") == {}
