"""The verb `calibrate`: an importance matrix from what a pair's judge reads and writes over given clips.

The file has the format of llama-imatrix (tools/imatrix/imatrix.cpp, `save_imatrix`). convert/activations.py reads the
engine's graph. Verdicts do not matter here: all text and frames that the model reads or writes count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from convert.activations import Inputs, Watch
from convert.clip_pairs import ClipPair
from convert.source import find_exact, projector_beside
from vrt_lite.api import Judge
from vrt_lite.backends.llamacpp import LlamaCppBackend
from vrt_lite.disk import draft_of
from vrt_lite.errors import ModelError, NoVerdictError, UsageError, VideoError
from vrt_lite.machine import EngineSettings
from vrt_lite.models import ModelFiles, find
from vrt_lite.models.gguf import read_gguf
from vrt_lite.protocol.messages import LONGEST_PROMPT

CHUNK_TOKENS = 512
"""The unit of the file's chunk count: llama.cpp's default context, in which llama-imatrix reads."""

TYPE = "imatrix"
Sums = dict[str, Inputs]


@dataclass(frozen=True, slots=True)
class CalibrationProgress:
    """Functions that are called before each pair (number from 0, total) and for each skipped pair (with the reason)."""

    begins: Callable[[int, int], None] = lambda number, total: None
    skips: Callable[[ClipPair, str], None] = lambda pair, reason: None


def calibrate(
    source: Path,
    pairs: Sequence[ClipPair],
    *,
    out: Path,
    datasets: Sequence[str],
    projector: Path | None = None,
    progress: CalibrationProgress | None = None,
) -> Path:
    """Judge the pairs with the model in `source` and write the importance matrix `out`, which names `datasets`.

    `source` is a folder or a text GGUF, of any type. A pair that cannot be judged is skipped; a judgement without a
    verdict counts. The order of the pairs has no influence. Raises ModelError for files that cannot be used and if no
    pair could be judged, UsageError for `out` and captions, OutOfMemoryError.
    """
    if not pairs:
        raise UsageError("nothing to judge: give --clips A B with --caption, or --pairs FILE")
    for pair in pairs:
        if len(pair.caption) > LONGEST_PROMPT:
            raise UsageError(
                f"the caption {pair.caption:.40}... is longer than {LONGEST_PROMPT} characters: shorten it"
            )
    _check_out(out)
    files = find_judge_files(source, projector)
    sums = _judge_pairs(files, pairs, progress or CalibrationProgress())
    with draft_of(out) as draft:
        write_matrix(draft, sums, datasets)
    return out


def find_judge_files(source: Path, projector: Path | None) -> ModelFiles:
    """Find the pair to judge with. Of several language models in a folder, it is the one that is not quantised.

    Its projector is the one with the same name, or else the largest one beside it, which is the most exact.
    """
    path = find_exact(source, "text model", or_only=True) if source.is_dir() else source
    return find(path, projector=projector or projector_beside(path))


def _check_out(out: Path) -> None:
    """Check the output file before the first pair, so that no hours of judging are lost."""
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be written: there is no folder {out.parent}")
    if out.exists() and not (out.is_file() and _is_matrix(out)):
        raise UsageError(f"{out} is there and is no importance matrix: give another name")


def _is_matrix(path: Path) -> bool:
    try:
        return read_gguf(path).values.get("general.type") == TYPE
    except ModelError:
        return False


def _judge_pairs(files: ModelFiles, pairs: Sequence[ClipPair], progress: CalibrationProgress) -> Sums:
    """Judge the pairs. Returns the sums over all pairs that could be judged."""
    columns = _columns(files.text)
    watch = Watch(columns)
    settings = EngineSettings(on_eval=watch.callback, prefixes=0)
    sums: Sums = {}
    with (
        LlamaCppBackend(files.text, files.projector, profile=files.profile, settings=settings) as backend,
        Judge(files.text, projector=files.projector, backend=backend) as judge,
    ):
        backend.guesses = 0  # wrong guesses of prompt lookup would be evaluated too
        for number, pair in enumerate(pairs):
            progress.begins(number, len(pairs))
            backend.reset()  # a pair must not reuse tokens of the previous one
            reason = "both are the same file, of which nothing is judged"
            try:
                judge.compare(pair.a, pair.b, prompt=pair.caption)
            except NoVerdictError as error:
                reason = str(error)
            except VideoError as error:
                watch.take()  # drop the sums from before the clip's error
                progress.skips(pair, str(error))
                continue
            if read := watch.take():
                sums = {weight: sums[weight] + inputs if sums else inputs for weight, inputs in read.items()}
            else:
                progress.skips(pair, reason)
    progress.begins(len(pairs), len(pairs))
    _check_sums(sums, columns, files.text)
    return sums


def _columns(path: Path) -> dict[str, int]:
    """Return the columns of every weight in a matrix product: a quantiser stores these in fewer bits."""
    found = {tensor.name: tensor.dimensions[0] for tensor in read_gguf(path).tensors if len(tensor.dimensions) > 1}
    if "output.weight" in found:  # then the embedding is only looked up
        found.pop("token_embd.weight", None)
    return found


def _check_sums(sums: Sums, columns: Mapping[str, int], path: Path) -> None:
    if not sums:
        raise ModelError("no pair could be judged: nothing is written; give clips that play")
    for weight in columns:
        if weight not in sums:
            raise ModelError(f"the engine showed nothing that enters {weight}: this llama-cpp-python is not known here")
        if not np.isfinite(sums[weight].squares).all():
            raise ModelError(f"{path}: what enters {weight} is no finite number: the model is broken")


def write_matrix(path: Path, sums: Mapping[str, Inputs], datasets: Sequence[str]) -> None:
    """Write a GGUF as llama-imatrix does: for each weight the sums of squares and the number of rows."""
    writer = _Writer(os.fspath(path), "")
    try:
        writer.add_type(TYPE)
        writer.add_array("imatrix.datasets", list(datasets))
        rows = max(inputs.rows for inputs in sums.values())
        writer.add_uint32("imatrix.chunk_count", -(-rows // CHUNK_TOKENS))
        writer.add_uint32("imatrix.chunk_size", CHUNK_TOKENS)
        for weight, inputs in sorted(sums.items()):
            writer.add_tensor(f"{weight}.in_sum2", inputs.squares.astype(np.float32))
            writer.add_tensor(f"{weight}.counts", np.array([inputs.rows], np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


class _Writer(GGUFWriter):
    def add_architecture(self) -> None:
        """Do nothing: an importance matrix has no architecture."""
