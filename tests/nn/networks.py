"""Small sequence-to-sequence networks of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from alchemy.models.translator import DecodingSteps
from alchemy.nn.lstm import AttentionLSTM
from alchemy.nn.seq2seq import Network
from alchemy.nn.sequences import Rows
from alchemy.nn.transformer import Transformer

PAD, EOS, UNK, SIZE = 0, 1, 2, 7


def transformer(**options: Any) -> Network:
    sizes: dict[str, Any] = {"source_size": SIZE, "target_size": SIZE, "dim": 8, "heads": 2, "inner": 16}
    return Transformer(**{**sizes, "encoder_layers": 1, "decoder_layers": 2, **options})


NETWORKS: dict[str, Callable[[], Network]] = {
    "post-norm": transformer,
    "pre-norm": lambda: transformer(norm_first=True, activation="gelu", share="decoder"),
    "rotary": lambda: transformer(norm_first=True, places="rotary", activation="swiglu", share="none"),
    "learned": lambda: transformer(places="learned", max_positions=64),
    "lstm": lambda: AttentionLSTM(source_size=SIZE, target_size=SIZE, dim=8, hidden=8, layers=2),
}


def network(seed: int = 0, kind: str = "post-norm") -> Network:
    torch.manual_seed(seed)
    made = NETWORKS[kind]()
    with torch.no_grad():  # scores that differ more than at the beginning of training
        for param in made.parameters():
            param.mul_(2)
    return made.eval().double()  # not a test of rounding errors, which large weights amplify


def rows_of(sources: Sequence[Sequence[int]], extra: int = 0) -> Rows:
    width = max(map(len, sources)) + extra
    ids_BS = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in sources])
    return Rows(ids_BS, torch.arange(width) < torch.tensor(list(map(len, sources)))[:, None])


class Decoder(DecodingSteps):
    """Return the decoding steps of a network, for sources as lists of tokens."""

    def __init__(self, net: Network, sources: Sequence[list[int]], extra: int = 0) -> None:
        super().__init__(net, rows_of(sources, extra))
