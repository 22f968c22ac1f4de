"""What a judge and a question are known by: all that can change a verdict, and nothing else."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from clips import write_clip
from judgements import judgement, sure
from msgspec.structs import replace
from run_worker import question

from vrt_lite.api import Judge
from vrt_lite.disk import file_sha256
from vrt_lite.models import find
from vrt_lite.profile import preset
from vrt_lite.protocol.messages import Dimension
from vrt_lite.records.pairs import join_results, result_of
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings

OF_ORDERS = {"both_orders": "auto", "confidence": 0.7, "sources": {"rounds": "file"}}
OF_THE_MACHINE = {"cache": False, "cache_mb": 5, "threads": 1, "gpu_layers": 0}
OF_WORDS = {"effort": "quick", "preset": "mj-bench-video", "dimensions": {"VQ": Dimension("Sharpness", "how crisp")}}
OF_FRAMES = {"workspace": 12, "first_frames": 3, "window": 3, "rounds": 2, "max_pixels": 6272, "tool_max_pixels": 6272}
OF_REPLIES = {"ctx": 4096, "kv_type": "q8_0", "temperature": 0.5, "seed": 7}
NO_MATTER: dict[str, Any] = OF_ORDERS | OF_THE_MACHINE
MATTERS: dict[str, Any] = OF_WORDS | OF_FRAMES | OF_REPLIES
# tests/test_evidence.py: the bundled judge does not take it; another profile has a digest of its own.
ELSEWHERE = {"evidence", "profile"}


def key(model: str | Path | None = None, digest: Callable[[Path], str] = file_sha256, **settings: Any) -> str:
    with Judge(model, settings=Settings(**settings), digest=digest) as judge:
        return judge.key()


def test_every_setting_matters_or_not() -> None:
    """What changes no verdict of one order does not matter."""
    assert {field.name for field in fields(Settings)} == NO_MATTER.keys() | MATTERS.keys() | ELSEWHERE
    plain = key()
    keys = {name: key(**{name: value}) for name, value in (NO_MATTER | MATTERS).items()}
    assert {name for name, changed in keys.items() if changed != plain} == MATTERS.keys()


def test_a_value_that_is_in_force_anyway_does_not_matter() -> None:
    profile = find().profile
    assert key(window=profile.window, dimensions=dict(profile.dimensions)) == key()
    assert key(preset="mj-bench-video") == key(dimensions=preset("mj-bench-video"))


def test_the_model_matters_not_where_it_lies(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(find().text.parent, tmp_path / "copy"))
    assert key(copy) == key()
    profile = copy / "profile.toml"
    profile.write_text("retries = 3\n" + profile.read_text(encoding="utf-8"), encoding="utf-8")
    assert key(copy) != key()


def test_each_file_is_digested_once_however_many_threads_ask(tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "a.mp4", frames=8)
    asked: list[Path] = []

    def digest(path: Path) -> str:
        asked.append(path)
        time.sleep(0.05)
        return "x"

    with Judge(digest=digest) as judge, ThreadPoolExecutor(8) as pool:
        keys = [pool.submit(judge.key) for _ in range(8)]
        judged = judge.compare(clip, clip)
        [one_key] = {each.result() for each in keys}
    files = find()
    assert sorted(asked) == sorted([files.text, files.projector])
    assert judged.model.text and judged.model.text.sha256 == "x"
    with Store() as store:
        assert key(digest=store.digest) == key() != one_key


def test_each_of_the_four_makes_another_key_and_no_two_run_together() -> None:
    asked = replace(question(), prompt="a", judge="bc")
    assert asked.key == replace(asked).key
    others = [replace(asked, **{name: "x"}) for name in asked.__struct_fields__]
    exchanged = replace(asked, first=asked.second, second=asked.first)
    shifted = replace(asked, prompt="ab", judge="c")
    escaped = [replace(asked, prompt=prompt) for prompt in ("\udcff", "\\udcff")]
    assert len({of.key for of in (asked, exchanged, shifted, *escaped, *others)}) == 9


def test_both_orders_judged_at_once_count_alone() -> None:
    both = result_of(question(), judgement([sure()], [sure()]))
    assert both.disagreements == ("VQ", "MQ", "OA")
    alone = result_of(question(), judgement([sure()]))
    assert alone.disagreements is None
    turned = replace(alone, first=alone.second, second=alone.first)
    [pair] = join_results([turned, both])
    assert pair.overall == both.preferences["OA"].mirrored()
    assert pair.disagreements == both.disagreements
    [pair] = join_results([alone, turned])
    assert (pair.of_both, pair.disagreements) == (None, ("VQ", "MQ", "OA"))
    assert pair.overall and pair.overall.undecided
