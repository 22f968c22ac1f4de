"""Sets in their published layouts and plain tables: what is read, what is left out, where clips are found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from evaluation import make_sets

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.layouts import LAYOUTS, find_set_name, layouts_of
from vrt_lite.evaluation.published import find_published
from vrt_lite.evaluation.sets import LabelledSet, choose_pairs, locate_set, read_set

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


@pytest.mark.parametrize(
    ("folder", "name", "split"),
    [
        ("genai-bench", "genai-bench", "test_v1"),  # the authors' own split, where both are there
        ("genai-bench-unifiedreward", "genai-bench", "unifiedreward"),
        ("videogen-rewardbench", "videogen-rewardbench", "eval"),
        ("mj-bench-video", "mj-bench-video", "test"),
    ],
)
def test_a_set_and_its_split_are_recognised(folder: str, name: str, split: str) -> None:
    [layout] = layouts_of(name, split)
    place = locate_set(SETS / folder)
    assert place.layout is layout
    assert locate_set(SETS / folder, name=name) == place
    assert locate_set(SETS / folder, name=name, split=split) == place
    assert locate_set(place.table).layout is layout
    assert locate_set(place.table, name=name, split=split).layout is layout


def test_a_split_is_taken_when_asked_for() -> None:
    place = locate_set(SETS / "genai-bench", name="genai-bench", split="test")
    assert (place.table.name, place.layout.split) == ("test-00000-of-00001.jsonl", "test")
    assert locate_set(SETS / "genai-bench", split="test") == place
    assert labels(read_set(place)) == [{"OA": label} for label in (0, 2, 0, 0, 2)]
    with pytest.raises(UsageError, match=r"genai-bench has no split 'dev'; known are test_v1, test, unifiedreward"):
        locate_set(SETS / "genai-bench", name="genai-bench", split="dev")
    with pytest.raises(UsageError, match="split test, not 'test_v1'"):
        locate_set(place.table, split="test_v1")
    with pytest.raises(UsageError, match="not laid out as GenAI-Bench"):
        locate_set(SETS / "mj-bench-video" / "test.json", name="genai-bench", split="test")


@pytest.mark.parametrize(
    ("table", "split"),
    [
        ("video_generation/test_v1/0000.jsonl", "test_v1"),  # as the hub's own conversion names them
        ("video_generation/test/0000.jsonl", "test"),
        ("train_v1-00000-of-00001.jsonl", "test_v1"),
        ("video_generation/train-00000-of-00001.jsonl", ""),  # of one split first, of the other later
        ("some.jsonl", ""),
        ("test/some.jsonl", ""),
    ],
)
def test_a_tables_name_tells_its_split_or_nothing_does(tmp_path: Path, table: str, split: str) -> None:
    path = tmp_path / table
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_sets.genai())
    whole = path.parent if path.name == "some.jsonl" else tmp_path
    for place in (locate_set(path), locate_set(whole), locate_set(whole, name="genai-bench")):
        assert (place.table, place.layout.name, place.layout.split) == (path, "genai-bench", split)
    if not split:
        assert locate_set(path, split="test").layout.split == locate_set(whole, split="test").layout.split == "test"


def test_unified_rewards_table_is_read_as_genai_benchs() -> None:
    found = read_set(locate_set(SETS / "genai-bench-unifiedreward"))
    assert labels(found) == labels(read_set(locate_set(SETS / "genai-bench")))
    assert (found.pairs[1].a, found.pairs[1].b) == (f"{1:032x}.mp4", f"{257:032x}.mp4")
    assert found.pairs[1].prompt == "A made-up prompt, number 1."


def test_names_of_the_hub_are_known() -> None:
    assert find_set_name("KlingTeam/VideoGen-RewardBench") == "videogen-rewardbench"
    assert (
        find_set_name("kwaivgi/videogen-rewardbench") == find_set_name("VideoGen-RewardBench") == "videogen-rewardbench"
    )
    assert find_set_name("somewhere/else") is None
    assert find_set_name("") is None


def test_genai_labels() -> None:
    found = read_set(locate_set(SETS / "genai-bench"))
    assert labels(found) == [{"OA": label} for label in (1, 2, 0, 0, 1, 2)]
    assert found.pairs[0].a.endswith("/dir/g1a.mp4")


def test_videogen_labels_and_empty_cells() -> None:
    found = read_set(locate_set(SETS / "videogen-rewardbench"))
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
    found = read_set(locate_set(SETS / "mj-bench-video"))
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
    found = read_set(locate_set(table(tmp_path, text)))
    assert [(p.name, p.a, p.prompt, dict(p.labels), p.group) for p in found.pairs] == [
        ("x", "1.mp4", "p", {"OA": 1, "TA": 1}, "g"),
        ("y", "1.mp4", "", {"OA": 0}, ""),
    ]
    assert found.left_out_counts == {"unlabelled": 1}
    objects = [{"a": "1.mp4", "b": "2.mp4", "overall": label} for label in (1, 2.0, 0, None, float("nan"))]
    found = read_set(locate_set(table(tmp_path, "".join(json.dumps(line) + "\n" for line in objects), "pairs.jsonl")))
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
    found = read_set(locate_set(table(tmp_path, "\n".join(rows), "pairs.jsonl")))
    assert [pair.row for pair in found.pairs] == [1, 9]
    assert [out.row for out in found.left_out] == [2, 3, 4, 5, 6, 7, 8]
    assert {out.kind for out in found.left_out} == {"broken"}
    assert "'left'" in found.left_out[4].reason


def test_a_csv_row_of_another_length_is_broken(tmp_path: Path) -> None:
    found = read_set(locate_set(table(tmp_path, "a,b,overall\n1.mp4,2.mp4,A\n1.mp4,2.mp4\n\n1.mp4,2.mp4,B,x\n")))
    assert [out.reason for out in found.left_out] == ["row 2 has 2 cells, not 3", "row 3 has 4 cells, not 3"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("pairs.csv", "x,y\n1,2\n", "no known table"),
        ("pairs.csv", "", "no known table"),
        ("pairs.csv", "a,b,overall\n", "no known table"),
        ("pairs.csv", "a,b,overall\n1,2,\n", "no pair that can be judged"),
        ("pairs.json", "{", "no known table"),
        ("pairs.json", "3", "no known table"),
        ("pairs.txt", "a,b", "no table of pairs"),
    ],
)
def test_a_file_that_is_no_set_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_set(locate_set(table(tmp_path, text, name)))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_bytes(b"a,b,prompt,overall\n1,2,\xff\xfe,A\n")
    with pytest.raises(UsageError, match="UTF-8"):
        locate_set(tmp_path / "pairs.csv")


def test_two_tables_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        table(tmp_path, "a,b,overall\n1,2,A\n", name)
    with pytest.raises(UsageError, match=r"one\.csv, two\.csv"):
        locate_set(tmp_path)
    assert locate_set(tmp_path / "two.csv").table.name == "two.csv"


def test_a_set_by_name_must_have_its_columns(tmp_path: Path) -> None:
    (tmp_path / "videogen-rewardbench.csv").write_text("path_A,path_B\nx,y\n")
    with pytest.raises(UsageError, match=r"not laid out as VideoGen-RewardBench: it has no column MQ, Overall"):
        locate_set(tmp_path, name="videogen-rewardbench")


def test_parquet_is_read_as_jsonl_is(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    rows = [json.loads(line) for line in make_sets.genai().splitlines()]
    wrapped = [{**row, "left_video": {"path": row["left_video"], "bytes": None}, "extra": b"\xff"} for row in rows]
    for name, made in (("plain", rows), ("wrapped", wrapped)):
        path = tmp_path / name / "video_generation" / "test_v1-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(Table.from_pylist(made), path)
        (path.parent / "test-00000-of-00001.parquet").write_bytes(b"not this one")
        found = read_set(locate_set(tmp_path / name))
        assert found.pairs == read_set(locate_set(SETS / "genai-bench")).pairs
    path.write_bytes(b"PAR1 no")
    with pytest.raises(UsageError, match="no parquet"):
        locate_set(tmp_path / "wrapped")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r" -m pip install .*'pyarrow>="):
        locate_set(tmp_path / "x.parquet")


def test_a_sample_is_the_same_each_time_and_holds_the_smaller_one(tmp_path: Path) -> None:
    text = "a,b,overall\n" + "1,2,A\n" * 50
    pairs = read_set(locate_set(table(tmp_path, text))).pairs
    small, large = (choose_pairs(pairs, sample=n, seed=5) for n in (7, 20))
    assert len(small) == 7
    assert {p.row for p in small} < {p.row for p in large}
    assert [p.row for p in small] == sorted(p.row for p in small)
    assert choose_pairs(pairs, sample=7, seed=5) == small != choose_pairs(pairs, sample=7, seed=6)
    assert [p.row for p in choose_pairs(pairs, limit=3)] == [1, 2, 3]


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


def test_a_users_own_paths_are_followed(folder: Path) -> None:
    """Of the user's own table: absolute and `..` paths; all else as in a published set."""
    secret = folder.parent / "secret.mp4"
    own = Clips(folder, anywhere=True)
    for path in (str(secret), "../secret.mp4", "deep/../../secret.mp4", "..\\secret.mp4"):
        found = own.find(path)
        assert isinstance(found, Path)
        assert found.samefile(secret)
    assert own.find("elsewhere/name.mp4") == folder / "deep" / "er" / "name.mp4"
    assert "is not in" in str(own.find("../nowhere.mp4"))
    assert "no file name" in str(own.find("/"))


def test_only_a_plain_table_is_the_users_own() -> None:
    assert [layout.name for layout in LAYOUTS if layout.own] == ["pairs"]


def values(name: str, split: str) -> dict[str, dict[str, float]]:
    found = find_published(name, split)
    assert found is not None
    return {
        model: {figure.measure: figure.value for figure in found.figures if figure.model == model}
        for model in found.models
    }


def test_published_figures_stand_beside_the_measure_that_they_can_be_of() -> None:
    genai, videogen = values("genai-bench", "test"), values("videogen-rewardbench", "eval")
    assert len(genai) == len(videogen) == 6
    assert genai["VR-Thinker 7B"] == {"tau": 0.687, "diff": 0.823}
    # At diff 80.4, a tau of 64.7 is impossible for a script that calls every tie wrong.
    assert genai["UnifiedReward-Think 7B"] == {"diff": 0.804}
    assert values("genai-bench", "unifiedreward") == {"UnifiedReward-Think 7B": {"tau": 0.548, "diff": 0.709}}
    # What is computed from scores has a fitted tie threshold.
    for table in (genai, videogen):
        for model in ("VideoScore 7B", "VideoReward 2B", "VisionReward 13B"):
            assert table[model].keys() == {"calibrated", "sign"}
    assert videogen["VideoReward 2B"] == {"calibrated": 0.608, "sign": 0.738}
    assert videogen["VR-Thinker 7B"] == {"tau": 0.718, "diff": 0.805}


def test_published_figures_are_of_one_split_and_have_a_source() -> None:
    other = find_published("videogen-rewardbench", "other")
    assert other is not None
    assert (other.figures, other.other_splits) == ((), ("eval",))
    assert find_published("pairs", "") is None
    mj = find_published("mj-bench-video", "test")
    assert mj is not None
    assert (mj.figures, mj.other_splits) == ((), ())
    assert "89.0 % of the labels are ties" in mj.left_out[0]
    for split in ("test", "test_v1", "unifiedreward"):
        genai = find_published("genai-bench", split)
        assert genai is not None
        assert set(genai.other_splits) == {"test", "unifiedreward"} - {split}
        assert [reason.count("64.7") for reason in genai.left_out] == [1] * (split == "test")
        assert all("arXiv 2" in figure.source and 0 < figure.value < 1 for figure in genai.figures)
