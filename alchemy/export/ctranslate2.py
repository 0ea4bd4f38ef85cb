"""Export translation Transformers to CTranslate2, and check the text that the export generates."""

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
from alchemy.export.ctranslate2_engine import Engine, max_beam, token_names
from alchemy.export.ctranslate2_spec import build_spec, digest, import_ctranslate2, max_positions, require_transformer
from alchemy.export.exporter import Agreement, Exporter, Watch
from alchemy.generate import BeamSearch, Hypothesis, Limits, Special, TextGenerator
from alchemy.metrics.bleu_chrf import bleu
from alchemy.models.translator import real
from alchemy.nn.sequences import Rows
from alchemy.pipeline import build_datapipes
from alchemy.text import Tokenizer

LINES = 200  # sentences in the check
BEAM = 5  # beam size of the check
TIE = 1e-4  # maximum difference between scores that are considered equal
BLEU = 0.5  # maximum change in BLEU with int8
BLOCK = 20  # sentences per batch


class Pair(NamedTuple):
    """The tokens of a sentence, and its translation if known."""

    source: list[int]
    reference: str | None = None


@runtime_checkable
class TranslationTask(Protocol):
    """Interface for translation tasks."""

    special: Special
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    @property
    def cfg(self) -> Mapping[str, Any]: ...
    def encoded(self, source: Any) -> Sequence[Mapping[str, Any]]: ...


class CTranslate2(Exporter[Pair]):
    """Exporter for `ctranslate2.Translator`; the folder also contains the tokenizers of both sides."""

    name, precisions = "ctranslate2", ("float32", "int8")

    def __init__(self, task: object, network: nn.Module, precision: str) -> None:
        super().__init__(task, network, precision)
        if not isinstance(task, TranslationTask):
            raise AlchemyError(f"CTranslate2 does not support models of {type(task).__name__}", section="task")
        self.task, self.network = task, require_transformer(network)
        import_ctranslate2()

    @property
    def version(self) -> str:
        return str(import_ctranslate2().__version__)

    def digest(self) -> str:
        return digest(self.network, self.task.special)

    def samples(self, lines: str = "", references: str = "") -> list[Pair]:
        return self._read_lines(lines, references) if lines else self._read_split("dev")

    def _read_split(self, split: str) -> list[Pair]:
        section = f"task.datasets.{split}"
        table = (self.task.cfg.get("datasets") or {}).get(split)
        try:
            if table is None:
                raise AlchemyError("the config has no such split", section=section)
            data = build_datapipes(table.get("pipes"), section=section)
        except AlchemyError as error:
            message = f"there are no sentences to check the export on: {error.problem.message}"
            raise AlchemyError(message, section=section, hint="provide some with --lines FILE") from error
        samples = list(islice(data, LINES))
        if any("source" not in sample or "target" not in sample for sample in samples):
            hint = "provide some with --lines FILE and --references FILE"
            raise AlchemyError("the samples are not pairs of source and target", section=section, hint=hint)
        if isinstance(samples[0]["source"], str):  # raw text, which the task encodes
            return self._encode([(sample["source"], sample["target"]) for sample in samples])
        decode = self.task.target_tokenizer.decode
        return [Pair(list(map(int, sample["source"])), decode(sample["target"])) for sample in samples]

    def _read_lines(self, lines: str, references: str) -> list[Pair]:
        sources = [line for _, line in islice(read_lines(lines), LINES)]
        gold = [line for _, line in islice(read_lines(references), LINES)] if references else [None] * len(sources)
        if len(gold) != len(sources):
            hint = "write each translation on the same line as its sentence"
            raise AlchemyError(f"{lines} has {len(sources)} lines, but {references} has {len(gold)}", hint=hint)
        return self._encode([(line, reference) for line, reference in zip(sources, gold) if not is_blank(line)])

    def _encode(self, pairs: Sequence[tuple[str, str | None]]) -> list[Pair]:
        """Encode sentences with the task, and pair them with their translations."""
        encoded = self.task.encoded([{"text": line} for line, _ in pairs])
        return [Pair(list(map(int, encoded[place]["source"])), reference) for place, (_, reference) in enumerate(pairs)]

    def write(self, folder: Path) -> None:
        spec = build_spec(self.network, self.task.special)
        spec.validate()
        spec.optimize(quantization=self.precision)
        spec.save(str(folder))
        self.task.source_tokenizer.save(folder / "source")
        self.task.target_tokenizer.save(folder / "target")

    def load(self, folder: Path, writer: TextGenerator | None = None, *, rescore: bool = False) -> Engine:
        """Load the export as an engine that generates the same text as `writer` (default: the check's generator)."""
        if writer is None:
            beam = min(BEAM, max_beam(self.network.out.out_features))
            writer = TextGenerator(BeamSearch(beam=beam), self.task.special, Limits())
        return Engine(folder, self.network, writer, self.precision, rescore=rescore)

    def check(self, folder: Path, samples: Sequence[Pair], watch: Watch[Pair] = iter) -> Agreement:
        pairs = [pair for pair in samples if 0 < len(pair.source) <= max_positions(self.network)]
        if not pairs:
            raise AlchemyError("there are no sentences to check the export on", hint="provide some with --lines FILE")
        if self.precision == "int8" and any(pair.reference is None for pair in pairs):
            hint = "provide them with --references FILE"
            raise AlchemyError("int8 is checked by its BLEU score, which requires reference translations", hint=hint)
        engine, decode = self.load(folder), self.task.target_tokenizer.decode
        counts: Counter[str] = Counter()
        own, exported = [], []
        for block in watch([pairs[start : start + BLOCK] for start in range(0, len(pairs), BLOCK)]):
            rows = pad_rows([pair.source for pair in block], engine.device)
            ours, theirs = [texts[0] for texts in engine.generate(rows)], engine.translate(rows)
            counts.update(map(_compare, ours, theirs, engine.score(token_names(rows), ours)))
            own += [decode(text.tokens) for text in ours]
            exported += [decode(texts[0].tokens if texts else text.tokens) for text, texts in zip(ours, theirs)]
        agreement = Agreement(len(pairs), counts["same"], counts["tie"], counts["left"] + counts["unlike"])
        if self.precision == "int8":
            gold = [str(pair.reference) for pair in pairs]
            return _check_bleu(agreement._replace(bleu=bleu(gold, exported), own_bleu=bleu(gold, own)))
        if counts["other"] or counts["unlike"]:
            raise _discarded(f"CTranslate2 and the model generate different texts: {agreement}")
        return agreement


def _compare(own: Hypothesis, found: Sequence[Hypothesis], rated: Hypothesis) -> str:
    """Compare the results for a sentence; `rated` is our own output with its CTranslate2 score.

    >>> own, other = Hypothesis([5, 1], [], -0.5), Hypothesis([6, 1], [], -0.50001)
    >>> _compare(own, [own], own), _compare(own, [other], own), _compare(own, [], own)
    ('same', 'tie', 'left')
    >>> _compare(own, [own._replace(score=-0.6, tokens=[1])], own), _compare(own, [], own._replace(score=-0.6))
    ('other', 'unlike')
    """
    if found and found[0].tokens == own.tokens:
        return "same"
    same = abs([*found, rated][0].score - own.score) <= TIE
    return ("tie" if same else "other") if found else ("left" if same else "unlike")


def _check_bleu(agreement: Agreement) -> Agreement:
    assert agreement.bleu is not None and agreement.own_bleu is not None
    if abs(agreement.bleu - agreement.own_bleu) > BLEU:
        raise _discarded(f"the BLEU score with int8 differs by more than {BLEU} from the model's: {agreement}")
    return agreement


def _discarded(message: str) -> AlchemyError:
    return AlchemyError(message, hint="the export was discarded; use --engine torch instead")


def pad_rows(sources: Sequence[Sequence[int]], device: torch.device | None = None) -> Rows:
    """Return a padded batch of token ids."""
    ids_BT = pad_sequence([torch.tensor(row, dtype=torch.long) for row in sources], batch_first=True)
    lengths_B = torch.tensor(list(map(len, sources)))
    return Rows(ids_BT.to(device), real(lengths_B, ids_BT).to(device))
