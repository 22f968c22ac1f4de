"""What a judge is known by: everything that can change a verdict, and nothing else; no model is loaded for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from clips import write_clip

from vrt_lite.api import Judge
from vrt_lite.disk import file_sha256
from vrt_lite.models import find
from vrt_lite.profile import preset
from vrt_lite.protocol.messages import Dimension
from vrt_lite.runs.store import Store
from vrt_lite.settings import Settings

NONE: dict[str, Any] = {
    "both_orders": "auto",
    "confidence": 0.7,
    "cache": False,
    "cache_mb": 5,
    "threads": 1,
    "gpu_layers": 0,
    "sources": {"rounds": "file"},
}
SOME: dict[str, Any] = {
    "effort": "quick",
    "preset": "mj-bench-video",
    "dimensions": {"VQ": Dimension("Sharpness", "how crisp the picture is")},
    "workspace": 12,
    "first_frames": 3,
    "window": 3,
    "rounds": 2,
    "max_pixels": 784 * 8,
    "tool_max_pixels": 784 * 8,
    "ctx": 4096,
    "kv_type": "q8_0",
    "temperature": 0.5,
    "seed": 7,
}


def key(model: str | Path | None = None, digest: Callable[[Path], str] = file_sha256, **settings: Any) -> str:
    with Judge(model, settings=Settings(**settings), digest=digest) as judge:
        return judge.key()


def test_every_setting_is_known_to_matter_or_not() -> None:
    # tests/test_evidence.py: the bundled judge does not take it; another profile has a digest of its own.
    elsewhere = {"evidence", "profile"}
    assert {f.name for f in fields(Settings)} == NONE.keys() | SOME.keys() | elsewhere


@pytest.mark.parametrize("name", NONE)
def test_what_changes_no_verdict_of_one_order_does_not_matter(name: str) -> None:
    assert key(**{name: NONE[name]}) == key()


@pytest.mark.parametrize("name", SOME)
def test_what_can_change_a_verdict_matters(name: str) -> None:
    assert key(**{name: SOME[name]}) != key()


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


def test_a_store_remembers_the_files_digests() -> None:
    asked: list[str] = []

    def digest(path: Path) -> str:
        asked.append(path.name)
        return "x"

    assert key(digest=digest) != key()
    files = find()
    assert sorted(asked) == sorted([files.text.name, files.projector.name])
    with Store() as store:
        assert key(digest=store.digest) == key()


def test_each_file_is_digested_once(tmp_path: Path) -> None:
    """However many threads ask at once."""
    clip = write_clip(tmp_path / "a.mp4")
    asked: list[Path] = []

    def digest(path: Path) -> str:
        asked.append(path)
        time.sleep(0.05)
        return file_sha256(path)

    with Judge(digest=digest) as judge, ThreadPoolExecutor(8) as pool:
        keys = [pool.submit(judge.key) for _ in range(8)]
        judgement = judge.compare(clip, clip)
        assert {each.result() for each in keys} == {judge.key()}
    files = find()
    assert sorted(asked) == sorted([files.text, files.projector])
    assert judgement.model.text
    assert judgement.model.text.sha256 == file_sha256(files.text)


def test_no_engine_is_loaded_for_it() -> None:
    code = (
        "import sys; from vrt_lite.api import Judge\n"
        "with Judge() as judge: print(judge.key())\n"
        "assert not {'llama_cpp', 'av', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == key()
