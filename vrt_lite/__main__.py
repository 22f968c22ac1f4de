"""`python -m vrt_lite` and the `vrt-lite` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    from vrt_lite.cli import run  # noqa: PLC0415 - importing this module does no work

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
