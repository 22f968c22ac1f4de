"""What a pull would bring, before it is pulled: each quant of a model, its shape, and the disk that it takes.

The shape follows from the recipe's copy of the model's config.json.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Final

from vrt_lite.conversion.convert_folder import describe_pair
from vrt_lite.conversion.type_names import TYPES
from vrt_lite.errors import ModelError
from vrt_lite.fitting.memory_estimate import ModelShape, shape_of
from vrt_lite.models.gguf import normalise_quant
from vrt_lite.models.library import recipes
from vrt_lite.profile import Profile, parse_profile
from vrt_lite.pulling.checkpoint_pull import CHOICES
from vrt_lite.pulling.pull_source import PROJECTOR_TYPE, choose_quant

QUANTS: Final = (*CHOICES, "q3_k_m")
"""The quants of a checkpoint that are listed; others can be named."""
_SHARD_BYTES = 5_000_000_000
"""The most that a shard has, as publishers usually choose it."""


@dataclass(frozen=True, slots=True)
class PullOption:
    """A quant of a model that is not here, and what a pull takes of the disk.

    In bytes: what it fetches, what stays when it is done, and the most that it has on the disk at once.
    """

    quant: str
    shape: ModelShape
    fetched: int
    stays: int
    most: int


@dataclass(frozen=True, slots=True)
class PullOptions:
    """A model that is not here: the profile that it would have, and its quants, the largest first.

    `converted` tells whether a checkpoint is fetched and converted, not a GGUF.
    """

    name: str
    profile: Profile
    converted: bool
    options: tuple[PullOption, ...]

    def choose(self, memory_bytes: int) -> str:
        """The quant that a pull takes by itself on a machine with this memory; "" if none fits."""
        sizes = {o.quant: o.stays for o in self.options if o.quant in CHOICES or not self.converted}
        with contextlib.suppress(ModelError):
            return choose_quant(self.name, sizes, memory_bytes=memory_bytes)
        return ""


def list_pull_options(name: str, quant: str = "") -> PullOptions:
    """The quants of a model known by name that can be pulled, or the one that is named. Needs no network.

    ModelError if there is no such quant.
    """
    recipe = recipes()[name]
    if quant and (quant := normalise_quant(quant).lower()) not in (recipe.quants or TYPES):
        raise ModelError(f"{name} is not known as {quant!r}; choose {', '.join(recipe.quants or TYPES)}.")
    fetched, options = recipe.checkpoint_size, list[PullOption]()
    for kind in [quant] if quant else recipe.quants or QUANTS:
        shape = _describe_shape(name, kind)
        stays = shape.text_bytes + shape.projector
        # A shard is deleted once it is converted.
        options.append(PullOption(kind, shape, fetched or stays, stays, stays + min(fetched, _SHARD_BYTES)))
    return PullOptions(name, parse_profile(recipe.profile, f"recipe {name}"), fetched > 0, tuple(options))


@cache
def _describe_shape(name: str, text_type: str) -> ModelShape:
    """The shape of a known model. Each list of models asks for some fifty."""
    return shape_of(*describe_pair(recipes()[name].config, text_type=text_type, projector_type=PROJECTOR_TYPE))
