"""`python -m alchemy` is the same program as `alchemy`."""

import sys

from alchemy.cli import main

# guarded: spawned workers import the main module again
if __name__ == "__main__":
    sys.exit(main())
