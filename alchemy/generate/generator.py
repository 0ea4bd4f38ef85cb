"""Generate text for a batch with a search, limits and token rules."""

# B sentences, T tokens of a prefix

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from alchemy.constraints import Ge, Le
from alchemy.generate.search import Hypothesis, Search, Special, Steps
from alchemy.generate.token_rules import AtLeast, AtMost, NoRepeat, Penalty, Prefixes, Rule, Without
from alchemy.registry import construct

# larger values are rejected as mistakes
Tokens = Annotated[int, Ge(0), Le(1_000_000_000)]
Ratio = Annotated[float, Ge(0), Le(1_000_000_000)]


class Limits(NamedTuple):
    """Length limits and penalties for generated text. Lengths are in tokens, without the end token.

    The maximum length is `max_ratio` times the source length plus `max_extra`, at most `max_length`. The minimum is the
    larger of `min_ratio` times the source length and `min_length`.
    """

    max_length: Annotated[int, Ge(1), Le(1_000_000_000)] = 256
    max_ratio: Ratio = 2.0
    max_extra: Tokens = 10
    min_length: Tokens = 0
    min_ratio: Ratio = 0.0
    unk_penalty: Ratio = 0.0
    no_repeat: Tokens = 0  # forbid repeated n-grams of this size; 0 allows them

    def most(self, source_B: Tensor) -> Tensor:
        """Return the maximum length for each source length."""
        return (source_B * self.max_ratio + self.max_extra).long().clamp(1, self.max_length)

    def least(self, source_B: Tensor) -> Tensor:
        """Return the minimum length for each source length."""
        return torch.minimum((source_B * self.min_ratio).long().clamp_min(self.min_length), self.most(source_B))


class TextGenerator:
    """Generates text for a batch, using the given search and limits."""

    def __init__(self, search: Search, special: Special, limits: Limits) -> None:
        construct(Limits, limits._asdict())  # validates limits created in code
        self.search, self.special, self.limits = search, special, limits

    @torch.no_grad()
    def __call__(
        self,
        steps: Steps,
        source_B: Tensor,
        prefixes: Sequence[Sequence[int]] = (),
        numbers: Sequence[int] = (),
        longest: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the outputs for each sentence, best first. `source_B` are source lengths; `prefixes` are forced.

        `longest` is the maximum number of tokens of the decoder. `numbers` identify the sentences for random sampling.
        """
        most_B = self.limits.most(source_B)
        if longest is not None:  # the initial token takes one position
            most_B = most_B.clamp_max(longest - 1)
        rules: list[Rule] = self._make_rules(source_B, most_B)
        if any(prefixes):
            rows = [torch.tensor(list(row), dtype=torch.long, device=source_B.device) for row in prefixes]
            lengths_B = torch.tensor(list(map(len, rows)), device=source_B.device)
            rules = [Prefixes(pad_sequence(rows, batch_first=True), lengths_B, rules)]
        return self.search(steps, most_B, self.special, rules, numbers)

    def _make_rules(self, source_B: Tensor, most_B: Tensor) -> list[Rule]:
        limits, special = self.limits, self.special
        # the initial token may also be the end token
        never = [token for token in {special.begin, special.pad} - {special.eos} if token is not None]
        rules: list[Rule] = [Without(torch.tensor(never, dtype=torch.long, device=source_B.device))]
        if limits.unk_penalty and special.unk is not None:
            rules.append(Penalty(special.unk, limits.unk_penalty))
        if limits.no_repeat:
            rules.append(NoRepeat(limits.no_repeat))
        if limits.min_length or limits.min_ratio:
            least_B = torch.minimum(limits.least(source_B), most_B)
            # no_repeat is the only rule that can exclude all tokens
            rules.append(AtLeast(least_B, special.eos, or_stuck=limits.no_repeat > 0))
        # applied last, so that an output of maximum length can always end
        return [*rules, AtMost(most_B, special.eos)]
