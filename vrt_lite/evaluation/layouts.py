"""The field's preference sets in their published layouts, and plain tables of pairs. Data and pure functions.

Knows columns and spellings, and where each was looked up. Refuses to know where clips lie (`clips`) and how a table is
stored (`tables`). Everywhere a label is 1 (the first clip is better), 2 or 0 (a tie), by TA, VQ, MQ and OA; a dimension
without a label is not there. A set may have several splits, each a `Layout`; a table is of a split if it is named as
the published one is.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from vrt_lite.errors import UsageError
from vrt_lite.evaluation.tables import Row, text

KEYS: Final = ("OA", "TA", "VQ", "MQ")
LONGEST_PROMPT: Final = 8_000


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
class LeftOut:
    """A row that is not judged: `kind` is "broken", "discarded" or "unlabelled"; `why` says it in words."""

    row: int
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How one split of a set is laid out.

    `split` is "" where a table's name does not tell it. `needs` are the columns that tell the set; `tables` are globs
    under the set's folder, the first that matches wins; `preset` words the dimensions (None: the model's own);
    `repository`, `files` and `megabytes` are for fetching it; without `repository` it cannot be fetched. `own` marks a
    user's own table: its columns may be in any case, its clips anywhere.
    """

    name: str
    title: str
    split: str
    needs: frozenset[str]
    tables: tuple[str, ...]
    read: Callable[[Row], tuple[Any, Any, Any, Mapping[str, int], str, str]]
    preset: str | None = None
    repository: str = ""
    also: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    megabytes: int = 0
    own: bool = False

    @property
    def expected(self) -> tuple[str, ...]:
        """What its table is called where it is published."""
        return self.files[:1] if self.files else self.tables

    @property
    def called(self) -> str:
        """The set and its split, in words."""
        return f"{self.title}, split {self.split}" if self.split else self.title

    def missing(self, columns: frozenset[str]) -> frozenset[str]:
        """The columns that it needs and a table does not have."""
        return self.needs - ({column.strip().lower() for column in columns} if self.own else columns)


def pair_of(layout: Layout, number: int, row: Row | str) -> LabelledPair | LeftOut:
    """One row of a table read by its layout. Total: what cannot be judged is a `LeftOut`, never an exception."""
    if isinstance(row, str):
        return LeftOut(number, "broken", f"row {number} {row}")
    try:
        if text(row.get("discard")).lower() in ("true", "1", "yes"):
            return LeftOut(number, "discarded", f"row {number} is marked discard")
        a, b, prompt, labels, name, group = layout.read(row)
        clips = _clip(a), _clip(b)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"has no {error}" if isinstance(error, KeyError) else str(error)
        return LeftOut(number, "broken", f"row {number} {why}")
    caption = text(prompt)
    if len(caption) > LONGEST_PROMPT:
        return LeftOut(number, "broken", f"row {number} has a prompt of {len(caption)} characters (at most 8000)")
    if not labels:
        return LeftOut(number, "unlabelled", f"row {number} has no label")
    return LabelledPair(number, name or f"row {number}", *clips, caption, labels, group)


def _clip(cell: Any) -> str:
    """A clip's name or address; a data set library's own form {"path": …, "bytes": …} is read as well."""
    if isinstance(cell, Mapping):
        cell = cast("Mapping[str, Any]", cell).get("path")
    shown = text(cell)
    if not shown or "\0" in shown:
        raise ValueError("names no clip")
    return shown


def _labels(cells: Mapping[str, Any], spellings: Mapping[str, int | None]) -> dict[str, int]:
    """Labels by dimension; an empty cell is no label. ValueError for a spelling that is not known."""
    found: dict[str, int] = {}
    for key, cell in cells.items():
        word = text(cell).lower()
        if word and word not in spellings:
            raise ValueError(f"has the {key} label {word[:40]!r}; known are {', '.join(spellings)}")
        label = spellings.get(word)
        if label is not None:
            found[key] = label
    return found


_VOTES = {"leftvote": 1, "rightvote": 2, "tievote": 0, "bothbad_vote": 0}
_LETTERS = {"a": 1, "b": 2, "same": 0}
_SENTENCES = {"video 1 better": 1, "video 2 better": 2, "same": 0, "hard to judge": None}
_PLAIN = {"a": 1, "b": 2, "same": 0, "tie": 0, "1": 1, "2": 2, "0": 0}


def _genai(row: Row, *, left: str, right: str) -> tuple[Any, Any, Any, Mapping[str, int], str, str]:
    labels = _labels({"OA": row["vote_type"]}, _VOTES)
    return row[left], row[right], row["prompt"], labels, "", ""


def _videogen(row: Row) -> tuple[Any, Any, Any, Mapping[str, int], str, str]:
    labels = _labels({"OA": row["Overall"], "TA": row["TA"], "VQ": row["VQ"], "MQ": row["MQ"]}, _LETTERS)
    return row["path_A"], row["path_B"], row["prompt"], labels, "", ""


def _mj(row: Row) -> tuple[Any, Any, Any, Mapping[str, int], str, str]:
    by: Any = row.get("category_preference") or {}
    cells = {
        "OA": row.get("overall_preference"),
        "TA": by.get("Alignment"),
        "VQ": by.get("Fineness"),
        "MQ": by.get("Coherence & Consistency"),
    }
    return row["video_0_path"], row["video_1_path"], row["caption"], _labels(cells, _SENTENCES), "", ""


def _plain(row: Row) -> tuple[Any, Any, Any, Mapping[str, int], str, str]:
    by = {name.strip().lower(): cell for name, cell in row.items()}
    cells = {key: by.get(key.lower()) for key in KEYS}
    cells["OA"] = by.get("overall", cells["OA"])
    return by["a"], by["b"], by.get("prompt"), _labels(cells, _PLAIN), text(by.get("id")), text(by.get("group"))


def _arena(split: str, *stems: str) -> Layout:
    """A split of GenAI-Bench as its authors publish it, in tables with these names."""
    return Layout(
        name="genai-bench",
        title="GenAI-Bench, video part",
        split=split,
        needs=frozenset({"left_video", "right_video", "vote_type", "prompt"}),
        tables=tuple(
            f"{folder}{stem}{suffix}"
            for folder in ("video_generation/", "", "data/")
            for stem in stems
            for suffix in (".jsonl", ".json", ".csv", ".parquet")
        ),
        read=partial(_genai, left="left_video", right="right_video"),
        repository="TIGER-Lab/GenAI-Bench",
        files=(f"video_generation/{split}-*.parquet",),
    )


LAYOUTS: Final = (
    _arena("test_v1", "test_v1*", "train_v1*", "test_v1/0000"),
    _arena("test", "test", "test-*", "test/0000"),
    replace(
        _arena("unifiedreward"),
        needs=frozenset({"video_left", "video_right", "vote_type", "prompt"}),
        tables=("data.json", "GenAI-Bench-Video/data.json"),
        read=partial(_genai, left="video_left", right="video_right"),
        repository="",
        files=(),
    ),
    Layout(
        name="videogen-rewardbench",
        title="VideoGen-RewardBench",
        split="eval",
        needs=frozenset({"path_A", "path_B", "prompt", "VQ", "MQ", "TA", "Overall"}),
        tables=("videogen-rewardbench.csv", "*/videogen-rewardbench.csv"),
        read=_videogen,
        preset="videogen-reward",
        repository="KlingTeam/VideoGen-RewardBench",
        also=("KwaiVGI/VideoGen-RewardBench",),
        files=("videogen-rewardbench.csv", "videos.zip"),
        megabytes=13_400,
    ),
    Layout(
        name="mj-bench-video",
        title="MJ-Bench-Video",
        split="test",
        needs=frozenset({"video_0_path", "video_1_path", "caption", "overall_preference"}),
        tables=("datas/test.json", "test.json"),
        read=_mj,
        preset="mj-bench-video",
        repository="MJ-Bench/MJ-BENCH-VIDEO",
        files=("test.json", "videos/**"),
        megabytes=0,
    ),
)
PAIRS: Final = Layout(
    name="pairs",
    title="labelled pairs",
    split="",
    needs=frozenset({"a", "b"}),
    tables=("pairs.csv", "pairs.jsonl", "pairs.json"),
    read=_plain,
    own=True,
)


def names() -> tuple[str, ...]:
    """The published sets by name."""
    return tuple(dict.fromkeys(layout.name for layout in LAYOUTS))


def named(name: str) -> str | None:
    """The published set that is meant by a name, or by the name of its hub repository; None if there is none."""
    asked = name.strip().lower()
    for layout in LAYOUTS:
        if asked in (layout.name, *(known.lower() for known in (layout.repository, *layout.also) if known)):
            return layout.name
    return None


def splits_of(name: str | None = None, split: str | None = None) -> tuple[Layout, ...]:
    """The splits of a set (None: of all), the usual one first, or only the one that is asked for.

    UsageError, with those that there are, for a split that is not known.
    """
    known = [layout for layout in LAYOUTS if name in (None, layout.name)]
    found = tuple(layout for layout in known if split in (None, layout.split))
    if not found:
        choice = ", ".join(dict.fromkeys(layout.split for layout in known))
        raise UsageError(f"{name or 'No known set'} has {'no' if name else 'a'} split {split!r}; known are {choice}.")
    return found


def recognise(table: Path, columns: frozenset[str]) -> Layout | None:
    """The layout that a table with these columns is of, without a split if its name tells none; None for no layout."""
    fitting = [layout for layout in LAYOUTS if not layout.missing(columns)]
    for layout in fitting:
        if any(table.match(pattern) for pattern in layout.tables):
            return layout
    if fitting:
        return replace(fitting[0], split="")
    return None if PAIRS.missing(columns) else PAIRS
