"""Makes a small Chinese BERT with random weights, for machines that have no pretrained one: `python small_bert.py`.

Its vocabulary is all characters of the training texts of the recipe, its folder is `small-bert`.
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
    """All characters that stand in the first column of a file."""
    with gzip.open(texts, "rt", encoding="utf-8") as file:
        return sorted({line.split()[0] for line in file if line.strip()})


def make(signs: list[str], folder: Path) -> None:
    """A folder as BERT's own, with a token for each of the signs."""
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
        sys.exit(f"there is no {train}; link the data sets: ln -s WHERE/THE/SETS/ARE data")
    make(signs_of(train), HERE / "small-bert")
