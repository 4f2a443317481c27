"""Fuzz the readers of files: ``python -m tests.fuzz --minutes 60 [TARGET ...]``."""

import argparse
import os
import sys
from pathlib import Path

from tests.compiling import QUICKLY

# Before anything imports JAX; the processes with limits inherit it.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"

from tests.fuzz.campaign import campaign
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of computing, not of a clock")
    parser.add_argument(
        "--findings",
        type=Path,
        default=Path("findings"),
        help="where to keep them, and how many cases there were: the next campaign goes on",
    )
    flags = parser.parse_args()
    if unknown := set(flags.targets) - set(TARGETS):
        parser.error(f"there is no target {sorted(unknown)[0]!r}")
    names = flags.targets or list(TARGETS)
    return int(campaign(names, flags.minutes, flags.findings) > 0)


if __name__ == "__main__":
    sys.exit(main())
