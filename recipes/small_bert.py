"""Make a small Chinese BERT with random weights, if you have no pretrained one: `python small_bert.py`.

Its vocabulary contains all characters of the training text of the recipe. It is written to `small-bert`.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import torch
import transformers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HERE = Path(__file__).parent


def signs_of(texts: Path) -> list[str]:
    """Return all characters in the first column of a file."""
    with gzip.open(texts, "rt", encoding="utf-8") as file:
        return sorted({line.split()[0] for line in file if line.strip()})


def make(signs: list[str], folder: Path) -> None:
    """Write a BERT folder whose vocabulary has one token per character."""
    vocab = [*SPECIAL, *signs]
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(vocab),
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", "utf-8")
    print(f"{folder}: {len(vocab)} tokens")


if __name__ == "__main__":
    train = HERE / "data" / "ner_zh_resume" / "train.char.bmes.gz"
    if not train.is_file():
        sys.exit(f"file not found: {train}; link the datasets: ln -s PATH/TO/DATASETS data")
    make(signs_of(train), HERE / "small-bert")
