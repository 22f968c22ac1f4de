"""Makes fidelity.npz and fidelity.json from the reference (extra `parity`: torch, transformers 4.57).

    OMP_NUM_THREADS=1 python -m tests.golden.make_fidelity      (half a minute; ten times that if threads contend)

What the reference makes of the conversations in fidelity_cases.py with the random checkpoint there, in F32:
token ids, positions, the first frame of each clip resized, embeddings (twelve projections of every token),
logits after every token of text, 128 greedy tokens (32 where frames are large).

Random weights can tie: of each conversation the first seed is taken whose greedy turn has, at every token, a
lead over the next best of at least LEAST_MARGIN of the largest logit, and does not repeat itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fidelity_cases import (  # noqa: E402
    PROFILE,
    TRAINED,
    Case,
    Displayed,
    cases,
    compared_rows,
    make_checkpoint,
    projected,
)

from convert.reference import GreedyTurn, Reference, load_extra  # noqa: E402
from vrt_lite.backends.llamacpp.decoding import loops  # noqa: E402
from vrt_lite.protocol.messages import FrameRef  # noqa: E402

LEAST_MARGIN = 5e-4
MOST_SEEDS = 60


def main(out: Path) -> None:
    """Write both files into `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        make_checkpoint(Path(scratch) / "tiny")
        folder = Path(scratch) / "tiny"
        references = {profile.sha256: Reference(folder, profile=profile) for profile in (PROFILE, TRAINED)}
        arrays: dict[str, NDArray[np.generic]] = {}
        told: list[dict[str, object]] = []
        seen: set[tuple[int, int]] = set()
        for number in range(len(cases({}))):
            reference = references[cases({})[number].profile.sha256]
            seed, case, written = clear_lead(reference, number)
            told.append({"name": case.name, "seed": seed, "margin": float(f"{written.margin:.2e}")})
            arrays |= {f"{number} {key}": array for key, array in record(reference, case, seen).items()}
            arrays[f"{number} greedy"] = np.array(written.tokens, np.int16)
            print(told[-1], flush=True)
    version = f"transformers {load_extra()[1].__version__}"
    (out / "fidelity.json").write_text(json.dumps({"source": version, "cases": told}, indent=1) + "\n", "utf-8")
    np.savez_compressed(out / "fidelity.npz", **arrays)


def clear_lead(reference: Reference, number: int) -> tuple[int, Case, GreedyTurn]:
    """The first seed whose greedy turn is beyond doubt."""
    for seed in range(MOST_SEEDS):
        name = cases({})[number].name
        case = cases({name: seed})[number]
        frames = Displayed(case.sizes)
        tokens = case.profile.max_new_tokens
        written = reference.write(case.conversation, frames, tokens=tokens, least=LEAST_MARGIN)
        whole = len(written.tokens) == tokens
        if whole and written.margin >= LEAST_MARGIN and not any(loops(written.tokens[:n]) for n in (96, 128)):
            return seed, case, written
    raise SystemExit(f"{name}: none of {MOST_SEEDS} seeds has a clear lead")


def record(reference: Reference, case: Case, seen: set[tuple[int, int]]) -> dict[str, NDArray[np.generic]]:
    """What the test compares, in the narrowest types that hold it; pixels once of each size, noted in `seen`."""
    frames = Displayed(case.sizes)
    reading = reference.evaluate_stages(case.conversation, frames)
    shown = {frame.clip for message in case.conversation for frame in message.frames}
    new = [clip for clip in sorted(shown) if case.sizes[clip] not in seen]
    seen |= {case.sizes[clip] for clip in new}
    first = {clip: reference.frames.resized(frames.pixels([FrameRef(clip, 0)])[0]) for clip in new}
    pixels = {f"pixels {clip}": compared_rows(resized) for clip, resized in first.items()}
    return pixels | {
        "tokens": reading.tokens.astype(np.int16),
        "positions": reading.positions.astype(np.int16),
        "embeddings": projected(reading.embeddings),
        "norms": np.linalg.norm(reading.embeddings, axis=1),
        "logits": coarse(reading.logits),
    }


def coarse(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to 14 bits after the first, 3e-5 relative: a third off the file, and far below what is tested."""
    return ((values.view(np.uint32) + np.uint32(1 << 8)) & np.uint32(0xFFFFFE00)).view(np.float32)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
