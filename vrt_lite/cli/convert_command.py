"""The command `convert`: a checkpoint folder becomes a quantised pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vrt_lite.cli.options import FILE_PATH, FOLDER, PATH, print_text, quiet_option
from vrt_lite.conversion.type_names import PROJECTOR_TYPES, TEXT_TYPES

STATUS = """Exit status: 0 done, 2 usage or too little disk, 4 a checkpoint, adapter or matrix that cannot be used,
130 interrupted."""


@click.command(epilog=STATUS)
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
