"""Texts drawn token by token, or the likeliest token each time."""

# B sentences, M texts of a sentence, N = B M rows, V vocabulary, E texts that ended

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.generate.hypothesis import Hypothesis, Search, Special, Steps, Written, at_least_single, not_numbers
from alchemy.generate.rules import NEVER, Rule, obey
from alchemy.seeds import derive


@Search.register()
class Sampling(Search):
    """Draws `nbest` texts for each sentence; with `temperature = 0` it takes the likeliest token (greedy).

    Tokens are drawn from the `top_k` likeliest ones, from the fewest whose probabilities make up `top_p`, or from the
    fewest nearest to the entropy that make up `typical` (Meister et al. 2022); 0, 1 and 1 leave all of them in. What is
    drawn depends on `seed` and the number of the sentence, not on the batch. Texts are ranked as in beam search.
    """

    def __init__(
        self,
        *,
        nbest: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        typical: float = 1.0,
        length_penalty: float = 1.0,
        seed: int = 1,
    ) -> None:
        if nbest < 1 or temperature < 0 or top_k < 0 or not 0 < top_p <= 1 or not 0 < typical <= 1:
            hint = "nbest is at least 1, temperature and top_k at least 0, top_p and typical above 0 and at most 1"
            raise AlchemyError("texts cannot be drawn so", hint=hint)
        self.nbest, self.temperature, self.top_k, self.top_p = nbest, temperature, top_k, top_p
        self.typical, self.length_penalty, self.seed = typical, length_penalty, seed

    @property
    def beam(self) -> int:  # type: ignore[override]
        return self.nbest

    def __call__(
        self, steps: Steps, most_B: Tensor, special: Special, rules: Sequence[Rule], numbers: Sequence[int] = ()
    ) -> list[list[Hypothesis]]:
        search = Drawing(self, most_B, special, list(numbers or range(len(most_B))))
        while len(search.left_B):
            scores_NV = at_least_single(steps.scores(search.last_N))
            total_N1 = scores_NV.logsumexp(-1, keepdim=True)
            obey(rules, scores_NV, search.written.tokens_NT, search.left_B.repeat_interleave(self.nbest))
            rows_N = search.advance(scores_NV, total_N1)
            if 0 < len(rows_N) < len(total_N1):
                steps.select(rows_N)
        return [sorted(texts, key=lambda text: -text.score) for texts in search.texts]

    def kept(self, scores_NV: Tensor) -> Tensor:
        """The scores from which tokens are drawn, at the temperature; those that are left out are never drawn."""
        scores_NV = scores_NV / self.temperature
        if 0 < self.top_k < scores_NV.shape[-1]:
            least_N1 = scores_NV.topk(self.top_k).values[:, -1:]
            scores_NV = scores_NV.masked_fill(scores_NV < least_N1, NEVER)
        if self.typical < 1:
            log_NV = scores_NV.log_softmax(-1)
            entropy_N1 = -(log_NV.exp() * log_NV.clamp_min(torch.finfo(log_NV.dtype).min)).sum(-1, keepdim=True)
            scores_NV = nucleus(scores_NV, (log_NV + entropy_N1).abs(), self.typical)
        if self.top_p < 1:
            scores_NV = nucleus(scores_NV, -scores_NV, self.top_p)
        return scores_NV


class Drawing:
    """Texts that are being drawn."""

    def __init__(self, how: Sampling, most_B: Tensor, special: Special, numbers: Sequence[int]) -> None:
        self.how, self.special = how, special
        rows, device = len(most_B) * how.nbest, most_B.device
        self.texts: list[list[Hypothesis]] = [[] for _ in most_B]
        self.left_B = torch.arange(len(most_B), device=device)
        self.open_N = torch.ones(rows, dtype=torch.bool, device=device)  # the texts that have not ended
        self.written = Written(rows, device)
        self.last_N = torch.full((rows,), special.begin, device=device)
        self.sum_N = torch.zeros(rows, device=device)
        # numbers of its own for each text, so that it does not matter what else is drawn
        self.draws = [
            torch.Generator().manual_seed(derive(how.seed, number, text))
            for number in numbers
            for text in range(how.nbest)
        ]

    def advance(self, scores_NV: Tensor, total_N1: Tensor) -> Tensor:
        """Writes a token in each text; gives the rows of the sentences that go on."""
        token_N1 = self._drawn(scores_NV)[:, None]
        sum_N = self.sum_N + (scores_NV.gather(1, token_N1) - total_N1)[:, 0]
        ends_N = self.open_N & (token_N1[:, 0] == self.special.eos)
        if bool(sum_N[self.open_N].isnan().any()):
            raise not_numbers()
        rows_E = ends_N.nonzero()[:, 0]
        texts = self.written.ended(rows_E, sum_N[rows_E], self.special.eos, self.how.length_penalty)
        for sentence, text in zip(self.left_B[rows_E // self.how.nbest].tolist(), texts):
            self.texts[sentence].append(text)
        going_BM = (self.open_N & ~ends_N).view(-1, self.how.nbest)
        left_B = going_BM.any(1).nonzero()[:, 0]
        rows_N = (left_B[:, None] * self.how.nbest + torch.arange(self.how.nbest, device=left_B.device)).flatten()
        self.left_B, self.open_N = self.left_B[left_B], going_BM.flatten()[rows_N]
        self.last_N, self.sum_N = token_N1[rows_N, 0], sum_N[rows_N]
        self.draws = [self.draws[row] for row in rows_N.tolist()]
        self.written.add(rows_N, self.last_N, self.sum_N)
        return rows_N

    def _drawn(self, scores_NV: Tensor) -> Tensor:
        if not self.how.temperature:
            return scores_NV.argmax(-1)
        noise_NV = torch.stack([torch.rand(scores_NV.shape[-1], generator=draw) for draw in self.draws])
        # the largest of scores with such noise is a draw by their probabilities (Gumbel)
        noise_NV = -(-noise_NV.clamp_min(torch.finfo(torch.float).tiny).log()).log()
        return (self.how.kept(scores_NV) + noise_NV.to(scores_NV)).argmax(-1)


def nucleus(scores_NV: Tensor, order_NV: Tensor, share: float) -> Tensor:
    """Leaves the first tokens by `order_NV` that make up a share of the probability, at least one."""
    place_NV = order_NV.argsort(dim=-1, stable=True)
    probs_NV = scores_NV.softmax(-1).gather(-1, place_NV)
    sums_NV = probs_NV.cpu().cumsum(-1).to(probs_NV.device)  # on a GPU sums come in no fixed order, which is refused
    beyond_NV = sums_NV - probs_NV >= share
    return scores_NV.masked_fill(torch.zeros_like(beyond_NV).scatter(-1, place_NV, beyond_NV), NEVER)
