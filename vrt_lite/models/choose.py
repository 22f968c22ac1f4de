"""Which files make a judge: of a repository one text GGUF of a fitting quant, and the projector beside it.

The rule for quants (`best_quant`) is the same for a repository and for a folder of this machine. A listing and a
machine's memory in, a choice out. Knows the names that publishers use; refuses to trust them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from vrt_lite.errors import ModelError
from vrt_lite.models.gguf import Header
from vrt_lite.models.hub import HubFile, Listing
from vrt_lite.models.store import is_plain

CONTEXT_BYTES: Final = 2**30
"""What context and compute buffers are taken to need before the model's own numbers are known."""
SHARE_OF_MEMORY: Final = 0.7
"""Of all of a machine's memory, what a judge may take."""
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?I?Q\d(?:_[0-9A-Z]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=[-._]|$)", re.IGNORECASE
)
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
_GOOD = ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M")
_WHOLE = ("F16", "BF16", "F32")
_BY_FILE_TYPE = {
    0: "F32",
    1: "F16",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}
"""llama.cpp's numbers (general.file_type) of the quants that the rule names; any other is one of the small ones."""
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text GGUF to choose from: its path, its quant ("" if that is not known), its bytes."""

    path: str
    quant: str
    size: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The two files to fetch, and the text's quant ("" if its name has none)."""

    text: HubFile
    projector: HubFile
    quant: str

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return self.text.size + self.projector.size


def quant_of(name: str) -> str:
    """The quant that a GGUF's file name ends on, in capitals; "" if it names none."""
    found = _QUANT.findall(_SPLIT.sub("", name.removesuffix(".gguf")))
    return found[-1].upper().replace("FP", "F") if found else ""


def quant_in(header: Header, name: str) -> str:
    """The quant of a file that is here: what its header says, else what its name ends on; "" if neither does."""
    kind = header.get("general.file_type")
    return _BY_FILE_TYPE.get(kind, f"file type {kind}") if isinstance(kind, int) else quant_of(name)


def memory_here() -> int:
    """All of this machine's memory, in bytes."""
    import psutil  # noqa: PLC0415

    return psutil.virtual_memory().total


def best_quant(candidates: Iterable[Candidate], memory_bytes: int) -> Candidate | None:
    """The best of one model's files for so much memory, context included; None if none fits.

    It is the largest of the quants from Q4_K_M to Q8_0: above Q8_0 a judge gains nothing that can be measured. Without
    one that fits, the largest smaller one, for below Q4_K_M any is better than none; then one that is not quantised.
    """
    fits = [file for file in candidates if file.size + CONTEXT_BYTES <= memory_bytes]
    good = [file for file in fits if file.quant in _GOOD]
    small = [file for file in fits if file.quant not in _WHOLE]
    return max(good or small or fits, key=lambda file: (file.size, file.path), default=None)


def choose(listed: Listing, *, quant: str, memory_bytes: int) -> Choice:
    """The files to fetch; ModelError if there are none, if the quant is not listed, or if none fits into memory."""
    _refuse_paths(listed)
    ggufs = [
        file for file in listed.files if file.path.lower().endswith(".gguf") and "imatrix" not in file.path.lower()
    ]
    projectors = [file for file in ggufs if "mmproj" in file.name.lower()]
    texts = [file for file in ggufs if "mmproj" not in file.name.lower()]
    if not texts:
        raise ModelError(f"{listed.repository} publishes no GGUF text model (it lists {_names(listed.files)}).")
    if not projectors:
        raise ModelError(
            f"{listed.repository} publishes no projector (a file named mmproj*.gguf), so its model cannot see. "
            "Pull a repository that holds both."
        )
    projector = min(projectors, key=lambda file: (_rank(_PROJECTORS, quant_of(file.name)), file.size))
    text = _named(listed, texts, quant) if quant else _fitting(listed, texts, memory_bytes - projector.size)
    return Choice(text, projector, quant_of(text.name))


def _refuse_paths(listed: Listing) -> None:
    """A listing with a name that leads out of its folder is not worth reading further."""
    for file in listed.files:
        if not all(is_plain(part) for part in file.path.split("/")):
            raise ModelError(
                f"{listed.repository} lists the unsafe file name {file.path!r}; nothing was fetched from it."
            )


def _named(listed: Listing, texts: Sequence[HubFile], quant: str) -> HubFile:
    wanted = quant.upper().replace("FP", "F")
    found = [file for file in texts if quant_of(file.name) == wanted]
    if not found:
        quants = sorted({quant_of(file.name) or file.name for file in texts})
        raise ModelError(f"{listed.repository} has no quant {quant!r}; it has {', '.join(quants)}.")
    whole = [file for file in found if not _SPLIT.search(file.name.removesuffix(".gguf"))]
    if not whole:
        raise ModelError(
            f"{listed.repository} has {wanted} only in {len(found)} split parts ({found[0].name}, …), which are not "
            "joined here. Choose another quant, or join them with llama-gguf-split --merge and use --model FILE."
        )
    if len(whole) > 1:
        raise ModelError(
            f"{listed.repository} has {len(whole)} files of quant {wanted} ({_names(whole)}). "
            "Download one and use --model FILE."
        )
    return whole[0]


def _fitting(listed: Listing, texts: Sequence[HubFile], memory_bytes: int) -> HubFile:
    whole = [file for file in texts if not _SPLIT.search(file.name.removesuffix(".gguf"))]
    if not whole:
        raise ModelError(f"{listed.repository} has split GGUFs alone ({_names(texts)}), which are not joined here.")
    best = best_quant((Candidate(file.path, quant_of(file.name), file.size) for file in whole), memory_bytes)
    if best:
        return next(file for file in whole if file.path == best.path)
    least = min(whole, key=lambda file: file.size)
    raise ModelError(
        f"No quant of {listed.repository} fits: the smallest, {quant_of(least.name) or least.name}, needs about "
        f"{(least.size + CONTEXT_BYTES) / 1e9:.1f} GB beside its projector, and {max(memory_bytes, 0) / 1e9:.1f} GB "
        f"are to be had here. To pull it all the same, name it: {listed.repository}:{quant_of(least.name) or 'QUANT'}"
    )


def _rank(order: Sequence[str], quant: str) -> int:
    return order.index(quant) if quant in order else len(order)


def _names(files: Iterable[HubFile]) -> str:
    names = [file.path for file in files]
    return (", ".join(names[:6]) + (", …" if len(names) > 6 else "")) or "nothing"
