"""Batched beam search; the results for a sentence do not depend on the rest of its batch."""

# B sentences, G groups of a sentence, K hypotheses of a group, R = G K rows of a sentence, N = B R rows, V vocabulary,
# C candidates of a group, E finished outputs, X blocks of S tokens, J token positions in rows

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from alchemy.constraints import FiniteFloat, PositiveInt
from alchemy.generate.search import Search, SearchState, Special, nan_error
from alchemy.generate.token_rules import NEVER

BLOCK = 64  # tokens per block


class _Candidates(NamedTuple):
    """The best continuations of a group's hypotheses, best first: parent, token and new sum."""

    parent_BC: Tensor
    token_BC: Tensor
    sum_BC: Tensor

    def at(self, place_BK: Tensor) -> _Candidates:
        return _Candidates(*(part.gather(1, place_BK) for part in self))

    def pad_to(self, count: int) -> _Candidates:
        """Pad to at least `count` candidates; the added candidates are never chosen."""
        short = (0, max(0, count - self.sum_BC.shape[1]))
        return _Candidates(
            F.pad(self.parent_BC, short), F.pad(self.token_BC, short), F.pad(self.sum_BC, short, value=NEVER)
        )


@Search.register()
class BeamSearch(Search):
    """Beam search that keeps the `beam` best hypotheses of each sentence and returns the `nbest` best outputs.

    The score of an output is the sum of its log-probabilities, divided by its length (including the end token) to the
    power of `length_penalty`. A sentence is done when `beam` outputs have ended, or with `exact`, when no hypothesis
    can still become one of the `nbest`. With `groups`, the hypotheses are divided into groups that are extended in
    turn; a group is penalized by `diversity` for each token that earlier groups chose at the same step.
    """

    def __init__(
        self,
        *,
        beam: PositiveInt = 5,
        nbest: PositiveInt = 1,
        length_penalty: FiniteFloat = 1.0,
        exact: bool = False,
        groups: PositiveInt = 1,
        diversity: FiniteFloat = 0.5,
    ) -> None:
        self.beam, self.nbest, self.length_penalty, self.exact = beam, nbest, length_penalty, exact
        self.groups, self.diversity = groups, diversity

    def begin(self, most_B: Tensor, special: Special, numbers: Sequence[int] = ()) -> BeamState:
        return BeamState(self, most_B, special)


class BeamState(SearchState):
    """State of a beam search."""

    def __init__(self, options: BeamSearch, most_B: Tensor, special: Special) -> None:
        sentences, device = len(most_B), most_B.device
        super().__init__(sentences, special, device)
        self.options, self.most_B = options, most_B
        self.width = options.beam // options.groups
        self.ended = [[0] * options.groups for _ in range(sentences)]  # finished outputs per group
        self.first_G = torch.zeros(
            options.groups, dtype=torch.long, device=device
        )  # first row of each group within a sentence
        self.sum_BGK = torch.zeros(sentences, options.groups, 1, device=device)

    def advance(self, logs_NV: Tensor) -> Tensor:
        """Extend the best hypotheses by a token; return their parent rows, for the sentences that continue."""
        sentences, groups, hypotheses = self.sum_BGK.shape
        logs_BGKV = logs_NV.view(sentences, -1, hypotheses, logs_NV.shape[-1]).expand(-1, groups, -1, -1)
        charge_BV = logs_NV.new_zeros(sentences, logs_NV.shape[-1]) if groups > 1 else None
        going = []
        for group in range(groups):
            found = self._candidates(logs_BGKV[:, group], self.sum_BGK[:, group], charge_BV)
            ends_BC = (found.token_BC == self.special.eos) & (found.sum_BC > NEVER)
            self._collect_ended(found, ends_BC, group)
            # each parent has at most one ending candidate, so enough candidates continue
            going.append(found.at(ends_BC.byte().argsort(dim=1, stable=True)[:, : self.width]))
            if charge_BV is not None:
                charge_BV.scatter_add_(1, going[-1].token_BC, torch.full_like(going[-1].sum_BC, self.options.diversity))
        return self._extend(*(torch.stack(part, dim=1) for part in zip(*going)))

    def _candidates(self, logs_BKV: Tensor, sum_BK: Tensor, charge_BV: Tensor | None) -> _Candidates:
        wanted_BKV = logs_BKV if charge_BV is None else logs_BKV - charge_BV[:, None]
        place_BC = best_places(wanted_BKV, sum_BK, 2 * self.width)
        parent_BC = place_BC // logs_BKV.shape[-1]
        sum_BC = logs_BKV.flatten(1).gather(1, place_BC) + sum_BK.gather(1, parent_BC)
        return _Candidates(parent_BC, place_BC % logs_BKV.shape[-1], sum_BC).pad_to(2 * self.width)

    def _collect_ended(self, found: _Candidates, ends_BC: Tensor, group: int) -> None:
        """Store finished outputs that rank among the first `width` candidates."""
        place_E, which_E = ends_BC[:, : self.width].nonzero(as_tuple=True)
        if not len(place_E):
            return
        rows_E = place_E * self.rows + self.first_G[group] + found.parent_BC[place_E, which_E]
        texts = self.history.finish(
            rows_E, found.sum_BC[place_E, which_E], self.special.eos, self.options.length_penalty
        )
        for sentence, text in zip(self.left_B[place_E].tolist(), texts):
            self.texts[sentence].append(text)
            self.ended[sentence][group] += 1

    def _extend(self, parent_BGK: Tensor, token_BGK: Tensor, sum_BGK: Tensor) -> Tensor:
        best_B = sum_BGK.flatten(1).amax(1).tolist()
        if any(best != best for best in best_B):
            raise nan_error()
        most_B = self.most_B[self.left_B].tolist()
        left = [
            place
            for place, (sentence, best, most) in enumerate(zip(self.left_B.tolist(), best_B, most_B))
            if not self._is_done(sentence, best, most)
        ]
        left_B = torch.tensor(left, dtype=torch.long, device=self.left_B.device)
        rows_BR = (left_B[:, None, None] * self.rows + self.first_G[:, None] + parent_BGK[left_B]).flatten(1)
        self.last_N, self.sum_BGK = token_BGK[left_B].flatten(), sum_BGK[left_B]
        self.history.add(rows_BR.flatten(), self.last_N, self.sum_BGK.flatten())
        self.left_B = self.left_B[left_B]
        self.first_G = torch.arange(self.options.groups, device=left_B.device) * self.width
        return rows_BR

    def _is_done(self, sentence: int, best: float, most: int) -> bool:
        """Return whether a sentence is done; `best` is the sum of its best hypothesis."""
        if best == NEVER:
            return True
        if not self.options.exact:
            return all(count >= self.width for count in self.ended[sentence])
        if len(self.texts[sentence]) < self.options.nbest:
            return False
        penalty = self.options.length_penalty
        # sums only decrease: the best possible score is the current sum at the most favorable length
        reach = best / (most + 1 if penalty > 0 else self.history.length + 2) ** penalty
        return sorted(text.score for text in self.texts[sentence])[-self.options.nbest] >= reach


def best_places(scores_BKV: Tensor, sum_BK: Tensor, count: int) -> Tensor:
    """Return the positions of the `count` best totals over all rows of each sentence, best first.

    Only blocks that can contain one of these totals are sorted, as determined by the maximum of each block.
    """
    hypotheses, size = scores_BKV.shape[1:]
    blocks = size // BLOCK
    if hypotheses * blocks <= count:
        all_BJ = (scores_BKV + sum_BK[..., None]).flatten(1)
        return all_BJ.topk(min(count, all_BJ.shape[1])).indices
    whole = blocks * BLOCK
    block_BKX = scores_BKV[..., :whole].unflatten(-1, (blocks, BLOCK)).amax(-1) + sum_BK[..., None]
    which_BC = block_BKX.flatten(1).topk(count).indices
    token_V, row_K = (torch.arange(length, device=sum_BK.device) for length in (size, hypotheses))
    near_BCS = (which_BC // blocks * size + which_BC % blocks * BLOCK)[..., None] + token_V[:BLOCK]
    rest_KS = row_K[:, None] * size + token_V[whole:]  # tokens after the last whole block
    place_BJ = torch.cat((near_BCS.flatten(1), rest_KS.flatten().expand(len(sum_BK), -1)), dim=1)
    score_BJ = scores_BKV.flatten(1).gather(1, place_BJ) + sum_BK.gather(1, place_BJ // size)
    return place_BJ.gather(1, score_BJ.topk(count).indices)
