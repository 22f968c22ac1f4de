"""`python -m convert VERB …`: parse, call, print. Here alone errors become a line and an exit status."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from convert.export import export_pair
from convert.write import FILE_TYPES
from vrt_lite.errors import VrtError

FOLDER = click.Path(path_type=Path)
TYPES = click.Choice(list(FILE_TYPES))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def convert() -> None:
    """Make the GGUF files that vrt-lite runs, from a published checkpoint folder.

    Works offline on local files, with NumPy and the gguf package; no torch. Exit status: 0 done,
    2 a wrong argument or too little disk, 4 a checkpoint that cannot be used, 1 any other failure.
    """


@convert.command()
@click.argument("source", metavar="SRC", type=FOLDER)
@click.option("--out", metavar="DIR", required=True, type=FOLDER, help="Folder for the pair, made if missing.")
@click.option("--type", "text_type", type=TYPES, default="q8_0", show_default=True, help="Of the language model.")
@click.option("--projector-type", type=TYPES, default="f16", show_default=True, help="Of the vision tower.")
@click.option("--name", show_default="SRC's", help="Name of the files and in them.")
@click.option("--license", "licence", metavar="SPDX", show_default="the model card's", help="Licence to record.")
@click.option("--source-url", metavar="URL", show_default="the model card's", help="Origin to record.")
def export(source: Path, out: Path, licence: str | None, source_url: str | None, **options: Any) -> None:
    """Turn the Qwen2.5-VL checkpoint folder SRC into a GGUF pair.

    Writes DIR/NAME-TYPE.gguf (the language model) and DIR/mmproj-NAME-TYPE.gguf (the vision tower),
    and prints sha256, bytes and path of each. The tensors are byte for byte those of llama.cpp's own
    converter, and the files the same on every run. Files of these names are replaced, at the very
    end and only if all went well; a failed run leaves no file behind.

    SRC holds config.json, tokenizer.json, preprocessor_config.json and safetensors shards in F32, F16
    or BF16, as a model hub delivers them. Memory stays at about the largest tensor: 0.6 GB for a 7B
    as q8_0.

    \b
    Types, for either file:
      q8_0   half of f16; norms, biases and rows that are not whole blocks of 32 stay larger
      f16    exact for an F16 checkpoint
      bf16   exact for a BF16 checkpoint; fast only on CPUs that compute in it
      f32    exact for all, and twice as large

    \b
    Example:
      python -m convert export ~/models/VR-Thinker --out ~/gguf --projector-type bf16
    """  # noqa: D301 - click's mark for "do not wrap" is the control character itself
    # gguf logs its guesses about model cards; what matters here is raised.
    logging.basicConfig(level=logging.CRITICAL)
    authorship = {k: v for k, v in (("license", licence), ("source_url", source_url)) if v}
    progress = _progress if sys.stderr.isatty() else lambda done, total: None
    written = export_pair(source, out, authorship=authorship, progress=progress, **options)
    for file in written:
        click.echo(f"{file.sha256}  {file.size:>11}  {file.path}")


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rwriting {done / 1e6:.0f} of {total / 1e6:.0f} MB, {100 * done // total} %{end}")
    sys.stderr.flush()


def main() -> None:
    """Run, and turn what went wrong into one line on stderr and an exit status."""
    try:
        convert(prog_name="python -m convert")
    except (VrtError, OSError) as error:
        click.echo("convert: " + " ".join(str(error).split()), err=True)
        sys.exit(error.status if isinstance(error, VrtError) else VrtError.status)


if __name__ == "__main__":
    main()
