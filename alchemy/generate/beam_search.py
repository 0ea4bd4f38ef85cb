"""Beam search over a batch of sentences: what is found for one does not depend on the others."""

# B sentences, G groups of a sentence, K hypotheses of a group, R = G K rows of a sentence, N = B R rows, V vocabulary,
# C candidates of a group, E texts that ended, X blocks of S tokens, J places of tokens in rows

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from alchemy.constraints import FiniteFloat, PositiveInt
from alchemy.generate.search import Search, Searching, Special, not_numbers
from alchemy.generate.token_rules import NEVER

BLOCK = 64  # tokens that are looked at together


class _Candidates(NamedTuple):
    """The best ways to go on with the hypotheses of a group, best first: with which, by which token, to which sum."""

    parent_BC: Tensor
    token_BC: Tensor
    sum_BC: Tensor

    def at(self, place_BK: Tensor) -> _Candidates:
        return _Candidates(*(part.gather(1, place_BK) for part in self))

    def filled(self, count: int) -> _Candidates:
        """So many at least; those that there are not have no chance."""
        short = (0, max(0, count - self.sum_BC.shape[1]))
        return _Candidates(
            F.pad(self.parent_BC, short), F.pad(self.token_BC, short), F.pad(self.sum_BC, short, value=NEVER)
        )


@Search.register()
class BeamSearch(Search):
    """Keeps the `beam` best beginnings of each sentence, and gives the `nbest` best texts of those that ended.

    The score of a text is the sum of its log-probabilities, divided by its length (with the end) to the power of
    `length_penalty`. A sentence is done when as many texts have ended as there are beginnings; with `exact` when no
    beginning that is left could still become one of the `nbest`. With `groups` the hypotheses of a sentence are
    searched for in turn, and a group is charged `diversity` for each token that those before it took at the same step.
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

    def begin(self, most_B: Tensor, special: Special, numbers: Sequence[int] = ()) -> Running:
        return Running(self, most_B, special)


class Running(Searching):
    """A beam search that is under way."""

    def __init__(self, how: BeamSearch, most_B: Tensor, special: Special) -> None:
        sentences, device = len(most_B), most_B.device
        super().__init__(sentences, special, device)
        self.how, self.most_B = how, most_B
        self.width = how.beam // how.groups
        self.ended = [[0] * how.groups for _ in range(sentences)]  # how many texts, in each group
        self.first_G = torch.zeros(how.groups, dtype=torch.long, device=device)  # of a sentence's rows, in each group
        self.sum_BGK = torch.zeros(sentences, how.groups, 1, device=device)

    def advance(self, logs_NV: Tensor) -> Tensor:
        """Goes on by a token with the best hypotheses; gives the rows that they come from, for sentences that go on."""
        sentences, groups, hypotheses = self.sum_BGK.shape
        logs_BGKV = logs_NV.view(sentences, -1, hypotheses, logs_NV.shape[-1]).expand(-1, groups, -1, -1)
        charge_BV = logs_NV.new_zeros(sentences, logs_NV.shape[-1]) if groups > 1 else None
        going = []
        for group in range(groups):
            found = self._candidates(logs_BGKV[:, group], self.sum_BGK[:, group], charge_BV)
            ends_BC = (found.token_BC == self.special.eos) & (found.sum_BC > NEVER)
            self._keep(found, ends_BC, group)
            # there is one end for each parent at most, so that enough candidates are none
            going.append(found.at(ends_BC.byte().argsort(dim=1, stable=True)[:, : self.width]))
            if charge_BV is not None:
                charge_BV.scatter_add_(1, going[-1].token_BC, torch.full_like(going[-1].sum_BC, self.how.diversity))
        return self._go_on(*(torch.stack(part, dim=1) for part in zip(*going)))

    def _candidates(self, logs_BKV: Tensor, sum_BK: Tensor, charge_BV: Tensor | None) -> _Candidates:
        wanted_BKV = logs_BKV if charge_BV is None else logs_BKV - charge_BV[:, None]
        place_BC = best_places(wanted_BKV, sum_BK, 2 * self.width)
        parent_BC = place_BC // logs_BKV.shape[-1]
        sum_BC = logs_BKV.flatten(1).gather(1, place_BC) + sum_BK.gather(1, parent_BC)
        return _Candidates(parent_BC, place_BC % logs_BKV.shape[-1], sum_BC).filled(2 * self.width)

    def _keep(self, found: _Candidates, ends_BC: Tensor, group: int) -> None:
        """Takes the texts that ended, of those that would have been kept."""
        place_E, which_E = ends_BC[:, : self.width].nonzero(as_tuple=True)
        if not len(place_E):
            return
        rows_E = place_E * self.rows + self.first_G[group] + found.parent_BC[place_E, which_E]
        texts = self.written.ended(rows_E, found.sum_BC[place_E, which_E], self.special.eos, self.how.length_penalty)
        for sentence, text in zip(self.left_B[place_E].tolist(), texts):
            self.texts[sentence].append(text)
            self.ended[sentence][group] += 1

    def _go_on(self, parent_BGK: Tensor, token_BGK: Tensor, sum_BGK: Tensor) -> Tensor:
        best_B = sum_BGK.flatten(1).amax(1).tolist()
        if any(best != best for best in best_B):
            raise not_numbers()
        most_B = self.most_B[self.left_B].tolist()
        left = [
            place
            for place, (sentence, best, most) in enumerate(zip(self.left_B.tolist(), best_B, most_B))
            if not self._done(sentence, best, most)
        ]
        left_B = torch.tensor(left, dtype=torch.long, device=self.left_B.device)
        rows_BR = (left_B[:, None, None] * self.rows + self.first_G[:, None] + parent_BGK[left_B]).flatten(1)
        self.last_N, self.sum_BGK = token_BGK[left_B].flatten(), sum_BGK[left_B]
        self.written.add(rows_BR.flatten(), self.last_N, self.sum_BGK.flatten())
        self.left_B = self.left_B[left_B]
        self.first_G = torch.arange(self.how.groups, device=left_B.device) * self.width
        return rows_BR

    def _done(self, sentence: int, best: float, most: int) -> bool:
        """Whether nothing more is wanted of a sentence, whose best hypothesis has the sum `best`."""
        if best == NEVER:
            return True
        if not self.how.exact:
            return all(count >= self.width for count in self.ended[sentence])
        if len(self.texts[sentence]) < self.how.nbest:
            return False
        penalty = self.how.length_penalty
        # sums only fall: the most that can become of one is its own, at the length that suits it best
        reach = best / (most + 1 if penalty > 0 else self.written.length + 2) ** penalty
        return sorted(text.score for text in self.texts[sentence])[-self.how.nbest] >= reach


def best_places(scores_BKV: Tensor, sum_BK: Tensor, count: int) -> Tensor:
    """The places of the best scores of a sentence, each with the sum of its row, best first; of all rows, one by one.

    Only the tokens of blocks that can have one of them are sorted: the best of each block tells which.
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
    rest_KS = row_K[:, None] * size + token_V[whole:]  # where there is no whole block
    place_BJ = torch.cat((near_BCS.flatten(1), rest_KS.flatten().expand(len(sum_BK), -1)), dim=1)
    score_BJ = scores_BKV.flatten(1).gather(1, place_BJ) + sum_BK.gather(1, place_BJ // size)
    return place_BJ.gather(1, score_BJ.topk(count).indices)
