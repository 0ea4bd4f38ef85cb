"""Interfaces for decoders and searches, and the search loop."""

# B sentences, R hypotheses of each, N = B R rows of a search, V vocabulary, T tokens so far, C capacity for tokens,
# E finished outputs

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.generate.token_rules import Rule, apply_rules
from alchemy.registry import Registrable

CAPACITY = 32  # initial capacity for tokens; doubled when it is full


class Steps(Protocol):
    """A decoder with its state. It starts with one row per sentence; the rows of a sentence are adjacent."""

    def scores(self, last_N: Tensor) -> Tensor:
        """Return the next-token logits [N, V], given the last token of each row. The caller may modify the logits."""

    def select(self, rows_BR: Tensor) -> None:
        """Keep some of the sentences, in order, and some rows of each, in any order."""


def log_probs(scores_NV: Tensor) -> Tensor:
    """Return log-probabilities in at least 32 bits, so that sums over an output remain precise."""
    return scores_NV.log_softmax(-1, dtype=torch.promote_types(scores_NV.dtype, torch.float32))


def log_probs_(scores_NV: Tensor) -> Tensor:
    """Like `log_probs`, in place if possible: a search step is limited by memory bandwidth."""
    if scores_NV.device.type != "cpu" or scores_NV.dtype.itemsize < 4:
        return log_probs(scores_NV)
    return torch.log_softmax(scores_NV, -1, out=scores_NV)


class Ensemble:
    """An ensemble of decoders that averages their token probabilities."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members = members

    def scores(self, last_N: Tensor) -> Tensor:
        if len(self.members) == 1:
            return self.members[0].scores(last_N)
        each = [log_probs(member.scores(last_N)) for member in self.members]
        return torch.stack(each).logsumexp(0) - math.log(len(each))

    def select(self, rows_BR: Tensor) -> None:
        for member in self.members:
            member.select(rows_BR)


def nan_error() -> AlchemyError:
    """Return the error for NaN scores."""
    return AlchemyError("the model returns NaN scores", hint="has training diverged?")


class Special(NamedTuple):
    """Special tokens of a search: initial token, end, padding and unknown word."""

    begin: int
    eos: int
    pad: int | None = None
    unk: int | None = None


class Hypothesis(NamedTuple):
    """Tokens including the end token, the log-probability of each, and the score by which hypotheses are ranked."""

    tokens: list[int]
    token_scores: list[float]
    score: float


class TokenHistory:
    """The tokens of all rows so far, with cumulative log-probabilities. Capacity is allocated in advance."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.length = 0
        self.tokens_NC = torch.empty(rows, CAPACITY, dtype=torch.long, device=device)
        self.sums_NC = torch.empty(rows, CAPACITY, device=device)

    @property
    def tokens_NT(self) -> Tensor:
        return self.tokens_NC[:, : self.length]

    def add(self, rows_N: Tensor, token_N: Tensor, sum_N: Tensor) -> None:
        """Select and reorder rows, and append one token to each."""
        if self.length == self.tokens_NC.shape[1]:
            self.tokens_NC, self.sums_NC = (torch.cat((part, part), 1) for part in (self.tokens_NC, self.sums_NC))
        self.tokens_NC, self.sums_NC = self.tokens_NC[rows_N], self.sums_NC[rows_N]
        self.tokens_NC[:, self.length], self.sums_NC[:, self.length] = token_N, sum_N
        self.length += 1

    def finish(self, rows_E: Tensor, total_E: Tensor, end: int, penalty: float) -> list[Hypothesis]:
        """Return finished rows as hypotheses. `total_E` are the sums including the end token."""
        tokens = self.tokens_NC[rows_E, : self.length].tolist()
        sums = torch.cat((self.sums_NC[rows_E, : self.length], total_E[:, None]), dim=1)
        each = sums.diff(dim=1, prepend=torch.zeros_like(sums[:, :1])).tolist()
        scores = (sums[:, -1] / (self.length + 1) ** penalty).tolist()
        return [Hypothesis([*row, end], part, score) for row, part, score in zip(tokens, each, scores)]


class SearchState:
    """State of a search. Each sentence starts with one row."""

    def __init__(self, sentences: int, special: Special, device: torch.device) -> None:
        self.special = special
        self.texts: list[list[Hypothesis]] = [[] for _ in range(sentences)]  # finished outputs
        self.left_B = torch.arange(sentences, device=device)  # sentences that are not done
        self.history = TokenHistory(sentences, device)
        self.last_N = torch.full((sentences,), special.begin, device=device)

    @property
    def rows(self) -> int:
        """Number of rows per sentence."""
        return len(self.last_N) // len(self.left_B)

    @property
    def sentence_N(self) -> Tensor:
        return self.left_B.repeat_interleave(self.rows)

    def advance(self, logs_NV: Tensor) -> Tensor:
        """Append a token; return the parent rows [B, R] of the sentences that continue."""
        raise NotImplementedError


class Search(Registrable):
    """Base class for search methods."""

    nbest: int  # number of outputs to return per sentence

    def begin(self, most_B: Tensor, special: Special, numbers: Sequence[int]) -> SearchState:
        """Return the initial state of a search."""
        raise NotImplementedError(f"{type(self).__name__} must define begin(most_B, special, numbers) -> SearchState")

    def __call__(
        self, steps: Steps, most_B: Tensor, special: Special, rules: Sequence[Rule], numbers: Sequence[int] = ()
    ) -> list[list[Hypothesis]]:
        """Return the outputs for each sentence, best first.

        `most_B` is the maximum number of tokens, excluding the end token; one of the `rules` must enforce it. `numbers`
        identify the sentences for random sampling.
        """
        search = self.begin(most_B, special, numbers)
        while len(search.left_B):
            logs_NV = log_probs_(steps.scores(search.last_N))
            apply_rules(rules, logs_NV, search.history.tokens_NT, search.sentence_N)
            rows_BR = search.advance(logs_NV)
            del logs_NV  # the next step reuses its memory, which is still in the CPU cache
            if len(rows_BR):
                steps.select(rows_BR)
        return [sorted(texts, key=lambda text: -text.score)[: self.nbest] for texts in search.texts]
