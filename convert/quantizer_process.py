"""Runs llama.cpp's quantiser in its own process: `python -m convert.quantizer_process SOURCE PART TYPE [IMATRIX]`.

The engine aborts on unexpected input, delays an interrupt until it is done, and explains a failure only in its log. So
it has its own process. This process also ends when its standard input is closed, that is when the run that started it
ends. Slow modules are imported late, so that it watches its standard input from the start.

Standard output has one line `DONE TOTAL` a tensor; a failure is one line on standard error and a status
from vrt_lite.errors.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vrt_lite.conversion.whole_files import check_room
from vrt_lite.errors import ModelError, OutOfMemoryError, VrtError
from vrt_lite.models import read_header

BUFFER_BYTES = 512 << 20  # rows held at once; the result does not depend on it
LEVEL_ERROR = 4  # enum ggml_log_level
STEP = re.compile(r"\[ *(\d+)/ *(\d+)\]")
SIZE = re.compile(r"quant size += +([\d.]+) MiB")


def quantize(source: Path, part: Path, file_type: int, imatrix: Path | None) -> None:
    """Write `part`. Raises ModelError, UsageError for a full disk, or OutOfMemoryError."""
    import llama_cpp.llama_cpp as engine  # noqa: PLC0415 - slow

    log: list[str] = []

    @engine.llama_log_callback
    def listen(level: int, text: bytes, _: Any) -> None:
        line = text.decode(errors="replace").strip()
        if step := STEP.match(line):
            if not parameters.dry_run:
                print(*step.groups(), flush=True)
        elif level >= LEVEL_ERROR or SIZE.search(line):
            log.append(line)

    parameters = engine.llama_model_quantize_default_params()
    parameters.ftype, parameters.max_buf_size = file_type, BUFFER_BYTES
    parameters.nthread = os.cpu_count() or 1
    if imatrix:
        entries = _entries(engine, imatrix)
        parameters.imatrix = entries  # ctypes keeps it alive as long as the parameters
    for parameters.dry_run in (True, False):
        with logging_to(listen):
            status = engine.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.pointer(parameters))
        if status:
            raise _failure(source, log)
        if parameters.dry_run:
            _check_space(part.parent, log)
    _check_result(part, file_type)


@contextmanager
def logging_to(listen: Any) -> Generator[None]:
    """Send the engine's log to a callback, and to where it went before when the block ends."""
    import llama_cpp.llama_cpp as engine  # noqa: PLC0415 - slow

    before, data = engine.llama_log_callback(), ctypes.c_void_p()
    engine.llama_log_get(ctypes.pointer(before), ctypes.pointer(data))
    engine.llama_log_set(listen, ctypes.c_void_p(0))
    try:
        yield
    finally:
        engine.llama_log_set(before, data)


def _check_space(folder: Path, log: list[str]) -> None:
    """Check the free disk space. Only the engine knows the size: it stores some tensors in a larger type."""
    found = [match for line in log if (match := SIZE.search(line))]
    check_room(folder, int(float(found[-1][1]) * 2**20) if found else 0)


def _check_result(part: Path, file_type: int) -> None:
    """Check that the result is complete and has the requested type: the engine does not notice every failed write."""
    import gguf  # noqa: PLC0415 - slow

    header = read_header(part)
    try:
        gguf.GGUFReader(part)  # it maps every tensor, so it fails for one past the end
    except (ValueError, IndexError, OSError) as error:
        raise ModelError(f"the engine wrote a file that is not whole ({error}): is the disk full?") from error
    if header.get("general.file_type") != file_type:
        raise ModelError(f"the engine wrote file type {header.get('general.file_type')}, asked was {file_type}")


def _failure(source: Path, log: list[str]) -> VrtError:
    reason = next((line for line in reversed(log) if not SIZE.search(line)), "it gives no reason")
    reason = reason.rpartition("failed to quantize: ")[2]
    if "bad_alloc" in reason or "allocate" in reason:
        return OutOfMemoryError(f"{source} cannot be quantised, memory is too short: {reason}")
    return ModelError(f"{source} cannot be quantised: {reason}")


def _entries(engine: Any, path: Path) -> Any:
    """Load the importance matrix in the engine's form: an array that ends with an empty entry."""
    from vrt_lite.conversion.importance_matrix import read_importance  # noqa: PLC0415 - slow

    means = read_importance(path)
    entries = (engine.llama_model_imatrix_data * (len(means) + 1))()
    for entry, (name, values) in zip(entries, means.items(), strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    entries.kept = means  # the entries point to this memory
    return entries


def main(arguments: list[str]) -> int:
    """Run the quantiser. An error becomes one line and an exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would wait for the engine to return

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    source, part, file_type, *imatrix = arguments
    try:
        quantize(Path(source), Path(part), int(file_type), Path(imatrix[0]) if imatrix else None)
    except (VrtError, OSError, MemoryError) as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        status = error.status if isinstance(error, VrtError) else VrtError.status
        return OutOfMemoryError.status if isinstance(error, MemoryError) else status
    return 0


if __name__ == "__main__":
    # Not sys.exit: at the end of the interpreter the thread above still holds the lock of standard input.
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(ended)
