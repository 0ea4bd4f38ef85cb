"""Record traces again: `python -m tests.golden.record NAME ..`. Explain in the commit why they have changed."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.golden.trace import CONFIGS, file_of, trace


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    # a second version of a training run has no trace of its own
    parser.add_argument("name", nargs="+", choices=[name for name in CONFIGS if "." not in name])
    for name in parser.parse_args().name:
        with tempfile.TemporaryDirectory() as root:
            found = trace(name, Path(root))
        file_of(name).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(f"{file_of(name).name} is written")


if __name__ == "__main__":
    main()
