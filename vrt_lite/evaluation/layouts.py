"""Published preference sets with their layouts, and plain tables of pairs: columns, spellings and sources.

A label is 1 (the first clip is better), 2 or 0 (a tie), by TA, VQ, MQ and OA; a dimension without a label is not there.
A set may have several splits, each a `Layout`; a table is of a split if it is named as the published one is.

* **GenAI-Bench**, video part: TIGER-Lab/GenAI-Bench on the hub, `video_generation/`. Split `test_v1` has the 1 069
  votes of the authors' paper and leaderboard (their inference.py); `test` is a later, larger one, about 1 900, which
  other papers' tables are of; `SPLIT/0000.parquet` is the hub's own conversion. Both were uploaded as `train-*` at some
  time, so that name tells no split. Columns as inference.py reads them: prompt, left_video, right_video, vote_type. A
  video is an address `https://huggingface.co/datasets/OWNER/REPO/blob/main/….mp4` (their utils.py, download_video).
* The same as UnifiedReward reads it: CodeGoat24/UnifiedReward on GitHub, `GenAI-Bench-Video/data.json`, a list of 1 889
  pairs: id, prompt, video_left, video_right (file names in `videos/`), vote_type (their test_llava_…_video.py).
* **VideoGen-RewardBench**: KlingTeam/VideoGen-RewardBench, `videogen-rewardbench.csv` and `videos.zip`; labels A, B,
  same (KwaiVGI/VideoAlign, eval_videogen_rewardbench.py, which joins path_A to the folder of the CSV). The hub calls
  its one split `eval`.
* **MJ-Bench-Video**, test: aiming-lab/MJ-Video `datas/test.json`, and with its clips MJ-Bench/MJ-BENCH-VIDEO on the
  hub, `test.json` and `videos/`. "Video 1" is video_0: the authors' dataset.py makes it label 0, and of its test rows
  whose criteria decide an alignment preference, 137 of 139 agree. Six rows spell "Video 1 Better". "Hard to judge",
  which the authors' evaluation leaves out, is no label here. Safety and Bias have no dimension in the judge's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.set_tables import cell_text
from vrt_lite.protocol.messages import LONGEST_PROMPT
from vrt_lite.tables import Row

KEYS: Final = ("OA", "TA", "VQ", "MQ")


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A row that can be judged. `a` and `b` name clips as the table does; `row` counts from 1 in the table."""

    row: int
    name: str
    a: str
    b: str
    prompt: str
    labels: Mapping[str, int]
    group: str = ""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is not judged: `kind` is "broken", "discarded" or "unlabelled"; `reason` is for a user."""

    row: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one split of a set is laid out.

    `split` is "" where a table's name does not tell it. `a`, `b` and `prompt` are columns. `labels` gives the column of
    each dimension's label, or the column of an object and the key in it. `spellings` are the labels by their words;
    None is for a word that gives no label. `tables` are globs under the set's folder; the first that matches wins.
    `preset` words the dimensions (None: the model's own). `repository`, `files` and `megabytes` are for fetching the
    set; without `repository` it cannot be fetched. `own` marks a user's own table: its columns may be in any case, its
    clips anywhere.
    """

    name: str
    title: str
    split: str
    a: str
    b: str
    prompt: str = "prompt"
    labels: Mapping[str, tuple[str, ...]]
    spellings: Mapping[str, int | None]
    tables: tuple[str, ...]
    preset: str | None = None
    repository: str = ""
    aliases: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    megabytes: int = 0
    own: bool = False

    @property
    def published_tables(self) -> tuple[str, ...]:
        """What its table is called where it is published."""
        return self.files[:1] if self.files else self.tables

    @property
    def full_name(self) -> str:
        """The set and its split, for a user."""
        return f"{self.title}, split {self.split}" if self.split else self.title

    def missing(self, columns: frozenset[str]) -> frozenset[str]:
        """Return the columns that the layout needs and a table does not have."""
        if self.own:
            return frozenset((self.a, self.b)) - {column.strip().lower() for column in columns}
        labels = (path[0] for path in self.labels.values() if len(path) == 1)
        return frozenset((self.a, self.b, self.prompt, *labels)) - columns


def pair_of(layout: Layout, number: int, row: Row | str) -> LabelledPair | SkippedRow:
    """Read one row of a table by its layout. Never raises: a row that cannot be judged is a `SkippedRow`."""
    if isinstance(row, str):
        return SkippedRow(number, "broken", f"row {number} {row}")
    if layout.own:
        row = {name.strip().lower(): cell for name, cell in row.items()}
        row = {"overall": row.get("oa"), "prompt": "", **row}
    try:
        if cell_text(row.get("discard")).lower() in ("true", "1", "yes"):
            return SkippedRow(number, "discarded", f"row {number} is marked discard")
        a, b, prompt = _clip(row[layout.a]), _clip(row[layout.b]), cell_text(row[layout.prompt])
        labels = _labels({key: _cell(row, path) for key, path in layout.labels.items()}, layout.spellings)
        name, group = (cell_text(row.get(column)) if layout.own else "" for column in ("id", "group"))
    except (KeyError, TypeError, ValueError) as error:
        reason = f"has no {error}" if isinstance(error, KeyError) else str(error)
        return SkippedRow(number, "broken", f"row {number} {reason}")
    if len(prompt) > LONGEST_PROMPT:
        reason = f"row {number} has a prompt of {len(prompt)} characters (at most {LONGEST_PROMPT})"
        return SkippedRow(number, "broken", reason)
    if not labels:
        return SkippedRow(number, "unlabelled", f"row {number} has no label")
    return LabelledPair(number, name or f"row {number}", a, b, prompt, labels, group)


def _clip(cell: object) -> str:
    """Read a clip's name or address; the form {"path": …, "bytes": …} of a data set library is read as well."""
    if isinstance(cell, Mapping):
        cell = cast("Row", cell).get("path")
    name = cell_text(cell)
    if not name or "\0" in name:
        raise ValueError("names no clip")
    return name


def _cell(row: object, path: tuple[str, ...]) -> object:
    """Return the value at a path of keys; None if there is none."""
    for key in path:
        row = cast("Row", row).get(key) if isinstance(row, Mapping) else None
    return row


def _labels(cells: Mapping[str, object], spellings: Mapping[str, int | None]) -> dict[str, int]:
    """Read the labels by dimension; an empty cell is no label. ValueError for an unknown spelling."""
    found: dict[str, int] = {}
    for key, cell in cells.items():
        word = cell_text(cell).lower()
        if word and word not in spellings:
            raise ValueError(f"has the {key} label {word[:40]!r}; known are {', '.join(spellings)}")
        label = spellings.get(word)
        if label is not None:
            found[key] = label
    return found


def _genai_bench(split: str, *stems: str) -> Layout:
    """Make the layout of a split of GenAI-Bench as its authors publish it, in tables with these names."""
    return Layout(
        name="genai-bench",
        title="GenAI-Bench, video part",
        split=split,
        a="left_video",
        b="right_video",
        labels={"OA": ("vote_type",)},
        spellings={"leftvote": 1, "rightvote": 2, "tievote": 0, "bothbad_vote": 0},
        tables=tuple(
            f"{folder}{stem}{suffix}"
            for folder in ("video_generation/", "", "data/")
            for stem in stems
            for suffix in (".jsonl", ".json", ".csv", ".parquet")
        ),
        repository="TIGER-Lab/GenAI-Bench",
        files=(f"video_generation/{split}-*.parquet",),
    )


LAYOUTS: Final = (
    _genai_bench("test_v1", "test_v1*", "train_v1*", "test_v1/0000"),
    _genai_bench("test", "test", "test-*", "test/0000"),
    replace(
        _genai_bench("unifiedreward"),
        a="video_left",
        b="video_right",
        tables=("data.json", "GenAI-Bench-Video/data.json"),
        repository="",
        files=(),
    ),
    Layout(
        name="videogen-rewardbench",
        title="VideoGen-RewardBench",
        split="eval",
        a="path_A",
        b="path_B",
        labels={"OA": ("Overall",), "TA": ("TA",), "VQ": ("VQ",), "MQ": ("MQ",)},
        spellings={"a": 1, "b": 2, "same": 0},
        tables=("videogen-rewardbench.csv", "*/videogen-rewardbench.csv"),
        preset="videogen-reward",
        repository="KlingTeam/VideoGen-RewardBench",
        aliases=("KwaiVGI/VideoGen-RewardBench",),
        files=("videogen-rewardbench.csv", "videos.zip"),
        megabytes=13_400,
    ),
    Layout(
        name="mj-bench-video",
        title="MJ-Bench-Video",
        split="test",
        a="video_0_path",
        b="video_1_path",
        prompt="caption",
        labels={
            "OA": ("overall_preference",),
            "TA": ("category_preference", "Alignment"),
            "VQ": ("category_preference", "Fineness"),
            "MQ": ("category_preference", "Coherence & Consistency"),
        },
        spellings={"video 1 better": 1, "video 2 better": 2, "same": 0, "hard to judge": None},
        tables=("datas/test.json", "test.json"),
        preset="mj-bench-video",
        repository="MJ-Bench/MJ-BENCH-VIDEO",
        files=("test.json", "videos/**"),
    ),
)
PAIRS: Final = Layout(
    name="pairs",
    title="labelled pairs",
    split="",
    a="a",
    b="b",
    labels={"OA": ("overall",), "TA": ("ta",), "VQ": ("vq",), "MQ": ("mq",)},
    spellings={"a": 1, "b": 2, "same": 0, "tie": 0, "1": 1, "2": 2, "0": 0},
    tables=("pairs.csv", "pairs.jsonl", "pairs.json"),
    own=True,
)


def set_names() -> tuple[str, ...]:
    """Return the names of the published sets."""
    return tuple(dict.fromkeys(layout.name for layout in LAYOUTS))


def find_set_name(name: str) -> str | None:
    """Find a published set by its name or the name of its hub repository; None if there is none."""
    given = name.strip().lower()
    for layout in LAYOUTS:
        if given in (layout.name, *(known.lower() for known in (layout.repository, *layout.aliases) if known)):
            return layout.name
    return None


def layouts_of(name: str | None = None, split: str | None = None) -> tuple[Layout, ...]:
    """Return the layouts of a set's splits (None: of all sets), the usual one first, or only that of one split.

    UsageError, with the known splits, for an unknown split.
    """
    known = [layout for layout in LAYOUTS if name in (None, layout.name)]
    found = tuple(layout for layout in known if split in (None, layout.split))
    if not found:
        choice = ", ".join(dict.fromkeys(layout.split for layout in known))
        raise UsageError(f"{name or 'No known set'} has {'no' if name else 'a'} split {split!r}; known are {choice}.")
    return found


def recognise(table: Path, columns: frozenset[str]) -> Layout | None:
    """Find the layout of a table with these columns, without a split if its name gives none; None if none fits."""
    fitting = [layout for layout in LAYOUTS if not layout.missing(columns)]
    for layout in fitting:
        if any(table.match(pattern) for pattern in layout.tables):
            return layout
    if fitting:
        return replace(fitting[0], split="")
    return None if PAIRS.missing(columns) else PAIRS
