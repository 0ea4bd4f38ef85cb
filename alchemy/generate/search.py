"""What a search asks for, step by step, and what it finds."""

# B sentences, R hypotheses of each, N = B R rows of a search, V vocabulary, T tokens so far, C room for tokens,
# E texts that ended

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.generate.token_rules import Rule, obey
from alchemy.registry import Registrable

ROOM = 32  # tokens that there is room for at first; it is doubled when they are there


class Steps(Protocol):
    """A decoder and what it remembers. It begins with one row for each sentence; rows of a sentence are neighbors."""

    def scores(self, last_N: Tensor) -> Tensor:
        """Takes the newest token of each row, gives scores of the next (logits, [N, V]), for the caller to change."""

    def select(self, rows_BR: Tensor) -> None:
        """Goes on with some sentences, in their order, and for each with some of its rows, in any order."""


def logs(scores_NV: Tensor) -> Tensor:
    """Log-probabilities, in at least 32 bits, so that their sums over a text can be told apart."""
    return scores_NV.log_softmax(-1, dtype=torch.promote_types(scores_NV.dtype, torch.float32))


def logs_(scores_NV: Tensor) -> Tensor:
    """The same, in the place of the scores where that can be: memory is what a step of a search waits for."""
    if scores_NV.device.type != "cpu" or scores_NV.dtype.itemsize < 4:
        return logs(scores_NV)
    return torch.log_softmax(scores_NV, -1, out=scores_NV)


class Ensemble:
    """The steps of several models at once: the probabilities of a token are the mean of theirs."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members = members

    def scores(self, last_N: Tensor) -> Tensor:
        if len(self.members) == 1:
            return self.members[0].scores(last_N)
        each = [logs(member.scores(last_N)) for member in self.members]
        return torch.stack(each).logsumexp(0) - math.log(len(each))

    def select(self, rows_BR: Tensor) -> None:
        for member in self.members:
            member.select(rows_BR)


def not_numbers() -> AlchemyError:
    return AlchemyError("the model gives scores that are not numbers", hint="has its training diverged?")


class Special(NamedTuple):
    """Tokens that a search knows: what a row begins with, what ends it, padding, what stands for an unknown word."""

    begin: int
    eos: int
    pad: int | None = None
    unk: int | None = None


class Hypothesis(NamedTuple):
    """Tokens with their end, the log-probability of each, and the score of all, by which hypotheses are ranked."""

    tokens: list[int]
    token_scores: list[float]
    score: float


class Generated:
    """The tokens of all rows so far, with the sums of their log-probabilities up to each; room is made in advance."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.length = 0
        self.tokens_NC = torch.empty(rows, ROOM, dtype=torch.long, device=device)
        self.sums_NC = torch.empty(rows, ROOM, device=device)

    @property
    def tokens_NT(self) -> Tensor:
        return self.tokens_NC[:, : self.length]

    def add(self, rows_N: Tensor, token_N: Tensor, sum_N: Tensor) -> None:
        """Goes on with some of the rows, in another order, each with one more token."""
        if self.length == self.tokens_NC.shape[1]:
            self.tokens_NC, self.sums_NC = (torch.cat((part, part), 1) for part in (self.tokens_NC, self.sums_NC))
        self.tokens_NC, self.sums_NC = self.tokens_NC[rows_N], self.sums_NC[rows_N]
        self.tokens_NC[:, self.length], self.sums_NC[:, self.length] = token_N, sum_N
        self.length += 1

    def ended(self, rows_E: Tensor, total_E: Tensor, end: int, penalty: float) -> list[Hypothesis]:
        """Rows with their end, after which the sums are `total_E`; scores are means over a power of the length."""
        tokens = self.tokens_NC[rows_E, : self.length].tolist()
        sums = torch.cat((self.sums_NC[rows_E, : self.length], total_E[:, None]), dim=1)
        each = sums.diff(dim=1, prepend=torch.zeros_like(sums[:, :1])).tolist()
        scores = (sums[:, -1] / (self.length + 1) ** penalty).tolist()
        return [Hypothesis([*row, end], part, score) for row, part, score in zip(tokens, each, scores)]


class Searching:
    """Texts that are being written. A sentence begins with one row, from which all its texts come."""

    def __init__(self, sentences: int, special: Special, device: torch.device) -> None:
        self.special = special
        self.texts: list[list[Hypothesis]] = [[] for _ in range(sentences)]  # those that ended
        self.left_B = torch.arange(sentences, device=device)  # the sentences that are not done
        self.written = Generated(sentences, device)
        self.last_N = torch.full((sentences,), special.begin, device=device)

    @property
    def rows(self) -> int:
        """How many rows a sentence has."""
        return len(self.last_N) // len(self.left_B)

    @property
    def sentence_N(self) -> Tensor:
        return self.left_B.repeat_interleave(self.rows)

    def advance(self, logs_NV: Tensor) -> Tensor:
        """Goes on by a token, given those that may come; gives the rows of the sentences that go on, [B, R]."""
        raise NotImplementedError


class Search(Registrable):
    """A way to write texts, given the steps of a decoder."""

    nbest: int  # how many texts of each sentence are wanted

    def begin(self, most_B: Tensor, special: Special, numbers: Sequence[int]) -> Searching:
        raise NotImplementedError(f"{type(self).__name__} must define begin(most_B, special, numbers) -> Searching")

    def __call__(
        self, steps: Steps, most_B: Tensor, special: Special, rules: Sequence[Rule], numbers: Sequence[int] = ()
    ) -> list[list[Hypothesis]]:
        """The texts of each sentence, best first.

        `most_B` is how many tokens each may have, its end not counted; a rule among `rules` must see to it. `numbers`
        tell sentences apart, and random numbers are drawn by them.
        """
        search = self.begin(most_B, special, numbers)
        while len(search.left_B):
            logs_NV = logs_(steps.scores(search.last_N))
            obey(rules, logs_NV, search.written.tokens_NT, search.sentence_N)
            rows_BR = search.advance(logs_NV)
            del logs_NV  # the next ones take its memory, which the processor still has at hand
            if len(rows_BR):
                steps.select(rows_BR)
        return [sorted(texts, key=lambda text: -text.score)[: self.nbest] for texts in search.texts]
