"""Generate text with CTranslate2, or with our own search if CTranslate2 might return different results."""

# B sentences

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from alchemy.errors import AlchemyError
from alchemy.export.ctranslate2_spec import import_ctranslate2, max_positions
from alchemy.generate import BeamSearch, Hypothesis, TextGenerator
from alchemy.models.translator import DecodingSteps
from alchemy.nn.sequences import Rows
from alchemy.nn.transformer import Transformer

NO_PENALTY = 1e-30  # practically 0; with exactly 0, CTranslate2 may end a search too early
RATED = 64  # outputs per scoring batch


class Engine:
    """An exported model that generates the same text as `writer` does with the original network.

    CTranslate2 has a single maximum length per batch, truncates longer outputs without adding an end token, and
    normalizes scores without forbidden tokens. The engine therefore searches without length limits, and `writer`
    handles a sentence if any output violates its limits. With `rescore`, scores are recomputed over all tokens.
    """

    def __init__(
        self, folder: Path, network: Transformer, writer: TextGenerator, precision: str, *, rescore: bool = False
    ) -> None:
        self.network, self.writer, self.rescore = network, writer, rescore
        self.search, self.places = require_supported(writer, network.out.out_features), max_positions(network)
        special = writer.special
        self.never = [[str(token)] for token in {special.begin, special.pad} - {None, special.eos}]
        self.device = self.network.out.weight.device
        self.translator = _open_translator(folder, self.device, precision)

    def __call__(self, rows: Rows) -> list[list[Hypothesis]]:
        found = self._rescore(rows, self.translate(rows)) if self.rescore else self.translate(rows)
        left = [place for place, texts in enumerate(found) if not texts]
        if left:
            own = self.generate(Rows(rows.ids_BT[left], rows.real_BT[left]))
            found = [texts or own.pop(0) for texts in found]
        return [texts[: self.search.nbest] for texts in found]

    @torch.no_grad()
    def generate(self, rows: Rows) -> list[list[Hypothesis]]:
        """Return the results of our own search."""
        steps = DecodingSteps(self.network, rows)
        return self.writer(steps, rows.lengths_B, longest=self.network.longest)

    def translate(self, rows: Rows) -> list[list[Hypothesis]]:
        """Return all outputs in CTranslate2's beam, or none for a sentence if `writer` might return different ones."""
        limits = self.writer.limits
        most_B = limits.most(rows.lengths_B).clamp_max(self.places - 1)
        cut, sources = int(most_B.max()) + 1, token_names(rows)
        fits = [place for place, source in enumerate(sources) if len(source) <= self.places]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for place, result in zip(fits, self._translate_batch([sources[place] for place in fits], cut)):
            found[place] = _to_hypotheses(result)
        limited = zip(found, most_B.tolist(), limits.least(rows.lengths_B).tolist())
        return [texts if _is_within(texts, most, least) else [] for texts, most, least in limited]

    def _translate_batch(self, sources: list[list[str]], cut: int) -> list[Any]:
        return self.translator.translate_batch(
            sources,
            beam_size=self.search.beam,
            num_hypotheses=self.search.beam,  # the worst hypothesis shows when the search ended
            length_penalty=self.search.length_penalty or NO_PENALTY,
            suppress_sequences=self.never or None,
            max_input_length=0,
            max_decoding_length=cut,
            min_decoding_length=0,
            return_scores=True,
            return_end_token=True,
        )

    def score(self, sources: Sequence[list[str]], texts: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return the outputs with CTranslate2's scores, normalized over all tokens."""
        targets = [list(map(str, text.tokens[:-1])) for text in texts]
        results = self.translator.score_batch(list(sources), targets, max_input_length=0, max_batch_size=RATED)
        return [
            Hypothesis(
                text.tokens, result.log_probs, sum(result.log_probs) / len(text.tokens) ** self.search.length_penalty
            )
            for text, result in zip(texts, results, strict=True)
        ]

    def _rescore(self, rows: Rows, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        pairs = [(source, text) for source, texts in zip(token_names(rows), found, strict=True) for text in texts]
        rated = iter(self.score(*map(list, zip(*pairs)))) if pairs else iter(())
        return [sorted(islice(rated, len(texts)), key=lambda text: -text.score) for texts in found]


def _open_translator(folder: Path, device: torch.device, precision: str) -> Any:
    try:
        return import_ctranslate2().Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            compute_type=precision,
            intra_threads=torch.get_num_threads(),
        )
    except (ValueError, RuntimeError) as error:  # e.g. a CPU without int8 support
        hint = "use --engine torch instead"
        raise AlchemyError(f"CTranslate2 cannot use {precision} on this machine: {error}", hint=hint) from error


def require_supported(writer: TextGenerator, size: int) -> BeamSearch:
    """Return the search, or raise an error if CTranslate2 does not support it or its limits."""
    search, limits = writer.search, writer.limits
    if not isinstance(search, BeamSearch):
        raise _unsupported(f"the search {type(search).__name__}")
    used = {"exact": search.exact, "groups": search.groups > 1}
    used |= {"unk_penalty": limits.unk_penalty > 0, "no_repeat": limits.no_repeat > 0}
    for name in (name for name, wanted in used.items() if wanted):
        raise _unsupported(f"`{name}`")
    if search.beam > max_beam(size):
        raise _unsupported(f"beam = {search.beam} with a vocabulary of {size} tokens")
    return search


def max_beam(size: int) -> int:
    """Return the maximum beam size for a vocabulary; a wider beam would have invalid candidates."""
    return max(1, (size - 1) // 2)


def _unsupported(feature: str) -> AlchemyError:
    return AlchemyError(f"CTranslate2 does not support {feature}", hint="remove it, or use --engine torch")


def _is_within(texts: Sequence[Hypothesis], most: int, least: int) -> bool:
    """Return whether a search without limits stayed within the limits: no output is too long or too short.

    The search ended with its longest output. If it exceeds the limit, some hypotheses should have ended earlier.
    """
    lengths = [len(text.tokens) for text in texts]
    return bool(lengths) and max(lengths) <= most and min(lengths) > least


def token_names(rows: Rows) -> list[list[str]]:
    """Return the names of the tokens of each row, without padding."""
    pairs = zip(rows.ids_BT.tolist(), rows.lengths_B.tolist(), strict=True)
    return [list(map(str, row[:length])) for row, length in pairs]


def _to_hypotheses(result: Any) -> list[Hypothesis]:
    pairs = zip(result.hypotheses, result.scores, strict=True)
    return [Hypothesis(list(map(int, tokens)), [], score) for tokens, score in pairs]
