"""How the engine runs a model, and where a remote one is: values that the command line and the back ends share.

Knows names, defaults and what a server's address may be; imports no engine and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from vrt_lite.errors import UsageError

KvType = Literal["f16", "q8_0"]
RemoteKind = Literal["auto", "vllm", "sglang", "llama"]


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
    ubatch: int = 256
    kv_type: KvType = "f16"
    prefixes: int = 8
    verbose: bool = False
    exact: bool = False
    on_eval: Any = field(default=None, repr=False, compare=False)

    def text_flash_attention(self, *, on_gpu: bool) -> bool | None:
        """Whether the text model uses it; None lets the engine choose. The vision tower follows `flash_attention`.

        On a processor without it, at 4600 tokens of a 7B: reading 1.08 times as fast, writing 1.3, six guesses 1.5.
        The engine quantises values for flash attention alone.
        """
        if self.exact:
            return False
        decided = self.flash_attention is not None or on_gpu or self.kv_type != "f16"
        return self.flash_attention if decided else False


@dataclass(frozen=True, slots=True)
class Remote:
    """A judge on an OpenAI-compatible server: `url` is its base, `http://host:8000/v1`.

    Holds no secret: a key is in the environment alone, and a URL with credentials in it is refused with UsageError.
    `served_model` is the model's name there; None takes the only one. `kind` says how the server takes frames.
    `connect_seconds` is how long it may take no connection with all tries, `silence_seconds` how long it may say
    nothing, `total_seconds` how long one reply may take with all tries.
    """

    url: str = field(repr=False)
    served_model: str | None = None
    kind: RemoteKind = "auto"
    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    total_seconds: float = 1800.0
    tries: int = 6
    pause_seconds: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _base(self.url))


def _base(url: str) -> str:
    """The URL without a slash at its end; UsageError, which repeats no secret, if it cannot be a server's base."""
    like = "Give --backend a URL like http://127.0.0.1:8000/v1."
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"The back end's URL cannot be read. {like}") from None
    if "@" in url or parts.query or parts.fragment:
        raise UsageError(
            "The back end's URL holds credentials or a query, which would be shown and stored. "
            "Give the address alone, and the key in the environment: VRT_LITE_API_KEY."
        )
    if (
        parts.scheme not in {"http", "https"}
        or not host
        or any(c.isspace() or not c.isprintable() for c in url.strip())
    ):
        raise UsageError(f"The back end's URL {url!r} is no http:// or https:// address. {like}")
    return url.strip().rstrip("/")
