"""`python -m vrt_lite` and the `vrt-lite` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    try:
        from vrt_lite.cli import run  # noqa: PLC0415 - an interrupt during the imports ends like any other

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("vrt-lite: Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
