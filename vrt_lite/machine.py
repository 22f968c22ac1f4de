"""Values that describe a machine, and how the engine runs a model on it. Imports no engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

KvType = Literal["f16", "q8_0"]
SMALL_MODEL_BYTES: Final = 64 * 2**20
"""A text model with fewer bytes of weights runs on one thread, without flash attention (`Context` says why)."""
SPARE_BYTES: Final = 64 * 2**20
"""What is left free of a disk: for metadata, padding and the rest of the system."""
MOST_LOGITS: Final = 16
"""Tokens of one evaluation whose logits may be requested."""


MOST_SEQUENCES: Final = MOST_LOGITS
"""Conversations of one context: each writes one token in an evaluation."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What speed depends on besides the model.

    `cpus` are the processor's threads that this process may use, `gpus` the names of the GPUs, `engine` its version and
    features. `build` is a digest of what these do not show: the processor's instructions, which vary between virtual
    machines of one name, and the engine's libraries. Two machines with the same values are equally fast, and settings
    that work on one work on the other.
    """

    processor: str
    cpus: int
    gpus: tuple[str, ...]
    engine: str
    build: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: its name, and the bytes that are free on it."""

    name: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """A machine's memory in bytes: what is free now, the total with swap, and its GPU. Several count as one."""

    free_bytes: int
    total_bytes: int
    gpu: Gpu | None = None


def total_memory() -> int:
    """All of this machine's memory, in bytes."""
    import psutil  # noqa: PLC0415

    return psutil.virtual_memory().total


def format_bytes(size: float) -> str:
    """A number of bytes in decimal units: 1.20 GB, or 35.4 MB below a gigabyte."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """None lets the engine choose.

    `context` is in tokens; `ubatch` the most tokens of one evaluation; `repack` keeps a second copy of the weights in
    the processor's own layout; `prefixes` is how many clips' state as video 1 is kept for later pairs; `sequences` is
    how many conversations are held at once, each in a context of this size. `exact`
    rounds nothing to F16 on the way (keys, values, attention): for comparing with the reference. `on_eval` is the
    engine's own callback for each node of the text model's graph: for calibrating.
    """

    context: int | None = None
    gpu_layers: int | None = None
    projector_on_gpu: bool | None = None
    threads: int | None = None
    repack: bool = False
    flash_attention: bool | None = None
    ubatch: int = 192
    kv_type: KvType = "f16"
    prefixes: int = 8
    sequences: int = 1
    verbose: bool = False
    exact: bool = False
    on_eval: Any = field(default=None, repr=False, compare=False)

    def text_flash_attention(self, *, on_gpu: bool) -> bool | None:
        """Whether the text model uses it; None lets the engine choose. The vision tower follows `flash_attention`.

        On a processor without it, at 4600 tokens of a 7B: prefill is 1.08 times as fast, decoding 1.3 times, and
        decoding with six guesses 1.5 times.
        """
        undecided = self.flash_attention is None and not on_gpu and self.kv_type == "f16"
        return False if self.exact or undecided else self.flash_attention
