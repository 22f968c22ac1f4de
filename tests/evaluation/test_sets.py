"""Sets in their published layouts and plain tables: what is read, what is left out, where clips are found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.clips import Clips
from vrt_lite.evaluation.published import find_published
from vrt_lite.evaluation.sets import KEYS, LAYOUTS, LabelledSet, choose_pairs, find_set_name, locate_set, read_set

SETS = Path(__file__).parent / "sets"
GENAI = SETS / "genai-bench"
GENAI_TABLE = GENAI / "video_generation" / "test_v1-00000-of-00001.jsonl"


def table(folder: Path, text: str, name: str = "pairs.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def labels(found: LabelledSet) -> list[str]:
    """The labels of each pair in the order OA, TA, VQ, MQ; - where there is none."""
    return ["".join(str(pair.labels.get(key, "-")) for key in KEYS) for pair in found.pairs]


@pytest.mark.parametrize(
    ("folder", "split", "expected"),
    [
        # The authors' own split, where both are there.
        ("genai-bench", "test_v1", ["1---", "2---", "0---", "0---", "1---", "2---"]),
        ("genai-bench-unifiedreward", "unifiedreward", ["1---", "2---", "0---", "0---", "1---", "2---"]),
        ("videogen-rewardbench", "eval", ["1101", "222-", "01-0", "1012", "-221"]),
        ("mj-bench-video", "test", ["1102", "0000", "2-20", "-010", "0100"]),
    ],
)
def test_a_set_and_its_split_are_recognised_and_its_labels_read(folder: str, split: str, expected: list[str]) -> None:
    place, name = locate_set(SETS / folder), folder.removesuffix("-unifiedreward")
    assert (place.layout.name, place.layout.split) == (name, split)
    assert locate_set(SETS / folder, name=name) == locate_set(SETS / folder, name=name, split=split) == place
    assert locate_set(place.table).layout is locate_set(place.table, split=split).layout is place.layout
    found = read_set(place)
    assert labels(found) == expected
    assert found.left_out_counts == ({"discarded": 1} if name == "mj-bench-video" else {})


def test_names_of_the_hub_are_known() -> None:
    for name in ("KlingTeam/VideoGen-RewardBench", "kwaivgi/videogen-rewardbench", "VideoGen-RewardBench"):
        assert find_set_name(name) == "videogen-rewardbench"
    assert find_set_name("somewhere/else") is find_set_name("") is None


def test_clips_and_prompts_are_read_as_each_table_has_them() -> None:
    genai, reward, videogen = (
        read_set(locate_set(SETS / name))
        for name in ("genai-bench", "genai-bench-unifiedreward", "videogen-rewardbench")
    )
    assert genai.pairs[0].a.endswith("/dir/g1a.mp4")
    assert (reward.pairs[1].a, reward.pairs[1].b) == (f"{1:032x}.mp4", f"{257:032x}.mp4")
    assert reward.pairs[1].prompt == "A made-up prompt, number 1."
    assert (videogen.pairs[0].prompt, videogen.place.layout.preset) == ("Shared,\nby two.", "videogen-reward")


def test_a_split_is_taken_when_asked_for() -> None:
    place = locate_set(GENAI, name="genai-bench", split="test")
    assert (place.table.name, place.layout.split) == ("test-00000-of-00001.jsonl", "test")
    assert locate_set(GENAI, split="test") == place
    assert labels(read_set(place)) == ["0---", "2---", "0---", "0---", "2---"]
    with pytest.raises(UsageError, match=r"genai-bench has no split 'dev'; known are test_v1, test, unifiedreward"):
        locate_set(GENAI, name="genai-bench", split="dev")
    with pytest.raises(UsageError, match="split test, not 'test_v1'"):
        locate_set(place.table, split="test_v1")
    with pytest.raises(UsageError, match="MJ-Bench-Video, split test, not 'test_v1'"):
        locate_set(SETS / "mj-bench-video" / "test.json", split="test_v1")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("video_generation/test_v1/0000.jsonl", "test_v1"),  # as the hub's own conversion names them
        ("video_generation/test/0000.jsonl", "test"),
        ("train_v1-00000-of-00001.jsonl", "test_v1"),
        ("video_generation/train-00000-of-00001.jsonl", ""),  # of one split first, of the other later
        ("some.jsonl", ""),
        ("test/some.jsonl", ""),
    ],
)
def test_a_tables_name_tells_its_split_or_nothing_does(tmp_path: Path, name: str, split: str) -> None:
    path = table(tmp_path, GENAI_TABLE.read_text(), name)
    for place in (
        locate_set(path),
        *([locate_set(tmp_path), locate_set(tmp_path, name="genai-bench")] if split else []),
    ):
        assert (place.table, place.layout.name, place.layout.split) == (path, "genai-bench", split)
    if not split:
        assert locate_set(path, split="test").layout.split == "test"
        with pytest.raises(UsageError, match="not laid out as GenAI-Bench, video part: no table is named"):
            locate_set(tmp_path, name="genai-bench")


def test_plain_tables(tmp_path: Path) -> None:
    lines = [
        "\ufeffid,A,b,prompt,TA,overall,group",
        "x,1.mp4,2.mp4,p,A,1,g",
        "y,1.mp4,2.mp4,,,same,",
        "z,1.mp4,2.mp4,,nan,NaN,",
    ]
    found = read_set(locate_set(table(tmp_path, "\r\n".join(lines))))
    assert [(p.name, p.a, p.prompt, dict(p.labels), p.group) for p in found.pairs] == [
        ("x", "1.mp4", "p", {"OA": 1, "TA": 1}, "g"),
        ("y", "1.mp4", "", {"OA": 0}, ""),
    ]
    assert found.left_out_counts == {"unlabelled": 1}
    objects = [{"a": "1.mp4", "b": "2.mp4", "overall": label} for label in (1, 2.0, 0, None, float("nan"))]
    found = read_set(locate_set(table(tmp_path, "".join(json.dumps(line) + "\n" for line in objects), "pairs.jsonl")))
    assert labels(found) == ["1---", "2---", "0---"]
    assert [layout.name for layout in LAYOUTS if layout.own] == ["pairs"], "only a plain table is the user's own"


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
    assert [(out.row, out.kind) for out in found.left_out] == [(row, "broken") for row in range(2, 9)]
    assert "'left'" in found.left_out[4].reason
    found = read_set(locate_set(table(tmp_path, "a,b,overall\n1.mp4,2.mp4,A\n1.mp4,2.mp4\n\n1.mp4,2.mp4,B,x\n")))
    assert [out.reason for out in found.left_out] == ["row 2 has 2 cells, not 3", "row 3 has 4 cells, not 3"]


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv"])
def test_a_plain_table_may_have_tabs(tmp_path: Path, name: str) -> None:
    found = read_set(locate_set(table(tmp_path, "a\tb\tprompt\toverall\n1.mp4\t2.mp4\tA fox, running.\tB\n", name)))
    assert [(pair.prompt, pair.labels) for pair in found.pairs] == [("A fox, running.", {"OA": 2})]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("pairs.csv", b"x,y\n1,2\n", "no known table"),
        ("pairs.csv", b"", "no row that can be read: it has none. A plain one has columns a, b, prompt and overall"),
        ("pairs.csv", b"a,b,overall\n", "no row that can be read: it has none"),
        ("pairs.csv", b"a,b,overall\n1,2,A,x\n", "no row that can be read: row 1 has 4 cells, not 3"),
        ("pairs.jsonl", b"hello\n", "no row that can be read: row 1 is not JSON"),
        ("pairs.csv", b"a,b,overall\n1,2,\n", "no pair that can be judged"),
        ("pairs.json", b"{", "is not JSON"),
        ("pairs.json", b"3", "no list of pairs"),
        ("pairs.txt", b"a,b", "no table of pairs"),
        ("pairs.csv", b"a,b,prompt,overall\n1,2,\xff\xfe,A\n", "UTF-8"),
        ("pairs.json", b"[\xff\xfe]", "UTF-8"),
        ("pairs.json", b"[" * 100_000, "is not JSON"),
        ("pairs.parquet", b"PAR1 no", "no parquet"),
    ],
)
def test_a_file_that_is_no_set_is_refused(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=says):
        read_set(locate_set(tmp_path / name))


def test_a_folder_has_a_table_with_the_name_and_columns_of_its_set(tmp_path: Path) -> None:
    table(tmp_path, "a,b,overall\n1,2,A\n", "one.csv")
    with pytest.raises(UsageError, match=r"not laid out as a known set: .* Give a table as SET, its clips with --from"):
        locate_set(tmp_path)
    table(tmp_path, "path_A,path_B\nx,y\n", "videogen-rewardbench.csv")
    with pytest.raises(
        UsageError, match=r"as VideoGen-RewardBench: videogen-rewardbench\.csv has no column MQ, Overall"
    ):
        locate_set(tmp_path, name="videogen-rewardbench")


def test_parquet_is_read_as_jsonl_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import Table, parquet

    rows = [json.loads(line) for line in GENAI_TABLE.read_text().splitlines()]
    wrapped = [{**row, "left_video": {"path": row["left_video"], "bytes": None}, "extra": b"\xff"} for row in rows]
    for name, made in (("plain", rows), ("wrapped", wrapped)):
        path = table(tmp_path / name / "video_generation", "", "test_v1-00000-of-00001.parquet")
        parquet.write_table(Table.from_pylist(made), path)
        (path.parent / "test-00000-of-00001.parquet").write_bytes(b"not this one")
        assert read_set(locate_set(tmp_path / name)).pairs == read_set(locate_set(GENAI)).pairs
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r" -m pip install .*'pyarrow>="):
        locate_set(path)


def test_a_sample_is_the_same_each_time_and_holds_the_smaller_one(tmp_path: Path) -> None:
    pairs = read_set(locate_set(table(tmp_path, "a,b,overall\n" + "1,2,A\n" * 50))).pairs
    small, large = (choose_pairs(pairs, sample=n, seed=5) for n in (7, 20))
    assert len(small) == 7
    assert {p.row for p in small} < {p.row for p in large}
    assert [p.row for p in small] == sorted(p.row for p in small)
    assert choose_pairs(pairs, sample=7, seed=5) == small != choose_pairs(pairs, sample=7, seed=6)
    assert [p.row for p in choose_pairs(pairs, limit=3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("test/0_0.mp4", "videos/test/0_0.mp4"),
        ("deep/er/name.mp4", "deep/er/name.mp4"),
        ("deep\\er\\name.mp4", "deep/er/name.mp4"),
        ("elsewhere/name.mp4", "deep/er/name.mp4"),
        ("/data/sets/er/name.mp4", "deep/er/name.mp4"),
        ("C:\\data\\name.mp4", "deep/er/name.mp4"),
        ("https://host.example/a/other/same.mp4?x=1", "other/same.mp4"),
        ("x/one/same.mp4", "one/same.mp4"),
        ("{folder}/one/same.mp4", "one/same.mp4"),
        ("../secret.mp4", "refused"),
        ("deep/../../secret.mp4", "refused"),
        ("..\\secret.mp4", "refused"),
        ("https://host.example/%2e%2e/secret.mp4", "refused"),
        ("secret.mp4", "is not in"),
        ("{folder}/../secret.mp4", "refused"),
        ("{above}/secret.mp4", "is not in"),
        ("/etc/passwd", "is not in"),
        ("same.mp4", "may be"),
        ("/", "no file name"),
        ("file:///", "no file name"),
    ],
)
def test_clips_are_found_in_the_folder_alone(tmp_path: Path, named: str, told: str) -> None:
    folder = tmp_path / "set"
    for name in ("videos/test/0_0.mp4", "one/same.mp4", "other/same.mp4", "deep/er/name.mp4", "../secret.mp4"):
        table(folder, "x", name)
    found: Any = Clips(folder).find(named.format(folder=folder, above=tmp_path))
    if told.endswith(".mp4"):
        assert found == folder / told
    else:
        assert isinstance(found, str) and told in found


def values(name: str, split: str) -> dict[str, dict[str, float]]:
    """The published figures by model and measure."""
    found = find_published(name, split)
    assert found is not None
    assert all("arXiv 2" in figure.source and 0 < figure.value < 1 for figure in found.figures)
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
    for model in ("VideoScore 7B", "VideoReward 2B", "VisionReward 13B"):
        assert genai[model].keys() == videogen[model].keys() == {"calibrated", "sign"}
    assert videogen["VideoReward 2B"] == {"calibrated": 0.608, "sign": 0.738}
    assert videogen["VR-Thinker 7B"] == {"tau": 0.718, "diff": 0.805}

    for (name, split), expected in {
        ("videogen-rewardbench", "other"): (0, ("eval",), []),
        ("mj-bench-video", "test"): (0, (), ["89.0 % of the labels are ties"]),
        ("genai-bench", "test"): (10, ("unifiedreward",), ["64.7"]),
        ("genai-bench", "test_v1"): (0, ("test", "unifiedreward"), []),
        ("genai-bench", "unifiedreward"): (2, ("test",), []),
    }.items():
        found = find_published(name, split)
        assert found is not None
        figures, others, reasons = expected
        assert (len(found.figures), found.other_splits, len(found.left_out)) == (figures, others, len(reasons))
        assert all(reason in left_out for reason, left_out in zip(reasons, found.left_out, strict=True))
    assert find_published("pairs", "") is None
