"""Token rules for generation; each rule modifies the scores of the next token in place."""

# N rows, V vocabulary, T tokens so far, B sentences, R n-grams of S tokens

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

NEVER = -torch.inf


class Rule(Protocol):
    """A rule for all rows. `sentence_N` is the sentence of each row, `tokens_NT` the tokens so far."""

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None: ...


class AtLeast:
    """Minimum length: forbids an earlier end token. With `or_stuck`, allows it if no other token is left."""

    def __init__(self, least_B: Tensor, eos: int, *, or_stuck: bool = True) -> None:
        self.least_B, self.eos, self.or_stuck = least_B, eos, or_stuck
        self.last = int(least_B.max())  # computed once: reading a tensor at each step would synchronize the GPU

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        if tokens_NT.shape[1] >= self.last:
            return
        end_N = scores_NV[:, self.eos].clone()
        scores_NV[:, self.eos].masked_fill_(tokens_NT.shape[1] < self.least_B[sentence_N], NEVER)
        if self.or_stuck:
            stuck_N = scores_NV.amax(-1) == NEVER
            scores_NV[:, self.eos] = torch.where(stuck_N, end_N, scores_NV[:, self.eos])


class AtMost:
    """Maximum length, not counting the end token: once it is reached, only the end token is allowed."""

    def __init__(self, most_B: Tensor, eos: int) -> None:
        self.most_B, self.eos, self.first = most_B, eos, int(most_B.min())

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        if tokens_NT.shape[1] < self.first:
            return
        end_N = scores_NV[:, self.eos].clone()
        scores_NV.masked_fill_((tokens_NT.shape[1] >= self.most_B[sentence_N])[:, None], NEVER)
        scores_NV[:, self.eos] = end_N


class Without:
    """Forbidden tokens, such as padding and the initial token."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        scores_NV.index_fill_(1, self.tokens, NEVER)


class Penalty:
    """Penalty that is subtracted from the score of a token."""

    def __init__(self, token: int, amount: float) -> None:
        self.token, self.amount = token, amount

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        scores_NV[:, self.token] -= self.amount


class NoRepeat:
    """Ban on repeated n-grams of `size` tokens."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        rows, length = tokens_NT.shape
        before = self.size - 1
        if length < self.size:
            return
        runs_NRS = tokens_NT.unfold(1, self.size, 1)
        begun_NR = (runs_NRS[..., :before] == tokens_NT[:, None, length - before :]).all(-1)
        banned = torch.zeros_like(scores_NV, dtype=torch.bool)
        row_NR = torch.arange(rows, device=tokens_NT.device)[:, None].expand_as(begun_NR)
        banned[row_NR[begun_NR], runs_NRS[..., before][begun_NR]] = True
        scores_NV.masked_fill_(banned, NEVER)


class Prefixes:
    """Forced first tokens of each sentence, which take precedence over the other rules."""

    def __init__(self, prefix_BT: Tensor, length_B: Tensor, others: Sequence[Rule]) -> None:
        self.prefix_BT, self.length_B, self.others = prefix_BT, length_B, others

    def __call__(self, scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
        step = tokens_NT.shape[1]
        if step >= self.prefix_BT.shape[1]:
            return apply_rules(self.others, scores_NV, tokens_NT, sentence_N)
        forced_N1 = (step < self.length_B[sentence_N])[:, None]
        token_N1 = self.prefix_BT[sentence_N, step][:, None]
        given_N1 = scores_NV.gather(1, token_N1)
        apply_rules(self.others, scores_NV, tokens_NT, sentence_N)
        scores_NV.masked_fill_(forced_N1, NEVER)
        scores_NV.scatter_(1, token_N1, torch.where(forced_N1, given_N1, scores_NV.gather(1, token_N1)))
        return None


def apply_rules(rules: Sequence[Rule], scores_NV: Tensor, tokens_NT: Tensor, sentence_N: Tensor) -> None:
    """Apply rules in order."""
    for rule in rules:
        rule(scores_NV, tokens_NT, sentence_N)
