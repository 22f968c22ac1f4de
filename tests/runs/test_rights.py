"""The store of runs has prompts and names of files: it is private to its user."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from made import JUDGED, question

from vrt_lite.errors import UsageError
from vrt_lite.runs.store import Store, users_store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows keeps other users out of a user's folder")


@pytest.fixture(autouse=True)
def no_mask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("VRT_LITE_HOME", str(tmp_path / "home"))
    before = os.umask(0)
    yield
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fill(path: Path | None = None) -> set[int]:
    """Use a store; returns the rights of its file and of the files beside it, while it is open."""
    path = path or users_store()
    with Store(path) as store:
        store.begin("foxes", kind="rank", about={}).add(question(), JUDGED)
        files = [path, *path.parent.glob(f"{path.name}-*")]
        assert len(files) == 3
        return {rights(file) for file in files}


def test_a_new_store_and_its_folder_are_the_users_own() -> None:
    assert fill() == {0o600}
    assert rights(users_store()) == 0o600
    assert rights(users_store().parent) == 0o700


def test_a_store_that_everyone_could_read_is_closed_to_others() -> None:
    fill()
    users_store().chmod(0o644)
    assert fill() == {0o600}


def test_what_is_shared_with_a_group_stays_so() -> None:
    fill()
    users_store().chmod(0o660)
    assert fill() == {0o660}


def test_a_folder_that_was_there_keeps_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    assert fill(folder / "runs.sqlite") == {0o600}
    assert rights(folder) == 0o777


def test_another_programs_file_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE a (b)")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("no store " * 20, encoding="utf-8")
    for file in (path, text):
        before = rights(file)
        with pytest.raises(UsageError):
            Store(file)
        assert rights(file) == before
