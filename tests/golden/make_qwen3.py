"""Makes qwen3.npz from the reference (extra `parity`): what it makes of the conversations in qwen3_cases.py, in F32.

OMP_NUM_THREADS=1 python tests/golden/make_qwen3.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import qwen3_cases  # noqa: E402
from fidelity_cases import Displayed  # noqa: E402
from make_fidelity import record  # noqa: E402

from convert.reference import Reference  # noqa: E402


def main(out: Path) -> None:
    """Write the golden file into `out`."""
    arrays: dict[str, NDArray[np.generic]] = {}
    seen: set[tuple[int, int]] = set()
    with tempfile.TemporaryDirectory() as scratch:
        qwen3_cases.make_checkpoint(Path(scratch) / "tiny")
        reference = Reference(Path(scratch) / "tiny", profile=qwen3_cases.PROFILE)
        for number, case in enumerate(qwen3_cases.cases()):
            arrays |= {f"{number} {key}": array for key, array in record(reference, case, seen).items()}
            frames = Displayed(case.sizes)
            written = reference.write(case.conversation, frames, tokens=qwen3_cases.GREEDY_TOKENS)
            arrays[f"{number} greedy"] = np.array(written.tokens, np.int16)
            print(case.name, len(written.tokens), f"{written.margin:.1e}", flush=True)
    np.savez_compressed(out / "qwen3.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
