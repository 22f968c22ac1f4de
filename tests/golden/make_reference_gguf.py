"""Writes reference_gguf.json: what llama.cpp's own converter makes of tests/convert's random checkpoints.

    python tests/golden/make_reference_gguf.py [CONVERTER [FOLDER]]        (extra `parity`; 4.57 and 5.x agree)

Names, types, shapes and SHA-256 of every tensor in file order, and the metadata in file order. CONVERTER is llama.cpp's
source; without it, that of the llama-cpp-python named below is fetched. The converter knows a pre-tokenizer by the hash
of a tokenised text and cannot know a random vocabulary, so "qwen2" is put in its mouth; nothing else is touched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "convert"))
RELEASE = "llama-cpp-python==0.3.36"
"""Whose llama.cpp the golden file is of; the package is published as source."""


def fetch(folder: Path) -> Path:
    """The converter of RELEASE, unpacked in `folder`. CalledProcessError, with pip's words, if it cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", RELEASE]
    subprocess.run([*command, "--dest", folder], check=True, capture_output=True, text=True, timeout=600)
    (archive,) = folder.glob("*.tar.gz")
    return unpack(archive, folder)


def unpack(archive: Path, folder: Path) -> Path:
    """The converter in a source distribution of llama-cpp-python."""
    with tarfile.open(archive) as file:
        parts = ("convert_hf_to_gguf.py", "conversion/", "gguf-py/")
        wanted = [m for m in file if m.name.partition("/vendor/llama.cpp/")[2].startswith(parts)]
        file.extractall(folder, wanted, filter="data")
    return folder / wanted[0].name.partition("/")[0] / "vendor" / "llama.cpp"


def main(converter: Path, out: Path) -> None:
    """Convert every variant, and write the golden file into `out`."""
    sys.path.insert(0, str(converter))
    import convert_hf_to_gguf  # it puts the gguf package of its own release first
    from conversion import base
    from gguf_description import FOLDER, TYPES, VARIANTS, describe, make_variant

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    golden: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for variant in VARIANTS:
            source = Path(scratch) / variant / FOLDER
            source.parent.mkdir()
            make_variant(source, variant)
            for kind in TYPES[variant]:
                for role, flags in (("text", []), ("projector", ["--mmproj"])):
                    file = Path(scratch) / f"{variant}-{kind}-{role}.gguf"
                    sys.argv = ["", str(source), "--outtype", kind, "--outfile", str(file), *flags]
                    convert_hf_to_gguf.main()
                    golden[f"{variant} {kind} {role}"] = describe(file)
    (out / "reference_gguf.json").write_text(json.dumps(golden, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as fetched:
        main(given[0] if given else fetch(Path(fetched)), given[1] if len(given) > 1 else HERE)
