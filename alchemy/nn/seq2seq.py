"""The interface of encoder-decoder networks."""

# B batch size, T target tokens, S source tokens, N = B R hypotheses of a search with R per sentence,
# D features, V vocabulary

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from alchemy.nn.sequences import Rows
from alchemy.registry import Registrable


class Source(NamedTuple):
    """The encoded source: a vector per token, and a mask of the real tokens."""

    states_BSD: Tensor
    real_BS: Tensor


class _Decoding(Protocol):
    """The decoding state of a search. The hypotheses of a sentence are adjacent."""

    def select(self, rows_BR: Tensor) -> None:
        """Keep some of the sentences, in order, and some hypotheses of each sentence, in any order."""


class Network(nn.Module, Registrable):
    """Base class for encoder-decoder networks, built with the vocabulary sizes; padding is on the right.

    `forward` runs the decoder over all target tokens at once, `decode` token by token.
    """

    longest: int | None = None  # maximum number of tokens per row; None: unlimited

    def __init__(self) -> None:  # otherwise the **kwargs of nn.Module would accept any config key
        super().__init__()

    def encode(self, rows: Rows) -> Source:
        raise NotImplementedError(f"{type(self).__name__} must define encode(rows) -> Source")

    def begin(self, source: Source) -> _Decoding:
        """Return the initial decoding state, with one hypothesis per source."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(source) -> state with select(rows)")

    def decode(self, before_NT: Tensor, state: Any) -> Tensor:
        """Return the scores of the next token after each token, and update the state."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(tokens, state) -> scores")

    def forward(self, rows: Rows, before_BT: Tensor) -> Tensor:
        """Return the scores of every next token, given the preceding target tokens."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(rows, before) -> scores")

    def attended(self, rows: Rows, before_BT: Tensor) -> Tensor:
        """Return the attention of each next token over the source, [B, T, S]; it sums to 1 over S."""
        raise NotImplementedError(f"{type(self).__name__} does not provide attention weights")
