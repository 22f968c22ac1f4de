"""`python -m convert VERB …`: parse, call, print. Only this module turns errors into a line and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from convert.clip_pairs import collect_pairs
from convert.quantize import quantize_pair
from convert.source import locate
from vrt_lite.conversion.convert_folder import export_pair
from vrt_lite.conversion.type_names import PROJECTOR_TYPES, TEXT_TYPES, TYPES
from vrt_lite.disk import file_sha256
from vrt_lite.errors import VrtError
from vrt_lite.show.screen import CountedWork

FOLDER = click.Path(path_type=Path)
PROJECTED = click.Choice(("f32", *PROJECTOR_TYPES))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def convert() -> None:
    """Make the GGUF files that vrt-lite runs, from a published checkpoint.

    Works with NumPy and the gguf package on the files, without torch. Only a checkpoint that is
    named by its repository is downloaded. `python -m convert VERB --help` describes a verb;
    convert/README.md shows a whole session.

    \b
    Exit status:
      0    done
      2    a wrong argument, or too little disk
      4    a checkpoint, adapter or GGUF that cannot be used; the line says why
      5    the machine's memory is too small
      1    any other failure

    A file gets its name only when it is complete and on disk. A killed run leaves a folder that ends
    in .vrt-unfinished: the same command deletes it and begins anew.
    """  # noqa: D301 - click's mark for "do not wrap" is the control character itself


@convert.command()
@click.argument("source", metavar="SRC")
@click.option("--out", metavar="DIR", required=True, type=FOLDER, help="Folder for the pair, made if missing.")
@click.option(
    "--type", "text_type", metavar="TYPE", type=click.Choice(TYPES), default="q8_0", help="See above. [default: q8_0]"
)
@click.option("--projector-type", type=PROJECTED, default="f16", show_default=True, help="Of the vision tower.")
@click.option("--revision", metavar="REV", help="Branch, tag or commit of a repository; its main branch if not given.")
@click.option("--lora", "adapter", metavar="ADAPTER", type=FOLDER, help="PEFT folder to merge into the weights.")
@click.option("--name", show_default="SRC's", help="Name of the files and in them.")
@click.option("--license", "licence", metavar="SPDX", show_default="the model card's", help="Licence to record.")
@click.option("--source-url", metavar="URL", show_default="the model card's", help="Origin to record.")
def export(source: str, revision: str | None, licence: str | None, source_url: str | None, **options: Any) -> None:
    """Turn the Qwen2.5-VL checkpoint SRC into a GGUF pair.

    Writes DIR/NAME-TYPE.gguf (the language model) and DIR/mmproj-NAME-TYPE.gguf (the vision tower),
    and prints sha256, bytes and path of each. The tensors are byte for byte those of llama.cpp's own
    converter, and of its quantiser for the smaller types. The files are the same on every run. Files
    of these names are replaced, at the very end and only if all went well.

    SRC is a folder with config.json, tokenizer.json, preprocessor_config.json and safetensors shards
    in F32, F16 or BF16, as a model hub delivers them; or, where there is no such folder, OWNER/NAME
    on the hub, which is downloaded to the hub's cache first. Memory holds blocks of rows, never a
    whole tensor.

    With --lora the adapter is merged in float32 while the weights stream, and its folder's name is
    part of NAME unless --name is given. Plain LoRA on linear layers only, with or without rank
    stabilisation: what else PEFT knows (DoRA, trained biases, modules saved whole, rank patterns) is
    refused by name, as is an adapter of which not every tensor finds its place.

    \b
    Types, for either file:
      q8_0   half of f16; norms, biases and rows that are not whole blocks of 32 stay larger
      f16    exact for an F16 checkpoint
      bf16   exact for a BF16 checkpoint; fast only on CPUs that compute in it
      f32    exact for all, and twice as large

    Both files can have each type of `quantize` as well: q6_k, q5_k_m, q4_k_m and so on, with the bytes
    that an export in the checkpoint's type and `quantize` after it would give. With an importance
    matrix: `vrt-lite convert`.

    \b
    Examples:
      python -m convert export ~/models/VR-Thinker --out ~/gguf --projector-type bf16
      python -m convert export qunwang13/vr-thinker --revision main --out ~/gguf --type bf16
      python -m convert export ~/models/Qwen2.5-VL-7B --lora ~/adapters/judge --out ~/gguf

    Exit status: 0 done, 2 a wrong argument or too little disk, 4 a checkpoint or adapter that cannot
    be used, 1 any other failure.
    """  # noqa: D301 - as above
    found = locate(source, revision=revision, show_progress=sys.stderr.isatty())
    authorship = {k: v for k, v in (("license", licence), ("source_url", source_url)) if v}
    options |= {"folder_name": found.name, "authorship": authorship}
    with _show_writing() as progress:
        written = export_pair(found.folder, progress=progress, **options)
    _print(written)


@convert.command()
@click.argument("source", metavar="DIR", type=FOLDER)
@click.option(
    "--type", "text_type", type=click.Choice(TEXT_TYPES), metavar="TYPE", help="Of the language model, see above."
)
@click.option("--projector-type", type=click.Choice(PROJECTOR_TYPES), help="Of the vision tower.")
@click.option("--imatrix", metavar="FILE", type=FOLDER, help="Importance matrix, the GGUF that llama-imatrix writes.")
def quantize(source: Path, **options: Any) -> None:
    """Write smaller files beside a pair that is not quantised yet.

    From the one F16, BF16 or F32 language model in DIR makes DIR/NAME-TYPE.gguf with the bytes of
    llama.cpp's own quantiser, and from the one such projector, if --projector-type is given,
    DIR/mmproj-NAME-TYPE.gguf. Prints sha256, bytes and path of each. The sources stay as they are.
    Where DIR holds several files to start from, give the file itself.

    A file that is quantised already is refused: bits lost once are lost again. A row that is not whole
    blocks of a type (256 values for those with a k and iq4_xs, 32 for the rest) is stored in a larger
    type, as llama.cpp chooses for the language model.

    An importance matrix weighs each column by what passes through it, which is worth most at 4 bits
    and below. It must be of the same model.

    \b
    Types of the language model, with about the bits a weight takes in a 7B:
      q8_0    8.5    almost equal to f16
      q6_k    6.6
      q5_k_m  5.7    q5_k_s, q5_0 are close
      q4_k_m  4.9    the usual choice where memory is short; q4_k_s, iq4_nl, iq4_xs, q4_0 are smaller
      q3_k_m  3.9    q3_k_l larger, q3_k_s smaller: a clear loss
      q2_k    3.0    for experiments

    Types of the projector: f16 and bf16 as `export` describes them; q8_0, q6_k, q5_k and q4_k with the
    width of the vision tower padded to whole blocks, which changes no value.

    \b
    Examples:
      python -m convert quantize ~/gguf --type q4_k_m
      python -m convert quantize ~/gguf --type q5_k_m --projector-type q8_0
      python -m convert quantize ~/gguf/VR-Thinker-BF16.gguf --type iq4_xs --imatrix ~/vr-thinker.imatrix.gguf

    Exit status: 0 done, 2 a wrong argument or too little disk, 4 a file that cannot be used, 1 any
    other failure.
    """  # noqa: D301 - as above
    with _show_writing() as progress:
        written = quantize_pair(source, progress=progress, **options)
    _print(written)


@convert.command()
@click.argument("source", metavar="SRC")
@click.argument("folders", metavar="DIR...", type=FOLDER, nargs=-1, required=True)
@click.option("--revision", metavar="REV", help="Branch, tag or commit of a repository; its main branch if not given.")
@click.option("--clips", metavar="A B", nargs=2, type=FOLDER, multiple=True, help="A pair to judge; repeatable.")
@click.option("--caption", "captions", multiple=True, help="What the two clips are to show, once for every --clips.")
@click.option("--pairs", "listed", metavar="FILE", type=FOLDER, help="CSV or JSONL of pairs to judge: a, b, caption.")
@click.option("--tokens", default=128, show_default=True, type=click.IntRange(1), help="Greedy tokens to compare.")
@click.option("--table", "out", metavar="FILE", type=FOLDER, help="Markdown file to put the table in.")
def verify(
    source: str,
    folders: tuple[Path, ...],
    revision: str | None,
    clips: tuple[tuple[Path, Path], ...],
    captions: tuple[str, ...],
    listed: Path | None,
    tokens: int,
    out: Path | None,
) -> None:
    """Measure every pair in each DIR against the checkpoint SRC that it came from.

    SRC is a folder or OWNER/NAME on the hub, as for `export`.

    One conversation of two rounds, with two videos and the frames that a call asked for, goes through
    transformers in F32 and through each language model in DIR with its projector (that of its own type,
    or else the largest). Compared are resized pixels (grey levels), positions, embeddings and logits
    (relative error), predictions (KL divergence, top-1 agreement) and greedy tokens (equal until).

    Then transformers and each language model judge pairs of clips, by the loop of `vrt-lite compare`
    and greedily. The column verdict counts their equal judgements, four a pair (TA, VQ, MQ, OA): "7 of
    8 on 2 pairs". Where transformers ended without a verdict there is nothing to count, and it says so.

    The pairs are those of --clips and then those of --pairs: a CSV file with the header a,b,caption, or
    JSONL with an object of these keys a line; relative paths are meant from that file's folder. Of
    these the conversation shows the first. Without any, its frames are drawn, and examples/ is judged.

    Needs the extra [parity] and the memory for SRC in F32: 4 bytes a weight. A profile with the clock
    "exact" needs transformers 5, others are served by 4.57 as well. --table replaces what stands
    between the lines <!-- verify:start --> and <!-- verify:end --> of FILE.

    \b
    Examples:
      python -m convert verify ~/models/VR-Thinker ~/gguf --clips a.mp4 b.mp4 --caption "A cat jumps."
      python -m convert verify qunwang13/vr-thinker ~/gguf --revision main --pairs pairs.csv --table README.md

    Exit status: 0 done, 2 a wrong argument or the extra is missing, 3 a clip that cannot be read, 4 a
    checkpoint or GGUF that cannot be used, 1 any other failure. No distance makes it fail.
    """  # noqa: D301 - as above
    # The engine and the reference are loaded for this verb alone.
    from convert.verify import table, verify_pairs, write_table  # noqa: PLC0415

    def progress(what: str) -> None:
        if sys.stderr.isatty():
            click.echo(what, err=True)

    pairs = collect_pairs(clips, captions, file=listed)
    found = locate(source, revision=revision, show_progress=sys.stderr.isatty())
    rows = verify_pairs(found.folder, folders, clips=pairs, tokens=tokens, progress=progress)
    if out:
        write_table(out, rows)
    click.echo(table(rows), nl=False)


@convert.command()
@click.argument("source", metavar="DIR", type=FOLDER)
@click.option("--out", metavar="FILE", required=True, type=FOLDER, help="Importance matrix to write.")
@click.option("--clips", metavar="A B", nargs=2, type=FOLDER, multiple=True, help="A pair to judge; repeatable.")
@click.option("--caption", "captions", multiple=True, help="What the two clips are to show, once for every --clips.")
@click.option("--pairs", "listed", metavar="FILE", type=FOLDER, help="CSV or JSONL of pairs to judge: a, b, caption.")
@click.option("--projector", metavar="FILE", type=FOLDER, help="Projector to judge with, if not as described above.")
def calibrate(
    source: Path,
    out: Path,
    clips: tuple[tuple[Path, Path], ...],
    captions: tuple[str, ...],
    listed: Path | None,
    projector: Path | None,
) -> None:
    """Write the importance matrix for `quantize --imatrix`, from clips that you give.

    Judges every pair as `vrt-lite compare` does (the profile's prompt, both videos, the rounds, the
    frames that the model calls for) and sums up, for each weight matrix of the language model in DIR,
    the squares of what enters its columns. Nothing else about a judgement changes. No verdict is needed:
    all that was read and written counts. Prints sha256, bytes and path of FILE, which is the GGUF that
    llama-imatrix writes and llama-quantize reads.

    The pairs are those of --clips and then those of --pairs: a CSV file with the header a,b,caption, or
    JSONL with an object of these keys a line; relative paths are meant from that file's folder. Give
    clips such as the judge will see, some dozens of pairs if you can; a pair takes as long as `compare`
    does. One with a clip that cannot be judged is named and passed over. If none is left, nothing is
    written; nor is it if the run is stopped.

    In a folder with several language models the one in F16, BF16 or F32 judges. Where memory is too
    short for it, give its q8_0 file instead of the folder. The projector is the one beside it that is
    called mmproj-NAME, or else the largest. Keep FILE out of DIR, which is to hold models alone.

    \b
    Examples:
      python -m convert calibrate ~/gguf --pairs ~/clips/pairs.csv --out ~/vr-thinker.imatrix.gguf
      python -m convert calibrate ~/gguf/VR-Thinker-Q8_0.gguf --clips a.mp4 b.mp4 \\
          --caption "A cat jumps." --out ~/vr-thinker.imatrix.gguf

    Exit status: 0 done, 2 a wrong argument or too little disk, 4 a model that cannot be used or no pair
    that can, 5 too little memory, 1 any other failure.
    """  # noqa: D301 - as above
    # The engine is loaded for this verb alone.
    from convert import calibrate as verb  # noqa: PLC0415

    pairs = collect_pairs(clips, captions, file=listed)
    datasets = [*(f"{a.name} {b.name}" for a, b in clips), *([listed.name] if listed else [])]
    progress = verb.CalibrationProgress(
        begins=_show_judging,
        skips=lambda pair, reason: click.echo(f"convert: {pair.a}, {pair.b} passed over: {reason}", err=True),
    )
    _print([verb.calibrate(source, pairs, out=out, datasets=datasets, projector=projector, progress=progress)])


def _print(written: Iterable[Path]) -> None:
    for path in written:
        click.echo(f"{file_sha256(path)}  {path.stat().st_size:>11}  {path}")


def _show_writing() -> CountedWork:
    return CountedWork("reading the headers", quiet=not sys.stderr.isatty())


def _show_judging(done: int, total: int) -> None:
    """Show progress on one line, if standard error is a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\rjudging {done} of {total} pairs, {100 * done // total} %{end}")
        sys.stderr.flush()


def main() -> None:
    """Run a command. An error becomes one line on standard error and an exit status."""
    try:
        convert(prog_name="python -m convert")
    except (VrtError, OSError) as error:
        click.echo("convert: " + " ".join(str(error).split()), err=True)
        sys.exit(error.status if isinstance(error, VrtError) else VrtError.status)


if __name__ == "__main__":
    main()
