"""How the engine runs a model: a value that the command line, `estimate`, `tune` and the back end share.

Knows names and defaults; imports no engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

KvType = Literal["f16", "q8_0"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """None lets the engine choose.

    `context` is in tokens; `ubatch` the most tokens of one evaluation; `repack` keeps a second copy of the weights in
    the processor's own layout; `prefixes` is how many clips' state as video 1 is kept for later pairs. `exact`
    rounds nothing to F16 on the way (keys, values, attention): for comparing with the reference. `on_eval` is the
    engine's own callback for each node of the text model's graph: for calibrating.
    """

    context: int | None = None
    gpu_layers: int | None = None
    projector_on_gpu: bool | None = None
    threads: int | None = None
    repack: bool = False
    flash_attention: bool | None = None
    ubatch: int = 512
    kv_type: KvType = "f16"
    prefixes: int = 8
    verbose: bool = False
    exact: bool = False
    on_eval: Any = field(default=None, repr=False, compare=False)
