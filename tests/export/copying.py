"""Small networks that are being trained to copy their input, with natural ends."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

import torch

from alchemy.export.ctranslate2 import Pair, pad_rows
from alchemy.generate import Special
from alchemy.nn.transformer import Transformer
from alchemy.text.words import Words

WORDS = Words.train(["a b c d e f g h i j k l"])
EOS, SIZE = 2, WORDS.size
SPECIAL = Special(begin=EOS, eos=EOS, pad=None, unk=WORDS.unk)


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[*draw.choices(range(4, SIZE), k=draw.randint(1, 7)), EOS] for _ in range(count)]


@functools.cache
def network(steps: int = 25, **options: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"source_size": SIZE, "target_size": SIZE, "dim": 16, "heads": 4, "inner": 32}
    made = Transformer(**{**sizes, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0, **options})
    optim = torch.optim.Adam(made.parameters(), lr=0.01)
    rows = pad_rows(sentences(40, seed=1))
    gold_BT = torch.where(rows.real_BT, rows.ids_BT, -100)
    for _ in range(steps):
        scores_BTV = made(rows, rows.ids_BT.roll(1, 1).index_fill(1, torch.tensor([0]), EOS))
        loss = torch.nn.functional.cross_entropy(scores_BTV.transpose(1, 2), gold_BT)
        optim.zero_grad()
        loss.backward()
        optim.step()
    return made.eval()


class Task:
    """The attributes of a task that an export reads."""

    special, source_tokenizer, target_tokenizer = SPECIAL, WORDS, WORDS
    cfg: Mapping[str, Any] = {}

    def encoded(self, source: Any) -> list[dict[str, Any]]:
        return [{"source": [*WORDS.encode(row["text"]), EOS]} for row in source]


def pairs(count: int = 30) -> list[Pair]:
    return [Pair(source, WORDS.decode(source)) for source in sentences(count)]
