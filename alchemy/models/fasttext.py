"""FastText encoder: a text is represented by its tokens and hashed n-grams."""

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
    """Embeddings of tokens and of n-grams of the lengths in `ngrams`, which are hashed into `buckets` vectors.

    With a mean `Pool` this is FastText (Joulin et al. 2016). `dropout` drops a fraction of the n-grams. With `ends`,
    the start and end of the text count as tokens in n-grams, so that "what .." differs from ".. what". With `sparse`,
    an update on the CPU touches only the vectors of its batch, which is much faster with optimizers that support sparse
    gradients (`alchemy.optim.Adagrad`, SGD); other optimizers get dense gradients.
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
        # the first rows of the table are for single tokens; n-grams never map to them
        self.singles = tokenizer.size
        self.table = nn.Embedding(self.singles + buckets, dim, sparse=sparse)
        nn.init.uniform_(self.table.weight, -1 / dim, 1 / dim)
        if sparse:  # torch warns unless this is set explicitly; its own layer creates valid gradients
            torch.sparse.check_sparse_tensor_invariants.disable()

    def forward(self, rows: Rows) -> States:
        longer = self._add_ends(rows) if self.ends else rows
        found = [self._ngram_ids(rows if length == 1 else longer, length) for length in self.ngrams]
        grams_BN, real_BN = (torch.cat(parts, dim=1) for parts in zip(*found))
        if self.training and self.drop:
            kept_BN = real_BN & (torch.rand_like(real_BN, dtype=torch.float) >= self.drop)
            # a text that would lose all n-grams keeps them all
            real_BN = torch.where(kept_BN.any(1, keepdim=True), kept_BN, real_BN)
        front, _ = in_front(Rows(grams_BN, real_BN))  # n-grams of one length follow the padding of the previous length
        return States(self.table(front.ids_BT), front.real_BT)

    def spread_scores(self, scores_N: Tensor, tokens: int) -> Tensor:
        """Divide the score of each n-gram of a text among its tokens; start and end of the text get none."""
        scores_T, place = scores_N.new_zeros(tokens), 0
        for length in self.ngrams:
            before = int(self.ends and length > 1)  # the start of the text counts as a token
            for start in range(tokens + 2 * before - length + 1):
                inside = slice(max(start - before, 0), max(start - before + length, 0))
                scores_T[inside] += scores_N[place] / max(len(scores_T[inside]), 1)
                place += 1
        return scores_T

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # dense gradients are fast on a GPU, and nccl cannot reduce sparse ones
        self.table.sparse = self.table.sparse and self.table.weight.is_cpu
        return self

    def _add_ends(self, rows: Rows) -> Rows:
        """Return the rows with a start and an end token, whose ids differ from all other token ids."""
        begin, end = self.singles, self.singles + 1
        ids_BT = F.pad(F.pad(rows.ids_BT, (1, 0), value=begin), (0, 1))
        ids_BT = ids_BT.scatter(1, rows.lengths_B[:, None] + 1, end)
        return Rows(ids_BT, F.pad(rows.real_BT, (2, 0), value=True))

    def _ngram_ids(self, rows: Rows, length: int) -> tuple[Tensor, Tensor]:
        """Return the id of the n-gram that starts at each token, and whether it is free of padding."""
        ids_BT = rows.ids_BT
        if length == 1:
            return ids_BT, rows.real_BT
        size = max(ids_BT.shape[1] - length + 1, 0)
        # the sum may overflow 64 bits, which is fine for a hash
        mixed = sum((ids_BT[:, k : k + size] + 1) * PRIMES[k] * (length + k) for k in range(length))
        mixed = torch.as_tensor(mixed ^ (mixed >> 17))
        return self.singles + mixed % self.buckets, rows.real_BT[:, length - 1 :]
