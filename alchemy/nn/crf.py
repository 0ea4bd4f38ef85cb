"""A linear-chain CRF: the likelihood of tag sequences, and Viterbi decoding."""

# B batch, T tokens, C tags

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# not minus infinity, so that decoding finds the sequence with the fewest violations if none satisfies the rules
NEVER = -1e4


class CRF(nn.Module):
    """A conditional random field that learns scores for transitions between tags.

    `begins`, `follows` and `ends` specify which tags may begin a sequence, follow each other
    (`follows[before][behind]`) and end a sequence; `decode` follows these rules. The loss ignores them,
    so that invalid data or truncated text does not dominate it. Padding is on the right.
    """

    begins: Tensor
    follows: Tensor
    ends: Tensor

    def __init__(
        self,
        tags: int,
        *,
        begins: Sequence[bool] | None = None,
        follows: Sequence[Sequence[bool]] | None = None,
        ends: Sequence[bool] | None = None,
    ) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.step = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.stop = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        for name, allowed, shape in (
            ("begins", begins, (tags,)),
            ("follows", follows, (tags, tags)),
            ("ends", ends, (tags,)),
        ):
            known = torch.ones(shape, dtype=torch.bool) if allowed is None else torch.tensor(allowed, dtype=torch.bool)
            self.register_buffer(name, known, persistent=False)

    def forward(self, scores_BTC: Tensor, tags_BT: Tensor, real_BT: Tensor) -> Tensor:
        """Return the negative log-likelihood of the tags in each row."""
        scores_BTC = scores_BTC.float()
        return self._partition(scores_BTC, real_BT) - self._path(scores_BTC, tags_BT, real_BT)

    def _path(self, scores_BTC: Tensor, tags_BT: Tensor, real_BT: Tensor) -> Tensor:
        """Return the score of the given tags."""
        tags_BT = torch.where(real_BT, tags_BT, 0)  # padding may contain invalid tags
        own_BT = scores_BTC.gather(2, tags_BT[..., None])[..., 0]
        moves_BT = self.step[tags_BT[:, :-1], tags_BT[:, 1:]]
        last_B = tags_BT.gather(1, (real_BT.sum(1) - 1)[:, None])[:, 0]
        inner = (own_BT * real_BT).sum(1) + (moves_BT * real_BT[:, 1:]).sum(1)
        return inner + self.start[tags_BT[:, 0]] + self.stop[last_B]

    def _partition(self, scores_BTC: Tensor, real_BT: Tensor) -> Tensor:
        """Return the log partition function: the logsumexp of the scores of all tag sequences."""
        total_BC = self.start + scores_BTC[:, 0]
        for place in range(1, scores_BTC.shape[1]):
            after_BC = torch.logsumexp(total_BC[:, :, None] + self.step, dim=1) + scores_BTC[:, place]
            total_BC = torch.where(real_BT[:, place, None], after_BC, total_BC)
        return torch.logsumexp(total_BC + self.stop, dim=1)

    @torch.no_grad()
    def decode(self, scores_BTC: Tensor, real_BT: Tensor) -> list[list[int]]:
        """Return the best valid tags for each row (Viterbi), one per real token."""
        start, step, stop = (
            scores.masked_fill(~allowed, NEVER)
            for scores, allowed in ((self.start, self.begins), (self.step, self.follows), (self.stop, self.ends))
        )
        scores_BTC = scores_BTC.float()
        best_BC, origins = start + scores_BTC[:, 0], []
        stay_C = torch.arange(len(start), device=scores_BTC.device)
        for place in range(1, scores_BTC.shape[1]):
            score_BC, origin_BC = (best_BC[:, :, None] + step).max(dim=1)
            open_B1 = real_BT[:, place, None]
            best_BC = torch.where(open_B1, score_BC + scores_BTC[:, place], best_BC)
            origins.append(torch.where(open_B1, origin_BC, stay_C))
        tag_B = (best_BC + stop).argmax(dim=1)
        path = [tag_B]
        for origin_BC in reversed(origins):
            tag_B = origin_BC.gather(1, tag_B[:, None])[:, 0]
            path.append(tag_B)
        tags_BT = torch.stack(path[::-1], dim=1).tolist()
        return [row[:length] for row, length in zip(tags_BT, real_BT.sum(1).tolist())]
