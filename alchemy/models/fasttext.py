"""FastText: a text is the mean of its words and of its short runs of words."""

# B batch, T tokens, N n-grams of a text, D features

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, Ge, Le, NotEmpty, PositiveInt
from alchemy.models.encoders import PRIMES, Encoder
from alchemy.nn.sequences import Rows, States, in_front
from alchemy.text import Tokenizer


@Encoder.register()
class NGrams(Encoder):
    """The vectors of single tokens, and of all runs of `ngrams` tokens, which share `buckets` vectors by a hash.

    With a `Pool` of the mean over it this is FastText (Joulin et al. 2016). `dropout` leaves out a share of the runs.
    With `ends`, the begin and the end of the text count as tokens of a run, so that "what .." differs from ".. what".
    With `sparse`, a step on the CPU touches only the vectors of its batch: much faster, with optimizers that take
    sparse gradients (`alchemy.optim.Adagrad`, SGD); others get dense ones.
    """

    by_token = False

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dim: PositiveInt = 100,
        ngrams: Annotated[list[Annotated[int, Ge(1), Le(6)]], NotEmpty()] = [1, 2, 3],
        buckets: PositiveInt = 500_000,
        dropout: Fraction = 0.0,
        ends: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.width, self.ngrams, self.buckets, self.drop, self.ends = dim, ngrams, buckets, dropout, ends
        # single tokens have vectors of their own in front, which no run can hit
        self.singles = tokenizer.size
        self.table = nn.Embedding(self.singles + buckets, dim, sparse=sparse)
        nn.init.uniform_(self.table.weight, -1 / dim, 1 / dim)
        if sparse:  # torch asks whether to check sparse gradients; these are made by its own layer, so no
            torch.sparse.check_sparse_tensor_invariants.disable()

    def forward(self, rows: Rows) -> States:
        longer = self._with_ends(rows) if self.ends else rows
        found = [self._runs(rows if length == 1 else longer, length) for length in self.ngrams]
        grams_BN, real_BN = (torch.cat(parts, dim=1) for parts in zip(*found))
        if self.training and self.drop:
            kept_BN = real_BN & (torch.rand_like(real_BN, dtype=torch.float) >= self.drop)
            # of a text that would lose all, all are kept
            real_BN = torch.where(kept_BN.any(1, keepdim=True), kept_BN, real_BN)
        front, _ = in_front(Rows(grams_BN, real_BN))  # runs of one length stand behind the padding of the one before
        return States(self.table(front.ids_BT), front.real_BT)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # a GPU is fast with dense gradients, and nccl cannot average others
        self.table.sparse = self.table.sparse and self.table.weight.is_cpu
        return self

    def _with_ends(self, rows: Rows) -> Rows:
        """The rows with a token in front and one behind, whose ids no single token has."""
        begin, end = self.singles, self.singles + 1
        ids_BT = F.pad(F.pad(rows.ids_BT, (1, 0), value=begin), (0, 1))
        ids_BT = ids_BT.scatter(1, rows.lengths_B[:, None] + 1, end)
        return Rows(ids_BT, F.pad(rows.real_BT, (2, 0), value=True))

    def _runs(self, rows: Rows, length: int) -> tuple[Tensor, Tensor]:
        """The number of each run that begins at a token, and whether all of it is real."""
        ids_BT = rows.ids_BT
        if length == 1:
            return ids_BT, rows.real_BT
        size = max(ids_BT.shape[1] - length + 1, 0)
        # the sum wraps around at 64 bits, as a hash may
        mixed = sum((ids_BT[:, k : k + size] + 1) * PRIMES[k] * (length + k) for k in range(length))
        mixed = torch.as_tensor(mixed ^ (mixed >> 17))
        return self.singles + mixed % self.buckets, rows.real_BT[:, length - 1 :]
