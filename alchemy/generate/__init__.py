"""Texts from a model that tells the scores of the next token: beam search, sampling, and what both must obey."""

from __future__ import annotations

from alchemy.generate.beam_search import BeamSearch
from alchemy.generate.generator import Limits, TextGenerator
from alchemy.generate.sampling import Sampling
from alchemy.generate.search import Ensemble, Hypothesis, Search, Special, Steps

__all__ = ["BeamSearch", "Ensemble", "Hypothesis", "Limits", "Sampling", "Search", "Special", "Steps", "TextGenerator"]
