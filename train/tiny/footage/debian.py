"""Downloads a Debian package. It is an `ar` archive; the files are in its member data.tar."""

from __future__ import annotations

import io
import lzma
import re
import shutil
import urllib.request
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Final

from vrt_lite.errors import UsageError

MIRROR: Final = "https://deb.debian.org/debian"
_SECONDS: Final = 60
_HEADER_BYTES, _NAME, _SIZE = 60, slice(0, 16), slice(48, 58)


def download_files(name: str, suite: str, into: Path, *, mirror: str = MIRROR) -> Path:
    """Download a package of a suite and write its data.tar into a folder. Returns the path. Raises UsageError.

    It is unpacked once, so that each file can be read without what stands before it.
    """
    try:
        pool = _read_index(mirror, suite)
        if name not in pool:
            raise UsageError(f"Debian's suite {suite} has no package {name}.")
        found = _find_data(_read(f"{mirror}/{pool[name]}"))
        if found is None:
            raise UsageError(f"{pool[name]} of {mirror} is not a Debian package.")
        path = into / f"{name}.data.tar"
        with lzma.open(io.BytesIO(found)) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
    except (OSError, EOFError, HTTPException, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be fetched from {mirror}: {error}.") from error
    return path


@lru_cache(maxsize=4)
def _read_index(mirror: str, suite: str) -> dict[str, str]:
    """Return the path of each package of a suite, by name."""
    text = lzma.decompress(_read(f"{mirror}/dists/{suite}/main/binary-amd64/Packages.xz")).decode()
    return dict(re.findall(r"^Package: (\S+)$(?:\n.+)*?\nFilename: (\S+)$", text, re.MULTILINE))


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        return answer.read()


def _find_data(archive: bytes) -> bytes | None:
    """Return the member data.tar, still compressed, of an `ar` archive; None if it has none."""
    at = len(b"!<arch>\n")
    while header := archive[at : at + _HEADER_BYTES]:
        size = header[_SIZE].strip()
        if not size.isdigit():
            return None
        at += _HEADER_BYTES
        if header[_NAME].startswith(b"data.tar"):
            return archive[at : at + int(size)]
        at += int(size) + int(size) % 2
    return None
