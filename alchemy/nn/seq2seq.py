"""The contract of networks that read one row of tokens and write another."""

# B rows, T tokens of the target, S of the source, N = B R rows of a search: R hypotheses of each sentence,
# D features, V vocabulary

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from alchemy.nn.sequences import Rows
from alchemy.registry import Registrable


class Source(NamedTuple):
    """What was read: a vector for each token, and which tokens are real."""

    states_BSD: Tensor
    real_BS: Tensor


class _Decoding(Protocol):
    """What a search carries from step to step. The hypotheses of a sentence are neighbors."""

    def select(self, rows_BR: Tensor) -> None:
        """Goes on with some sentences, in their order, and for each with some of its hypotheses, in any order."""


class Network(nn.Module, Registrable):
    """Reads rows whose real tokens stand in front, and scores what comes next. It is handed the sizes of vocabularies.

    `forward` and `decode` are two ways through one decoder: with all true tokens at once, and token by token.
    """

    longest: int | None = None  # tokens of a row that it can take; None: any number

    def __init__(self) -> None:  # without it the **kwargs of nn.Module would be taken for keys of the config
        super().__init__()

    def encode(self, rows: Rows) -> Source:
        raise NotImplementedError(f"{type(self).__name__} must define encode(rows) -> Source")

    def begin(self, source: Source) -> _Decoding:
        """The state of a search, which begins with one hypothesis for each source."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(source) -> state with select(rows)")

    def decode(self, before_NT: Tensor, state: Any) -> Tensor:
        """The scores of what comes behind each of the tokens; the state remembers them."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(tokens, state) -> scores")

    def forward(self, rows: Rows, before_BT: Tensor) -> Tensor:
        """The scores of every next token, given the true ones before it."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(rows, before) -> scores")

    def attended(self, rows: Rows, before_BT: Tensor) -> Tensor:
        """How much each next token looks at each token of the source: [B, T, S], rows of which add up to one."""
        raise NotImplementedError(f"{type(self).__name__} does not tell what it looks at")
