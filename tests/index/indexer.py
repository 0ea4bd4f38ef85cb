"""A program that updates the index of the working directory in many small transactions.

It prints a line when it starts, and waits for a line of input; arguments are `rebuild` and `fork`.
"""

from __future__ import annotations

import sys

from alchemy.index import sync
from alchemy.index.record_index import RecordIndex

if __name__ == "__main__":
    sync.BATCH_SECONDS = 0.005
    if "fork" in sys.argv:
        sync.PARALLEL = 2
    print("ready", flush=True)
    sys.stdin.readline()
    with RecordIndex.open(rebuild="rebuild" in sys.argv) as index:
        print(len(index.query()))
