"""Texts from a model that tells the scores of the next token: beam search, sampling, and what both must obey."""

from __future__ import annotations

from alchemy.generate.beam import BeamSearch
from alchemy.generate.hypothesis import Ensemble, Hypothesis, Search, Special, Steps
from alchemy.generate.sample import Sampling
from alchemy.generate.writer import Limits, Writer

__all__ = ["BeamSearch", "Ensemble", "Hypothesis", "Limits", "Sampling", "Search", "Special", "Steps", "Writer"]
