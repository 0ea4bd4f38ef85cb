"""Texts by CTranslate2, where they are those that the search of alchemy would find, and by that search where not."""

# B sentences

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from alchemy.errors import AlchemyError
from alchemy.export.ctranslate2_spec import import_ctranslate2, places_of
from alchemy.generate import BeamSearch, Hypothesis, TextGenerator
from alchemy.models.translator import DecodingSteps
from alchemy.nn.sequences import Rows
from alchemy.nn.transformer import Transformer

NO_PENALTY = 1e-30  # as good as 0, which would let CTranslate2 end a search before as many texts have ended as we want
RATED = 64  # texts that are scored together


class Engine:
    """The model of a folder, which writes texts as `writer` does with the network that the folder was made of.

    CTranslate2 knows one greatest length for a whole batch, cuts texts there without their end, and counts a token that
    is forbidden as if the model had never heard of it. So it searches without limits of length, and a sentence is left
    to `writer` where a text of the beam is longer or shorter than its limits allow. Where scores are `told`, those of
    the texts are computed again, with all tokens.
    """

    def __init__(
        self, folder: Path, network: Transformer, writer: TextGenerator, precision: str, *, told: bool = False
    ) -> None:
        self.network, self.writer, self.told = network, writer, told
        self.search, self.places = supported(writer, network.out.out_features), places_of(network)
        special = writer.special
        self.never = [[str(token)] for token in {special.begin, special.pad} - {None, special.eos}]
        self.device = self.network.out.weight.device
        self.translator = _opened(folder, self.device, precision)

    def __call__(self, rows: Rows) -> list[list[Hypothesis]]:
        found = self._rated(rows, self.found(rows)) if self.told else self.found(rows)
        left = [place for place, texts in enumerate(found) if not texts]
        if left:
            own = self.own(Rows(rows.ids_BT[left], rows.real_BT[left]))
            found = [texts or own.pop(0) for texts in found]
        return [texts[: self.search.nbest] for texts in found]

    @torch.no_grad()
    def own(self, rows: Rows) -> list[list[Hypothesis]]:
        """As alchemy itself writes them."""
        walk = DecodingSteps(self.network, rows)
        return self.writer(walk, rows.lengths_B, longest=self.network.longest)

    def found(self, rows: Rows) -> list[list[Hypothesis]]:
        """As CTranslate2 writes them, all texts of the beam; none where `writer` might find others."""
        limits = self.writer.limits
        most_B = limits.most(rows.lengths_B).clamp_max(self.places - 1)
        cut, sources = int(most_B.max()) + 1, tokens_of(rows)
        fits = [place for place, source in enumerate(sources) if len(source) <= self.places]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for place, result in zip(fits, self._translated([sources[place] for place in fits], cut)):
            found[place] = _hypotheses(result)
        asked = zip(found, most_B.tolist(), limits.least(rows.lengths_B).tolist())
        return [texts if _within(texts, most, least) else [] for texts, most, least in asked]

    def _translated(self, sources: list[list[str]], cut: int) -> list[Any]:
        return self.translator.translate_batch(
            sources,
            beam_size=self.search.beam,
            num_hypotheses=self.search.beam,  # the worst of them tells when the search was over
            length_penalty=self.search.length_penalty or NO_PENALTY,
            suppress_sequences=self.never or None,
            max_input_length=0,
            max_decoding_length=cut,
            min_decoding_length=0,
            return_scores=True,
            return_end_token=True,
        )

    def rated(self, sources: Sequence[list[str]], texts: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Texts of sources with what CTranslate2 makes of each token and of all, forbidden ones not left out."""
        targets = [list(map(str, text.tokens[:-1])) for text in texts]
        results = self.translator.score_batch(list(sources), targets, max_input_length=0, max_batch_size=RATED)
        return [
            Hypothesis(
                text.tokens, result.log_probs, sum(result.log_probs) / len(text.tokens) ** self.search.length_penalty
            )
            for text, result in zip(texts, results, strict=True)
        ]

    def _rated(self, rows: Rows, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        pairs = [(source, text) for source, texts in zip(tokens_of(rows), found, strict=True) for text in texts]
        rated = iter(self.rated(*map(list, zip(*pairs)))) if pairs else iter(())
        return [sorted(islice(rated, len(texts)), key=lambda text: -text.score) for texts in found]


def _opened(folder: Path, device: torch.device, precision: str) -> Any:
    try:
        return import_ctranslate2().Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            compute_type=precision,
            intra_threads=torch.get_num_threads(),
        )
    except (ValueError, RuntimeError) as error:  # as a processor that cannot do int8
        hint = "write texts with --engine torch"
        raise AlchemyError(f"CTranslate2 cannot compute in {precision} here: {error}", hint=hint) from error


def supported(writer: TextGenerator, size: int) -> BeamSearch:
    """The search, if CTranslate2 can do what it and its limits say."""
    search, limits = writer.search, writer.limits
    if not isinstance(search, BeamSearch):
        raise _lacking(f"the search {type(search).__name__}")
    asked = {"exact": search.exact, "groups": search.groups > 1}
    asked |= {"unk_penalty": limits.unk_penalty > 0, "no_repeat": limits.no_repeat > 0}
    for name in (name for name, wanted in asked.items() if wanted):
        raise _lacking(f"`{name}` as alchemy means it")
    if search.beam > widest(size):
        raise _lacking(f"beam = {search.beam} with a vocabulary of {size} tokens")
    return search


def widest(size: int) -> int:
    """The widest beam of a vocabulary; a wider one would find candidates that are none."""
    return max(1, (size - 1) // 2)


def _lacking(what: str) -> AlchemyError:
    return AlchemyError(f"CTranslate2 does not know {what}", hint="leave it out, or write texts with --engine torch")


def _within(texts: Sequence[Hypothesis], most: int, least: int) -> bool:
    """Whether a search that knows nothing of limits has met none: all texts are as long as they may be, or less.

    The search was over when the longest of them ended. Where it went on for longer than the limits let it, it had
    hypotheses that should have ended before.
    """
    lengths = [len(text.tokens) for text in texts]
    return bool(lengths) and max(lengths) <= most and min(lengths) > least


def tokens_of(rows: Rows) -> list[list[str]]:
    """The real tokens of each row, which stand in front, by their names."""
    pairs = zip(rows.ids_BT.tolist(), rows.lengths_B.tolist(), strict=True)
    return [list(map(str, row[:length])) for row, length in pairs]


def _hypotheses(result: Any) -> list[Hypothesis]:
    pairs = zip(result.hypotheses, result.scores, strict=True)
    return [Hypothesis(list(map(int, tokens)), [], score) for tokens, score in pairs]
