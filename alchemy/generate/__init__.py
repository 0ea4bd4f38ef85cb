"""Text generation: beam search, sampling, and rules for tokens."""

from __future__ import annotations

from alchemy.generate.beam_search import BeamSearch
from alchemy.generate.generator import Limits, TextGenerator
from alchemy.generate.sampling import Sampling
from alchemy.generate.search import Ensemble, Hypothesis, Search, Special, Steps

__all__ = ["BeamSearch", "Ensemble", "Hypothesis", "Limits", "Sampling", "Search", "Special", "Steps", "TextGenerator"]
