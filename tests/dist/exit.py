"""Run the command line, and write its exit code to the folder of the given config or record."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from alchemy.cli import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    given = Path(sys.argv[2])
    ((given if given.is_dir() else given.parent) / f"code.{os.environ['RANK']}").write_text(str(code))
    sys.exit(code)
