"""Writes reference_gguf.json: what llama.cpp's own converter makes of tests/convert's random checkpoints.

    pip install torch transformers sentencepiece pyyaml            (the parity extra; used: 2.13.0, 5.23.0)
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36, and unpack it
    python tests/golden/make_reference_gguf.py llama_cpp_python-0.3.36/vendor/llama.cpp

Names, types, shapes and SHA-256 of every tensor in file order, and the metadata in file order. The
converter knows a pre-tokenizer by the hash of a tokenised text and cannot know a random vocabulary, so
"qwen2" is put in its mouth; nothing else is touched.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "convert"))


def main(llama_cpp: Path) -> None:
    sys.path.insert(0, str(llama_cpp))
    import convert_hf_to_gguf  # it puts the gguf package of its own release first
    import synthetic_checkpoint
    from conversion import base
    from gguf_description import FOLDER, TYPES, VARIANTS, describe

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    golden: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for variant, settings in VARIANTS.items():
            source = Path(scratch) / variant / FOLDER
            synthetic_checkpoint.make(source, **settings)
            for kind in TYPES[variant]:
                for role, flags in (("text", []), ("projector", ["--mmproj"])):
                    out = Path(scratch) / f"{variant}-{kind}-{role}.gguf"
                    sys.argv = ["", str(source), "--outtype", kind, "--outfile", str(out), *flags]
                    convert_hf_to_gguf.main()
                    golden[f"{variant} {kind} {role}"] = describe(out)
    (HERE / "reference_gguf.json").write_text(json.dumps(golden, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
