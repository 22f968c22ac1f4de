"""Builds llama-server from the engine's own source distribution: python tests/build_llama_server.py FOLDER.

The program is FOLDER/build/bin/llama-server. Without TLS and without the web page, which would be downloaded.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

OFF = ("TESTS", "EXAMPLES", "APP", "UI")


def build(folder: Path) -> None:
    """Fetch the source of the llama-cpp-python that is installed, and build; what is built already stays."""
    name = f"llama_cpp_python-{version('llama-cpp-python')}"
    archive = folder / f"{name}.tar.gz"
    if not archive.exists():
        wanted = name.replace("_", "-").replace("-cpp-python-", "-cpp-python==")
        fetch = ["download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder), wanted]
        subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
    if not (folder / name).exists():
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    source, target = folder / name / "vendor" / "llama.cpp", folder / "build"
    options = [f"-DLLAMA_BUILD_{part}=OFF" for part in OFF]
    options += [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBUILD_SHARED_LIBS=OFF",
        "-DLLAMA_OPENSSL=OFF",
        "-DLLAMA_USE_PREBUILT_UI=OFF",
    ]
    subprocess.run(["cmake", "-S", str(source), "-B", str(target), "-G", "Ninja", *options], check=True)
    subprocess.run(["cmake", "--build", str(target), "--target", "llama-server", "--parallel", "2"], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
