"""Whether an export writes what the model writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from alchemy.errors import AlchemyError
from alchemy.export.engine import Engine, Precision, tokens_of
from alchemy.generate import Hypothesis
from alchemy.metrics.scores import bleu
from alchemy.models.translator import real
from alchemy.nn.rows import Rows
from alchemy.text import Tokenizer

LINES = 200  # sentences that are looked at
TIE = 1e-4  # scores that differ by no more are equal: either text may be the better one
BLEU = 0.5  # how much int8 may change it
BLOCK = 20  # sentences that are written together


class Pair(NamedTuple):
    """The tokens of a sentence, and its translation, where that is known."""

    source: list[int]
    reference: str | None = None


Blocks = Sequence[Sequence[Pair]]
Watch = Callable[[Blocks], Iterable[Sequence[Pair]]]


class Agreement(NamedTuple):
    """Of how many sentences both write the same text, another with the same score, or leave it to the model's search.

    Of those that are left only the score is compared. BLEU is there where int8 was compared by it.
    """

    lines: int
    same: int
    ties: int
    left: int
    bleu: float | None = None
    own_bleu: float | None = None

    def __str__(self) -> str:
        parts = [f"the same text for {self.same} of {self.lines} sentences"]
        parts += [f"another with the same score for {self.ties}"] * bool(self.ties)
        parts += [f"{self.left} left to the model's own search"] * bool(self.left)
        if self.bleu is not None:
            parts.append(f"BLEU {self.bleu:.2f}, the model's {self.own_bleu:.2f}")
        return ", ".join(parts)


def check(
    engine: Engine, pairs: Sequence[Pair], target: Tokenizer, precision: Precision, watch: Watch = iter
) -> Agreement:
    """How an export agrees with its model; an error where it does not."""
    if not pairs:
        raise AlchemyError("there are no sentences to check the export on", hint="give some with --lines FILE")
    if precision == "int8" and any(pair.reference is None for pair in pairs):
        hint = "give translations of the sentences with --references FILE"
        raise AlchemyError("int8 is checked by its BLEU, and the sentences have no translations", hint=hint)
    counts: Counter[str] = Counter()
    own, said = [], []
    for block in watch([pairs[start : start + BLOCK] for start in range(0, len(pairs), BLOCK)]):
        rows = rows_of([pair.source for pair in block], engine.device)
        ours, theirs = [texts[0] for texts in engine.own(rows)], engine.found(rows)
        counts.update(map(verdict, ours, theirs, engine.rated(tokens_of(rows), ours)))
        own += [target.decode(text.tokens) for text in ours]
        said += [target.decode(texts[0].tokens if texts else text.tokens) for text, texts in zip(ours, theirs)]
    found = Agreement(len(pairs), counts["same"], counts["tie"], counts["left"] + counts["unlike"])
    if precision == "int8":
        gold = [str(pair.reference) for pair in pairs]
        return _close(found._replace(bleu=bleu(gold, said, force=True), own_bleu=bleu(gold, own, force=True)))
    if counts["other"] or counts["unlike"]:
        raise _not_kept(f"CTranslate2 writes other texts than the model: {found}")
    return found


def verdict(own: Hypothesis, found: Sequence[Hypothesis], rated: Hypothesis) -> str:
    """What becomes of a sentence: `rated` is our own text with the score that CTranslate2 gives it.

    >>> own, other = Hypothesis([5, 1], [], -0.5), Hypothesis([6, 1], [], -0.50001)
    >>> verdict(own, [own], own), verdict(own, [other], own), verdict(own, [], own)
    ('same', 'tie', 'left')
    >>> verdict(own, [own._replace(score=-0.6, tokens=[1])], own), verdict(own, [], own._replace(score=-0.6))
    ('other', 'unlike')
    """
    if found and found[0].tokens == own.tokens:
        return "same"
    same = abs([*found, rated][0].score - own.score) <= TIE
    return ("tie" if same else "other") if found else ("left" if same else "unlike")


def _close(found: Agreement) -> Agreement:
    assert found.bleu is not None and found.own_bleu is not None
    if abs(found.bleu - found.own_bleu) > BLEU:
        raise _not_kept(f"the BLEU of int8 is more than {BLEU} away from that of the model: {found}")
    return found


def _not_kept(what: str) -> AlchemyError:
    return AlchemyError(what, hint="it is not kept; write texts with --engine torch")


def rows_of(sources: Sequence[Sequence[int]], device: torch.device | None = None) -> Rows:
    ids_BT = pad_sequence([torch.tensor(row, dtype=torch.long) for row in sources], batch_first=True)
    lengths_B = torch.tensor(list(map(len, sources)))
    return Rows(ids_BT.to(device), real(lengths_B, ids_BT).to(device))
