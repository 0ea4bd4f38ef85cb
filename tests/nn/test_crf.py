"""The CRF, compared with enumerating all tag sequences."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.nn.crf import CRF

BEGINS, ENDS = [True, False, True], [True, True, False]
FOLLOWS = [[True, False, True], [True, True, False], [False, True, True]]


def violations(tags: tuple[int, ...]) -> int:
    steps = sum(not FOLLOWS[one][other] for one, other in itertools.pairwise(tags))
    return steps + (not BEGINS[tags[0]]) + (not ENDS[tags[-1]])


def score(crf: CRF, scores: torch.Tensor, tags: tuple[int, ...]) -> torch.Tensor:
    own = sum(scores[place, tag] for place, tag in enumerate(tags))
    return own + crf.start[tags[0]] + crf.stop[tags[-1]] + sum(crf.step[a, b] for a, b in itertools.pairwise(tags))


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 999), ruled=st.booleans())
def test_it_is_exact(lengths: list[int], seed: int, ruled: bool) -> None:
    torch.manual_seed(seed)
    crf = CRF(3, begins=BEGINS, follows=FOLLOWS, ends=ENDS) if ruled else CRF(3)
    size = max(lengths) + seed % 3
    scores = torch.randn(len(lengths), size, 3) * 3
    real = torch.arange(size) < torch.tensor(lengths)[:, None]
    best = crf.decode(scores, real)
    for row, length in enumerate(lengths):
        paths = list(itertools.product(range(3), repeat=length))
        totals = torch.stack([score(crf, scores[row], path) for path in paths])
        broken = torch.tensor([0 if not ruled else violations(path) for path in paths])
        assert tuple(best[row]) == paths[int((totals - 1e4 * broken).argmax())]
        gold = torch.full((len(lengths), size), -100)
        gold[row, :length] = torch.tensor(paths[0])
        loss = crf(scores[row : row + 1], gold[row : row + 1], real[row : row + 1])
        assert torch.allclose(loss[0], totals.logsumexp(0) - totals[0], atol=1e-4)


def test_padding_gives_no_gradient() -> None:
    crf, scores = CRF(4), torch.randn(2, 6, 4, requires_grad=True)
    real = torch.arange(6) < torch.tensor([[3], [6]])
    crf(scores, torch.zeros(2, 6, dtype=torch.long), real).sum().backward()
    assert scores.grad is not None
    assert scores.grad[0, 3:].abs().sum() == 0 < scores.grad[0, :3].abs().sum()
