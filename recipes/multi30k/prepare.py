"""Build the Multi30k corpora of the recipes, with the published merges and a vocabulary from the training text.

In the folder of the recipes, which contains `data`:

    python multi30k/prepare.py
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

from alchemy.cli import main
from alchemy.text import SubwordNMT

DATA = Path("data/multi30k_en_de")
TO = Path("multi30k/corpus")
FILES = {"train": "train.lc.norm.tok.{}.gz", "dev": "val.lc.norm.tok.{}", "test": "test_2016_flickr.lc.norm.tok.{}"}
SIDES = ("en", "de")


def training_lines() -> Iterator[str]:
    for side in SIDES:
        with gzip.open(DATA / "tok" / FILES["train"].format(side), "rt", encoding="utf-8") as file:
            yield from file


def prepare() -> int:
    SubwordNMT.train(training_lines(), codes=DATA / "bpe10k_revisit_mmt" / "bpe_codes.txt").save(TO / "pieces")
    for split, name in FILES.items():
        sides = [part for side in SIDES for part in ("--side", f"{side}={DATA / 'tok' / name.format(side)}")]
        code = main(["data", "build", str(TO / split), *sides, "--tokenizer", str(TO / "pieces")])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(prepare())
