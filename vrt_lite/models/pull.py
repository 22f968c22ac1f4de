"""Brings a model here, whole, or says why not: listing, choice, files, digests, the pair's own check, manifest.

The order is what makes it safe to kill: files arrive in a partial folder under the digest that they must have, are
renamed once they have it, and the folder becomes the model when all is checked (see store). Refuses to know options
and exit statuses, and how the hub is spoken to.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vrt_lite.errors import ModelError, UsageError
from vrt_lite.models import hub, store
from vrt_lite.models.choose import SHARE_OF_MEMORY, Choice, choose
from vrt_lite.models.files import bundled_names, find, sha256
from vrt_lite.models.hub import HubFile, Listing, UnreachableError
from vrt_lite.models.recipes import Recipe, recipes
from vrt_lite.models.store import Manifest, Role, Stored, StoredFile
from vrt_lite.profile import PROFILE_NAME

Say = Callable[[str], None]
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_ARCHITECTURES = ("", "qwen2vl")
_SPARE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user asked for: a name that it will go by, where it is from, and a quant ("" for the best that fits)."""

    name: str
    repository: str
    revision: str
    quant: str
    recipe: Recipe | None


def wanted(reference: str) -> Wanted:
    """Read NAME[:quant] or owner/repo[:quant]; UsageError or ModelError, with what there is, if it is neither."""
    text = re.sub(r"^(https?://)?(huggingface\.co|hf\.co)/", "", reference.strip())
    name, colon, quant = text.partition(":")
    if colon and not re.fullmatch(r"[\w.-]{1,40}", quant, re.ASCII):
        raise UsageError(f"{reference!r} names no quant after the colon; for example {name}:Q4_K_M.")
    if recipe := recipes().get(name):
        return Wanted(name, recipe.repository, recipe.revision, quant or recipe.quant, recipe)
    if _REPOSITORY.fullmatch(name) and ".." not in name and "--" not in name:
        return Wanted(name, name, "", quant, None)
    if "/" in name:
        raise UsageError(f"{reference!r} is no owner/repo[:quant] of the hub.")
    known = ", ".join(n for n in recipes() if n not in bundled_names())
    raise ModelError(f"Model {name!r} is not known. Pull one of {known}, or owner/repo[:quant].")


def pull(reference: str, *, memory_bytes: int, say: Say) -> Stored:
    """Bring a model here, or see that it is here whole; `say` gets a line a stage."""
    want = wanted(reference)
    with store.disk_errors(), contextlib.ExitStack() as stack:
        if stack.enter_context(store.locked(want.name)):
            say(f"another process had {want.name} in hand; waited for it")
        here = store.find_stored(want.name)
        try:
            listed = hub.listing(want.repository, want.revision)
        except UnreachableError as error:
            if not here or here.damage or want.quant.upper() not in ("", here.manifest.quant):
                raise
            say(f"{want.name} is here already; the hub was not asked for a newer one: {error}")
            return here
        choice = _choose(want, listed, here, memory_bytes)
        licence = _licence(want, listed)
        quant = choice.quant or "an unnamed quant"
        say(f"{want.name}: {listed.repository} at {listed.revision[:12]}, {quant}, {_gb(choice.size_bytes)}")
        say(f"licence: {licence}{f' ({want.recipe.licence_url})' if want.recipe else ''}")
        if here and _unchanged(here, listed, choice):
            say(f"{want.name} is here already, sha256 of every file checked")
            return here
        files = _bring(want, listed, choice, here, say)
        verified = bool(want.recipe and want.recipe.verified)
        store.register(Manifest(want.name, listed.repository, listed.revision, choice.quant, licence, verified, files))
    model = store.find_stored(want.name)
    if model is None:
        raise ModelError(f"{want.name} was taken away while it arrived. Pull it again.")
    return model


def _choose(want: Wanted, listed: Listing, here: Stored | None, memory_bytes: int) -> Choice:
    if listed.architecture not in _ARCHITECTURES:
        raise ModelError(f"{listed.repository} is of architecture {listed.architecture!r}; a judge needs 'qwen2vl'.")
    # What was chosen once stays chosen: memory that is free today must not exchange the model.
    quant = want.quant or (here.manifest.quant if here else "")
    try:
        return choose(listed, quant=quant, memory_bytes=int(memory_bytes * SHARE_OF_MEMORY))
    except ModelError as error:
        convert = want.recipe.convert if want.recipe else ""
        if not convert or any(file.name.lower().endswith(".gguf") for file in listed.files):
            raise
        raise ModelError(
            f"{want.repository} publishes no GGUF, so {want.name} cannot be pulled. Convert it in a checkout of "
            f"vrt-lite (pip install -e '.[convert]'): {convert}  Then: "
            f"vrt-lite compare a.mp4 b.mp4 --model ./{want.name}"
        ) from error


def _unchanged(here: Stored, listed: Listing, choice: Choice) -> bool:
    """What is here is what would be pulled, every byte of it."""
    held = {file.name for file in here.manifest.files if file.role != "profile"}
    same = here.manifest.revision == listed.revision and held == {choice.text.name, choice.projector.name}
    return same and not here.damage and all(_is(here.folder / file.name, file) for file in here.manifest.files)


def _licence(want: Wanted, listed: Listing) -> str:
    return want.recipe.licence if want.recipe else listed.licence or "not stated; see the model's page"


def _bring(want: Wanted, listed: Listing, choice: Choice, here: Stored | None, say: Say) -> tuple[StoredFile, ...]:
    """Both files and the profile, checked, in the partial folder; without a trace if they are no judge."""
    folder = store.partial_folder(want.name)
    folder.mkdir(parents=True, exist_ok=True)
    if choice.text.name == choice.projector.name:
        raise ModelError(f"{listed.repository} gives text and projector one name, {choice.text.name}.")
    sums = {file: _sum(want, file) for file in (choice.projector, choice.text)}
    _room(folder, sums)
    files = [
        _file(listed, choice.projector, sums[choice.projector], "projector", folder, here, say),
        _file(listed, choice.text, sums[choice.text], "text", folder, here, say),
    ]
    profile = folder / PROFILE_NAME
    profile.unlink(missing_ok=True)
    if want.recipe and want.recipe.profile:
        store.write_whole(profile, want.recipe.profile.encode())
        files.append(StoredFile(PROFILE_NAME, "profile", profile.stat().st_size, sha256(profile)))
    try:
        find(folder / choice.text.name, projector=folder / choice.projector.name)
    except ModelError as error:
        store.discard(folder)
        raise ModelError(f"{want.name} is refused and nothing of it was kept: {error}") from error
    return tuple(files)


def _sum(want: Wanted, file: HubFile) -> str:
    """The digest that a file must have: the hub's, which must be the recipe's if that has one."""
    recipe = want.recipe.sums.get(file.name, "") if want.recipe else ""
    if recipe and file.sha256 and recipe != file.sha256:
        raise ModelError(
            f"The hub lists {file.name} with sha256 {file.sha256[:12]}…, but the recipe of {want.name} says "
            f"{recipe[:12]}…: it is not the file that is known. To take it all the same: "
            f"vrt-lite pull {want.repository}"
        )
    if not re.fullmatch("[0-9a-f]{64}", recipe or file.sha256):
        raise ModelError(f"The hub gives no sha256 for {file.path}, so it cannot be checked; nothing was fetched.")
    return recipe or file.sha256


def _room(folder: Path, sums: dict[HubFile, str]) -> None:
    missing = sum(file.size - _held(folder / file.name) - _held(folder / f"{sums[file]}.part") for file in sums)
    free = shutil.disk_usage(folder).free
    if missing + _SPARE_BYTES > free:
        raise ModelError(
            f"{_gb(missing)} are still to come and {folder} has {_gb(free)} free. "
            f"Free some, remove a model (vrt-lite rm), or set {store.HOME_VARIABLE} to another disk."
        )


def _file(
    listed: Listing, file: HubFile, digest: str, role: Role, folder: Path, here: Stored | None, say: Say
) -> StoredFile:
    """One file, whole and with its digest, in `folder`: what is there, what is here, or from the hub, twice at most."""
    done, part = folder / file.name, folder / f"{digest}.part"
    good = StoredFile(file.name, role, file.size, digest)
    if _is(done, good) or _reused(here, good, done):
        say(f"{file.name}: here, sha256 checked")
        return good
    done.unlink(missing_ok=True)
    for again in (False, True):
        held = _held(part)
        if part.is_symlink() or held > file.size:
            part.unlink()
        elif held:
            say(f"{file.name}: going on at {_gb(held)} of {_gb(file.size)}")
        hub.fetch(listed, file, part)
        if _is(part, good):
            part.replace(done)
            say(f"{file.name}: {_gb(file.size)}, sha256 checked{', repaired' if again else ''}")
            return good
        held = part.stat().st_size
        was = f"it has {held} bytes, not {file.size}" if held != file.size else f"its sha256 is not {digest[:12]}…"
        part.unlink()
        if not again:
            say(f"{file.name}: arrived damaged ({was}); deleted, fetching it again")
    raise ModelError(
        f"{file.name} of {listed.repository} arrived damaged twice ({was}); it was deleted. "
        "Pull again later, or from another network; if it stays so, the source is damaged."
    )


def _reused(here: Stored | None, good: StoredFile, to: Path) -> bool:
    """Take a file from the model that is here, if that is the right one: no second download for a repair."""
    if here is None or not _is(here.folder / good.name, good):
        return False
    to.unlink(missing_ok=True)
    try:
        os.link(here.folder / good.name, to)
    except OSError:
        shutil.copyfile(here.folder / good.name, to)
        return _is(to, good)
    return True


def _is(path: Path, good: StoredFile) -> bool:
    return not path.is_symlink() and path.is_file() and _held(path) == good.size and sha256(path) == good.sha256


def _held(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
