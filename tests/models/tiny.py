"""Small texts, tokenizers and pretrained model folders for the tests of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.nn.sequences import Rows
from alchemy.text import Words

KINDS = ("bert", "albert", "xlnet", "roberta", "distilbert", "electra")
SIZE = 40


def words() -> Words:
    """A tokenizer with SIZE ids, the first four of them special."""
    return Words.train([" ".join(f"w{i:02}" for i in range(SIZE - 4))])


def folder(root: Path, kind: str, **options: Any) -> Path:
    """A folder with a model of a few thousand random weights."""
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    if kind == "xlnet":
        shape = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    if kind == "distilbert":
        shape = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    if kind in ("albert", "electra"):
        shape["embedding_size"] = 8
    extra = {} if kind == "xlnet" else {"max_position_embeddings": 20}
    config = transformers.AutoConfig.for_model(kind, vocab_size=SIZE, pad_token_id=0, **shape, **extra, **options)
    torch.manual_seed(3)
    path = root / kind
    transformers.AutoModel.from_config(config).save_pretrained(path)
    return path


def ragged(lengths: list[int], seed: int = 0) -> list[torch.Tensor]:
    """Rows of ids, none of them special."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(4, SIZE, (length,), generator=draw) for length in lengths]


def padded(texts: list[torch.Tensor], extra: int = 0, left: bool = False, fill: int = 0) -> Rows:
    """Return the rows as one tensor, with `extra` positions of padding."""
    size = max(map(len, texts)) + extra
    ids_BT = torch.full((len(texts), size), fill)
    real_BT = torch.zeros(len(texts), size, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(size - len(text), size) if left else slice(len(text))
        ids_BT[row, place], real_BT[row, place] = text, True
    return Rows(ids_BT, real_BT)
