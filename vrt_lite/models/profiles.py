"""How a judge talks whose weights are elsewhere: the profile by a model's name, without its weights.

Knows where profiles lie; refuses to know what they say (profile's) and who has the weights.
"""

from __future__ import annotations

from pathlib import Path

from vrt_lite.models.files import bundled_names, find
from vrt_lite.models.recipes import recipes
from vrt_lite.models.store import find_stored
from vrt_lite.profile import PROFILE_NAME, Profile, default_profile, load_profile, parse_profile


def profile_of(model: str | Path | None) -> Profile:
    """VR-Thinker's without a name; else that of a profile file, a folder, a recipe, or a judge that is here.

    Raises ModelError if there is none of that name.
    """
    if model is None:
        return default_profile()
    path = Path(model)
    if path.suffix == ".toml" and path.is_file():
        return load_profile(path)
    if path.is_dir() and (path / PROFILE_NAME).is_file():
        return load_profile(path / PROFILE_NAME)
    name = str(model)
    if name in recipes() and name not in bundled_names() and not find_stored(name):
        return parse_profile(recipes()[name].profile, f"recipe {name}")
    return find(model).profile
