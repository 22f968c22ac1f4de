"""The commands that manage models: pull, models, rm, cache, convert. Heavy modules are imported when needed."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vrt_lite.cli.options import (
    FILE_PATH,
    FOLDER,
    PATH,
    json_option,
    print_json,
    print_text,
    quiet_option,
    stored_option,
)
from vrt_lite.conversion.type_names import PROJECTOR_TYPES, TEXT_TYPES
from vrt_lite.errors import ModelError
from vrt_lite.machine import format_bytes

if TYPE_CHECKING:
    from vrt_lite.evaluation.published import PublishedAccuracy
    from vrt_lite.models.library import ListedModel

HEADINGS = ("NAME", "STATE", "QUANT", "ON DISK", "MEMORY", "TIME", "ANSWERS", "ACCURACY", "VERIFIED", "LICENCE")
STATUS = "Exit status: 0 done, 2 usage, 4 model missing, damaged, refused or out of reach, 130 interrupted."
_CACHE_STATUS = "Exit status: 0 done, 2 usage, 4 the folder cannot be changed, 130 interrupted."
_CONVERT_STATUS = """Exit status: 0 done, 2 usage or too little disk, 4 a checkpoint, adapter or matrix that cannot be
used, 130 interrupted."""


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME|OWNER/REPO[:QUANT]")
@click.option(
    "--projector-type",
    type=click.Choice(PROJECTOR_TYPES),
    help="Of a checkpoint's vision tower. On a CPU q6_k takes less than half of f16's time. [default: f16]",
)
@click.option("--profile", type=FILE_PATH, help="Profile for it, not its own.")
@quiet_option
def pull(model: str, *, quiet: bool, **options: Any) -> None:
    """Fetch a model from the Hugging Face hub.

    \b
    vrt-lite pull vr-thinker-7b
    vrt-lite pull vr-thinker-7b:q5_k_m --projector-type q6_k
    vrt-lite pull ggml-org/Qwen2.5-VL-7B-Instruct-GGUF:Q4_K_M

    Every file is checked. GGUF files are taken as they are. A checkpoint (safetensors) is converted while it arrives:
    the disk holds the result and one of its files. Without a quant, the largest from Q4_K_M to Q8_0 that fits
    this machine's memory is taken. An interrupted pull goes on with the file in which it stopped. The model is then
    found by its name: vrt-lite compare a.mp4 b.mp4 --model NAME
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.models import bundled_names  # noqa: PLC0415
    from vrt_lite.pulling import pull as pull_model  # noqa: PLC0415
    from vrt_lite.show.screen import CountedWork  # noqa: PLC0415

    with CountedWork("asking the hub", quiet=quiet) as progress:
        if model in bundled_names():
            progress.say(f"{model} comes with vrt-lite; there is nothing to pull.")
            return
        pulled = pull_model(model, progress=progress, **options)
        progress.say(f"ready: vrt-lite compare a.mp4 b.mp4 --model {pulled.manifest.name}")
    if not quiet:
        click.echo(str(pulled.folder))


@click.command(epilog=STATUS)
@json_option
def models(*, as_json: bool) -> None:
    """Show what is here, what can be pulled by name, and how.

    Of what can be pulled, QUANT is the one that a pull takes on this machine.
    MEMORY is about what judging takes: weights, projector, and the context that the model's profile asks for.
    TIME is how long a pair in one order takes here, or a clip: by earlier judgements, else by the engine's speed.
    ANSWERS says what is judged: alignment (TA), visual quality (VQ), motion quality (MQ), overall (OA).
    ACCURACY is published, tied pairs left out: below the table stands who says so, also where sources conflict.
    VERIFIED says whether this project has checked the model's verdicts.
    """
    from vrt_lite.evaluation.published import list_published  # noqa: PLC0415
    from vrt_lite.model_list import list_models  # noqa: PLC0415
    from vrt_lite.models.library import recipes  # noqa: PLC0415
    from vrt_lite.show.better_judge import keep_candidates  # noqa: PLC0415

    found, known = list_models(), recipes()
    keep_candidates(found)
    published = {of.name: list_published(known[of.name].published) if of.name in known else [] for of in found}
    if as_json:
        print_json([{**asdict(entry), "accuracy": published[entry.name]} for entry in found])
        return
    from vrt_lite.show.words import show_table  # noqa: PLC0415

    show_table(HEADINGS, [_row(entry, published[entry.name]) for entry in found])
    for name, of in published.items():
        if of:
            told = "; ".join(f"{a.set} {a.split} {a.value:.1f} % ({a.source})" for a in of)
            print_text(f"{name}, accuracy: {told}")
    for entry in found:
        if entry.fetched_bytes:
            fetched, stay = format_bytes(entry.fetched_bytes), format_bytes(entry.disk_bytes)
            way = f"as a checkpoint and converted here, {stay} stay" if entry.converted else "as GGUF, all of it stays"
            print_text(f"{entry.name}: vrt-lite pull {entry.name} ({fetched} fetched {way})")
        if entry.note:
            print_text(f"{entry.name}: {entry.note}", err=True)


@click.command(epilog=STATUS)
@click.argument("model", metavar="NAME")
def rm(model: str) -> None:
    """Delete a pulled model, or what an unfinished pull has left."""
    from vrt_lite.disk import disk_errors, locked  # noqa: PLC0415
    from vrt_lite.models import bundled_names, library  # noqa: PLC0415

    name = model.partition(":")[0]
    if name in bundled_names():
        raise ModelError(f"{name} comes with vrt-lite and is not deleted.")
    with disk_errors():
        # Of what is here the name is a plain one: nothing else is locked, or deleted.
        if not library.find_stored(model) and name not in library.partial_names():
            raise ModelError(f"Model {model!r} is not here. See: vrt-lite models")
        with locked(name):
            stored = library.find_stored(name)
            freed = library.partial_bytes(name) + (stored.size_bytes if stored else 0)
            library.remove_folder(library.partial_folder(name))
            library.remove_folder(library.model_folder(name))
    print_text(f"{name} is deleted, {format_bytes(freed)}")


def _row(entry: ListedModel, published: list[PublishedAccuracy]) -> tuple[str, ...]:
    from vrt_lite.show.words import format_range  # noqa: PLC0415

    about = "" if entry.state in ("bundled", "here", "damaged") else "~"
    return (
        entry.name,
        entry.state,
        entry.quant or "-",
        f"{about}{format_bytes(entry.disk_bytes)}",
        f"~{entry.memory_bytes / 1e9:.1f} GB" if entry.memory_bytes else "-",
        format_range(entry.seconds) if entry.seconds else "-",
        entry.answers or "-",
        " / ".join(f"{of.value:.1f}" for of in published) or "-",
        "yes" if entry.verified else "no",
        entry.licence,
    )


@click.command(epilog=_CACHE_STATUS)
@click.option("--clear", is_flag=True, help="Delete the encoded frames and the measures.")
@click.option("--clear-uploads", is_flag=True, help="Delete the clips that were sent to vrt-lite serve.")
@stored_option("cache-mb", hidden=True)
def cache(*, clear: bool, clear_uploads: bool, cache_mb: int | None) -> None:
    """Show what is kept on disk, and delete it before if that is asked for.

    That is encoded frames, measures of clips, and uploads. Of encoded frames, beyond 2000 megabytes the least
    recently used are deleted; another limit, or 0 to keep none:
    vrt-lite config set cache-mb N. Deleting them and the measures costs time, never a verdict. Without the uploads,
    what was judged of them stays, but they cannot be played again.
    """
    from vrt_lite import embeddings  # noqa: PLC0415
    from vrt_lite.disk import data_home, disk_errors  # noqa: PLC0415
    from vrt_lite.measures import kept as measures  # noqa: PLC0415
    from vrt_lite.web.upload_folder import list_uploads  # noqa: PLC0415

    folder, uploads = embeddings.cache_folder(), data_home() / "uploads"
    measured = measures.measures_folder()
    if clear:
        with disk_errors():
            embeddings.clear(folder)
            measures.clear(measured)
    for upload, _ in list_uploads(uploads) if clear_uploads else ():
        shutil.rmtree(upload, ignore_errors=True)
    entries, size_bytes = embeddings.usage(folder)
    most = embeddings.most_bytes_of(cache_mb)
    bound = f"at most {most / 1e6:.0f} MB" if most else "off: cache-mb is 0"
    clips = len(list(measures.list_files(measured)))
    sent = [size for _, size in list_uploads(uploads)]
    print_text(str(folder))
    click.echo(f"{entries} embeddings, {format_bytes(size_bytes)} ({bound})")
    click.echo(f"measures of {clips} clips")
    print_text(f"{len(sent)} uploads in {uploads}, {format_bytes(sum(sent))}")


@click.command(epilog=_CONVERT_STATUS)
@click.argument("source", metavar="SRC", type=PATH)
@click.option("--out", required=True, type=FOLDER, help="Folder for the pair, made if missing.")
@click.option(
    "--type",
    "text_type",
    metavar="TYPE",
    type=click.Choice(TEXT_TYPES),
    default="q4_k_m",
    help="Of the language model, see above. [default: q4_k_m]",
)
@click.option(
    "--projector-type", type=click.Choice(PROJECTOR_TYPES), default="f16", help="Of the vision tower. [default: f16]"
)
@click.option("--imatrix", type=FILE_PATH, help="Importance matrix, the GGUF that llama-imatrix writes.")
@click.option("--lora", "adapter", type=FOLDER, help="PEFT adapter to merge into the weights.")
@click.option("--profile", type=FILE_PATH, help="Profile of the pair. [default: SRC's profile.toml]")
@click.option("--name", help="Name of the files and in them. [default: SRC's]")
@click.option("--license", "licence", metavar="SPDX", help="Licence to record. [default: the model card's]")
@click.option("--source-url", metavar="URL", help="Origin to record. [default: the model card's]")
@quiet_option
def convert(
    source: Path, *, out: Path, licence: str | None, source_url: str | None, quiet: bool, **options: Any
) -> None:
    """Convert the checkpoint folder SRC to a quantised GGUF pair.

    \b
    vrt-lite convert ~/models/VR-Thinker --out ~/judge
    vrt-lite convert ~/models/VR-Thinker --out ~/judge --type q5_k_m
    vrt-lite compare a.mp4 b.mp4 --model ~/judge

    Writes DIR/NAME-TYPE.gguf and DIR/mmproj-NAME-TYPE.gguf, and prints both paths. SRC has config.json,
    tokenizer.json, preprocessor_config.json and safetensors in BF16, F16 or F32; it stays as it is. Each weight goes
    straight to its place, quantised: there is no file in between, and little memory is used. The bytes are those that
    llama.cpp's converter and quantiser give.

    A killed run leaves a folder in DIR that ends in .vrt-unfinished. The same command deletes it and begins anew.

    \b
    TYPE, with about the bits that a weight takes in a 7B:
      q8_0    8.5    almost equal to the checkpoint
      q6_k    6.6
      q5_k_m  5.7    q5_k_s, q5_0 are close
      q4_k_m  4.9    the usual choice where memory is short
                     q4_k_s, iq4_nl, iq4_xs, q4_0 are smaller
      q3_k_m  3.9    a clear loss
                     q3_k_l is larger, q3_k_s smaller
      q2_k    3.0    for experiments
    """  # noqa: D301 - \b is click's mark for "do not wrap"
    from vrt_lite.conversion.convert_folder import convert_folder  # noqa: PLC0415 - slow
    from vrt_lite.show.screen import CountedWork  # noqa: PLC0415

    authorship = {key: value for key, value in (("license", licence), ("source_url", source_url)) if value}
    with CountedWork("converting", quiet=quiet) as work:
        files = convert_folder(source, out, authorship=authorship, progress=work, **options)
    for file in files:
        click.echo(str(file))
    if not quiet:
        print_text(f"ready: vrt-lite compare a.mp4 b.mp4 --model {out}", err=True)
