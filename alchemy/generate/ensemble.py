"""Several models that write one text together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from alchemy.generate.hypothesis import Steps, logs


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
