"""Sampling and greedy search."""

# B sentences, M outputs of a sentence, N = B M rows, V vocabulary, E finished outputs

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from alchemy.constraints import FiniteFloat, Gt, Le, NonNegativeFloat, NonNegativeInt, PositiveInt
from alchemy.generate.search import Search, SearchState, Special, nan_error
from alchemy.generate.token_rules import NEVER
from alchemy.seeds import derive


@Search.register()
class Sampling(Search):
    """Samples `nbest` outputs per sentence; `temperature = 0` always chooses the most likely token (greedy search).

    Tokens are sampled from the `top_k` most likely tokens, the smallest set with a total probability of `top_p`, or the
    smallest set nearest to the entropy with a total of `typical` (Meister et al. 2022). 0, 1 and 1 disable these
    filters. Results depend on `seed` and the sentence number, not on the batch. Outputs are ranked as in beam search.
    """

    def __init__(
        self,
        *,
        nbest: PositiveInt = 1,
        temperature: NonNegativeFloat = 1.0,
        top_k: NonNegativeInt = 0,
        top_p: Annotated[float, Gt(0), Le(1)] = 1.0,
        typical: Annotated[float, Gt(0), Le(1)] = 1.0,
        length_penalty: FiniteFloat = 1.0,
        seed: int = 1,
    ) -> None:
        self.nbest, self.temperature, self.top_k, self.top_p = nbest, temperature, top_k, top_p
        self.typical, self.length_penalty, self.seed = typical, length_penalty, seed

    def begin(self, most_B: Tensor, special: Special, numbers: Sequence[int] = ()) -> _SamplingState:
        return _SamplingState(self, len(most_B), special, most_B.device, numbers or range(len(most_B)))

    def filter_scores(self, scores_NV: Tensor) -> Tensor:
        """Apply the temperature, and set the scores of excluded tokens to minus infinity."""
        scores_NV = scores_NV / self.temperature
        if 0 < self.top_k < scores_NV.shape[-1]:
            least_N1 = scores_NV.topk(self.top_k).values[:, -1:]
            scores_NV = scores_NV.masked_fill(scores_NV < least_N1, NEVER)
        if self.typical < 1:
            log_NV = scores_NV.log_softmax(-1)
            entropy_N1 = -(log_NV.exp() * log_NV.clamp_min(torch.finfo(log_NV.dtype).min)).sum(-1, keepdim=True)
            scores_NV = _keep_nucleus(scores_NV, (log_NV + entropy_N1).abs(), self.typical)
        if self.top_p < 1:
            scores_NV = _keep_nucleus(scores_NV, -scores_NV, self.top_p)
        return scores_NV


class _SamplingState(SearchState):
    """State of a sampling search."""

    def __init__(
        self, options: Sampling, sentences: int, special: Special, device: torch.device, numbers: Sequence[int]
    ) -> None:
        super().__init__(sentences, special, device)
        self.options = options
        self.from_BM = self.left_B[:, None].expand(-1, options.nbest)  # parent row of each output
        self.open_BM = torch.ones_like(self.from_BM, dtype=torch.bool)  # outputs that have not ended
        self.sum_BM = torch.zeros_like(self.from_BM, dtype=torch.float)
        # a separate generator per output, so that results do not depend on other outputs
        self.draws = [
            torch.Generator().manual_seed(derive(options.seed, number, text))
            for number in numbers
            for text in range(options.nbest)
        ]

    def advance(self, logs_NV: Tensor) -> Tensor:
        """Append a token to each output; return the rows of the sentences that continue."""
        each_NV = logs_NV[self.from_BM.flatten()]
        token_N = self._draw(each_NV)
        token_BM = token_N.view_as(self.from_BM)
        sum_BM = self.sum_BM + each_NV.gather(1, token_N[:, None]).view_as(self.sum_BM)
        if bool(sum_BM[self.open_BM].isnan().any()):
            raise nan_error()
        ends_BM = self.open_BM & (token_BM == self.special.eos)
        rows_E = self.from_BM[ends_BM]
        texts = self.history.finish(rows_E, sum_BM[ends_BM], self.special.eos, self.options.length_penalty)
        for sentence, text in zip(self.left_B[ends_BM.nonzero()[:, 0]].tolist(), texts):
            self.texts[sentence].append(text)
        going_BM = self.open_BM & ~ends_BM
        left_B = going_BM.any(1).nonzero()[:, 0]
        rows_BM = self.from_BM[left_B]
        self.left_B, self.open_BM, self.sum_BM = self.left_B[left_B], going_BM[left_B], sum_BM[left_B]
        self.last_N = token_BM[left_B].flatten()
        self.draws = [
            self.draws[place * self.options.nbest + text]
            for place in left_B.tolist()
            for text in range(self.options.nbest)
        ]
        self.history.add(rows_BM.flatten(), self.last_N, self.sum_BM.flatten())
        self.from_BM = torch.arange(len(self.last_N), device=left_B.device).view_as(rows_BM)
        return rows_BM

    def _draw(self, scores_NV: Tensor) -> Tensor:
        if not self.options.temperature:
            return scores_NV.argmax(-1)
        noise_NV = torch.stack([torch.rand(scores_NV.shape[-1], generator=draw) for draw in self.draws])
        # Gumbel trick: the argmax of the noisy scores is a sample
        noise_NV = -(-noise_NV.clamp_min(torch.finfo(torch.float).tiny).log()).log()
        return (self.options.filter_scores(scores_NV) + noise_NV.to(scores_NV)).argmax(-1)


def _keep_nucleus(scores_NV: Tensor, order_NV: Tensor, share: float) -> Tensor:
    """Keep the first tokens, ordered by `order_NV`, with a total probability of `share`; keep at least one."""
    place_NV = order_NV.argsort(dim=-1, stable=True)
    probs_NV = scores_NV.softmax(-1).gather(-1, place_NV)
    sums_NV = (
        probs_NV.cpu().cumsum(-1).to(probs_NV.device)
    )  # cumsum is not deterministic on a GPU, which raises an error
    beyond_NV = sums_NV - probs_NV >= share
    return scores_NV.masked_fill(torch.zeros_like(beyond_NV).scatter(-1, place_NV, beyond_NV), NEVER)
