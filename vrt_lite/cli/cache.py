"""The command that shows and clears what is kept between runs. Parse, call, print; numpy is imported when needed."""

from __future__ import annotations

import click

STATUS = "Exit status: 0 done, 2 usage, 4 the folder cannot be changed, 130 interrupted."


@click.command(epilog=STATUS)
@click.option("--clear", is_flag=True, help="Delete them.")
def cache(*, clear: bool) -> None:
    """Show the encoded frames (embeddings) that are kept on disk so that no frame is encoded twice.

    Beyond VRT_LITE_CACHE_MB megabytes (2000; 0 keeps none) the least recently used go. Deleting them costs time, never
    a verdict.
    """
    from vrt_lite import embeddings  # noqa: PLC0415
    from vrt_lite.display import safe  # noqa: PLC0415
    from vrt_lite.models import store  # noqa: PLC0415

    disk, folder = embeddings.users_disk(), embeddings.cache_folder()
    entries, size_bytes = embeddings.usage(folder)
    if clear:
        with store.disk_errors():
            embeddings.clear(folder)
        click.echo(f"{entries} embeddings are deleted, {size_bytes / 1e6:.1f} MB")
        return
    click.echo(safe(str(folder)))
    bound = f"at most {disk.most_bytes / 1e6:.0f} MB" if disk else f"off: {embeddings.SIZE_VARIABLE} is 0"
    click.echo(f"{entries} embeddings, {size_bytes / 1e6:.1f} MB ({bound})")
