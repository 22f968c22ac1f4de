"""Heads: linear layers that turn the model's state at a token of the prompt into a score. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import cast

import numpy as np

from vrt_lite.backends.llamacpp.engine import Model
from vrt_lite.backends.llamacpp.kv_cache import KvCache, count_tokens
from vrt_lite.backends.llamacpp.lower import Item
from vrt_lite.errors import ModelError
from vrt_lite.interfaces import Observe
from vrt_lite.models.gguf import read_gguf


class ScoreHeads:
    """The heads in a text model's file, by the names that its profile has for them; most have none.

    One is that of every name; of several each has its own. ModelError if the file has other heads than the profile.
    """

    def __init__(self, text: Path, model: Model, names: Sequence[str]) -> None:
        self._model = model
        values = np.array(read_gguf(text).head, np.float64)
        rows = values.reshape(-1, model.width) if len(values) % model.width == 0 else values[:0, None]
        if names and len(rows) not in (1, len(names)):
            raise ModelError(
                f"The profile has {len(names)} heads and the text model {len(rows)}: convert the checkpoint "
                "that has them (rm_head.weight), or use another profile."
            )
        self._weights = {name: rows[number % len(rows)] for number, name in enumerate(names)}

    def find_places(self, items: Sequence[Item], tokens: Mapping[str, str]) -> dict[str, int]:
        """Where the token of each head that is asked for stands, in order. ModelError unless that is one place."""
        places: dict[str, int] = {}
        for name, token in tokens.items():
            sought = self._model.control(token)
            found = [at for at, item in enumerate(items) if item == sought]
            if len(found) != 1:
                raise ModelError(f"The prompt has {token} {len(found)} times, where the head {name} needs it once.")
            places[name] = found[0]
        return dict(sorted(places.items(), key=itemgetter(1)))

    def read_scores(
        self,
        cache: KvCache,
        items: list[Item],
        places: Mapping[str, int],
        *,
        observe: Observe,
        others: Sequence[KvCache],
    ) -> tuple[int, dict[str, float]]:
        """Score a prompt with each head where its token stands; also returns how many tokens were evaluated."""
        read, scores = 0, dict[str, float]()
        for name, at in places.items():
            kept = cache.prefill(items[:at], observe, others=others)
            read += count_tokens(items[kept:at]) + 1
            state = cache.append_for_state(cast("int", items[at]))
            scores[name] = float(self._weights[name] @ state)
        return read, scores
