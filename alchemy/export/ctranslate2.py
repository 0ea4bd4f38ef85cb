"""Models of CTranslate2: a Transformer that translates, checked by the texts that it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from alchemy.data.files import read_lines
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError
from alchemy.export.ctranslate2_engine import Engine, tokens_of, widest
from alchemy.export.ctranslate2_spec import digest, import_ctranslate2, places_of, require_transformer, spec_of
from alchemy.export.exporter import Agreement, Exporter, Watch
from alchemy.generate import BeamSearch, Hypothesis, Limits, Special, TextGenerator
from alchemy.metrics.bleu_chrf import bleu
from alchemy.models.translator import real
from alchemy.nn.sequences import Rows
from alchemy.pipeline import build_datapipes
from alchemy.text import Tokenizer

LINES = 200  # sentences that are looked at
BEAM = 5  # of the texts that are compared
TIE = 1e-4  # scores that differ by no more are equal: either text may be the better one
BLEU = 0.5  # how much int8 may change it
BLOCK = 20  # sentences that are written together


class Pair(NamedTuple):
    """The tokens of a sentence, and its translation, where that is known."""

    source: list[int]
    reference: str | None = None


@runtime_checkable
class Translates(Protocol):
    """What a task tells of itself whose network writes translations."""

    special: Special
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    @property
    def cfg(self) -> Mapping[str, Any]: ...
    def encoded(self, source: Any) -> Sequence[Mapping[str, Any]]: ...


class CTranslate2(Exporter[Pair]):
    """A folder that `ctranslate2.Translator` opens, with the tokenizers of both sides beside the model."""

    name, precisions = "ctranslate2", ("float32", "int8")

    def __init__(self, task: object, network: nn.Module, precision: str) -> None:
        super().__init__(task, network, precision)
        if not isinstance(task, Translates):
            raise AlchemyError(f"CTranslate2 cannot hold a model of {type(task).__name__}", section="task")
        self.task, self.network = task, require_transformer(network)
        import_ctranslate2()

    @property
    def version(self) -> str:
        return str(import_ctranslate2().__version__)

    def digest(self) -> str:
        return digest(self.network, self.task.special)

    def samples(self, lines: str = "", references: str = "") -> list[Pair]:
        return self._of_lines(lines, references) if lines else self._of_split("dev")

    def _of_split(self, split: str) -> list[Pair]:
        section = f"task.datasets.{split}"
        table = (self.task.cfg.get("datasets") or {}).get(split)
        try:
            if table is None:
                raise AlchemyError("the config has no such split", section=section)
            data = build_datapipes(table.get("pipes"), section=section)
        except AlchemyError as error:
            message = f"there are no sentences to check the export on: {error.problem.message}"
            raise AlchemyError(message, section=section, hint="give some with --lines FILE") from error
        found = list(islice(data, LINES))
        if any("source" not in sample or "target" not in sample for sample in found):
            hint = "give some with --lines FILE and --references FILE"
            raise AlchemyError("its samples are no pairs of source and target", section=section, hint=hint)
        if isinstance(found[0]["source"], str):  # raw text, which the task encodes
            return self._encoded([(sample["source"], sample["target"]) for sample in found])
        decode = self.task.target_tokenizer.decode
        return [Pair(list(map(int, sample["source"])), decode(sample["target"])) for sample in found]

    def _of_lines(self, lines: str, references: str) -> list[Pair]:
        sources = [line for _, line in islice(read_lines(lines), LINES)]
        gold = [line for _, line in islice(read_lines(references), LINES)] if references else [None] * len(sources)
        if len(gold) != len(sources):
            hint = "a translation stands in the line of its sentence"
            raise AlchemyError(f"{lines} has {len(sources)} lines, and {references} {len(gold)}", hint=hint)
        return self._encoded([(line, reference) for line, reference in zip(sources, gold) if not is_blank(line)])

    def _encoded(self, asked: Sequence[tuple[str, str | None]]) -> list[Pair]:
        """Sentences as the task reads them, each with its translation, where there is one."""
        encoded = self.task.encoded([{"text": line} for line, _ in asked])
        return [Pair(list(map(int, encoded[place]["source"])), reference) for place, (_, reference) in enumerate(asked)]

    def write(self, folder: Path) -> None:
        spec = spec_of(self.network, self.task.special)
        spec.validate()
        spec.optimize(quantization=self.precision)
        spec.save(str(folder))
        self.task.source_tokenizer.save(folder / "source")
        self.task.target_tokenizer.save(folder / "target")

    def load(self, folder: Path, writer: TextGenerator | None = None, *, told: bool = False) -> Engine:
        """The export, which writes texts as `writer` does, or with the beam of the check."""
        if writer is None:
            beam = min(BEAM, widest(self.network.out.out_features))
            writer = TextGenerator(BeamSearch(beam=beam), self.task.special, Limits())
        return Engine(folder, self.network, writer, self.precision, told=told)

    def check(self, folder: Path, samples: Sequence[Pair], watch: Watch[Pair] = iter) -> Agreement:
        pairs = [pair for pair in samples if 0 < len(pair.source) <= places_of(self.network)]
        if not pairs:
            raise AlchemyError("there are no sentences to check the export on", hint="give some with --lines FILE")
        if self.precision == "int8" and any(pair.reference is None for pair in pairs):
            hint = "give translations of the sentences with --references FILE"
            raise AlchemyError("int8 is checked by its BLEU, and the sentences have no translations", hint=hint)
        engine, decode = self.load(folder), self.task.target_tokenizer.decode
        counts: Counter[str] = Counter()
        own, said = [], []
        for block in watch([pairs[start : start + BLOCK] for start in range(0, len(pairs), BLOCK)]):
            rows = pad_rows([pair.source for pair in block], engine.device)
            ours, theirs = [texts[0] for texts in engine.own(rows)], engine.found(rows)
            counts.update(map(_verdict, ours, theirs, engine.rated(tokens_of(rows), ours)))
            own += [decode(text.tokens) for text in ours]
            said += [decode(texts[0].tokens if texts else text.tokens) for text, texts in zip(ours, theirs)]
        found = Agreement(len(pairs), counts["same"], counts["tie"], counts["left"] + counts["unlike"])
        if self.precision == "int8":
            gold = [str(pair.reference) for pair in pairs]
            return _close(found._replace(bleu=bleu(gold, said), own_bleu=bleu(gold, own)))
        if counts["other"] or counts["unlike"]:
            raise _not_kept(f"CTranslate2 writes other texts than the model: {found}")
        return found


def _verdict(own: Hypothesis, found: Sequence[Hypothesis], rated: Hypothesis) -> str:
    """What becomes of a sentence: `rated` is our own text with the score that CTranslate2 gives it.

    >>> own, other = Hypothesis([5, 1], [], -0.5), Hypothesis([6, 1], [], -0.50001)
    >>> _verdict(own, [own], own), _verdict(own, [other], own), _verdict(own, [], own)
    ('same', 'tie', 'left')
    >>> _verdict(own, [own._replace(score=-0.6, tokens=[1])], own), _verdict(own, [], own._replace(score=-0.6))
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


def pad_rows(sources: Sequence[Sequence[int]], device: torch.device | None = None) -> Rows:
    ids_BT = pad_sequence([torch.tensor(row, dtype=torch.long) for row in sources], batch_first=True)
    lengths_B = torch.tensor(list(map(len, sources)))
    return Rows(ids_BT.to(device), real(lengths_B, ids_BT).to(device))
