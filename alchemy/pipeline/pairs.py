"""Tokenize raw text pairs for translation, in the same form as a built corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from alchemy.data.corpus.sentences import InMemory
from alchemy.data.pipe_chain import Link, read_all, title
from alchemy.errors import AlchemyError
from alchemy.files import hash_text
from alchemy.pipeline import LstDataPipeline, where_before, where_in
from alchemy.pipeline.corpora import Sides
from alchemy.pipeline.processors.samples import in_short
from alchemy.pipeline.tokenizers import tokenizer_digest
from alchemy.text import Tokenizer

SIDES = ("source", "target")


class EncodePairs(Link, Dataset[Any]):
    """Tokenizes the `source` and `target` fields and appends EOS to each; the target may be missing."""

    where = where_before

    def __init__(self, datapipe: object, *, source: Tokenizer, target: Tokenizer) -> None:
        self.datapipe = datapipe
        self.tokenizers = dict(zip(SIDES, (source, target)))
        self.digest = hash_text(" ".join(map(tokenizer_digest, self.tokenizers.values())))

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        sample = self.datapipe[index]
        texts = {side: text_of(sample, side, self.datapipe, index) for side in SIDES if side in sample}
        return {side: self._ids(self.tokenizers[side], text) for side, text in texts.items()}

    def __len__(self) -> int:
        return len(self.datapipe)

    @staticmethod
    def _ids(tokenizer: Tokenizer, text: str) -> np.ndarray:
        end = [] if tokenizer.eos is None else [tokenizer.eos]
        return np.array([*tokenizer.encode(text), *end], np.int32)


class EncodedPairs(Sides, Dataset[Any]):
    """In-memory rows from EncodePairs or its cache; batches have the same format as in corpora.Parallel.

    With `texts`, a batch also contains the raw texts as `source_text` and `target_text`.
    """

    where = where_before

    def __init__(self, datapipe: Any, *, tokenizers: Mapping[str, Tokenizer], texts: LstDataPipeline | None) -> None:
        self.datapipe = datapipe
        rows = list(read_all(datapipe))
        self.ends = {side: tokenizers[side].eos for side in rows[0]}
        sides = {side: InMemory([row[side] for row in rows], end) for side, end in self.ends.items()}
        self.corpora = sides
        self.pads = {side: tokenizers[side].pad or 0 for side in rows[0]}
        self.texts = texts
        self.digest = hash_text(" ".join(corpus.digest for corpus in sides.values()))

    def collate(self, indices: Sequence[int]) -> dict[str, Any]:
        batch = super().collate(indices)
        if (eos := self.ends.get("target")) is not None:
            batch["prev_output_tokens"] = self.shifted(batch, eos)
        if self.texts is not None:
            samples = [self.texts[index] for index in indices]
            batch |= {f"{side}_text": [sample[side] for sample in samples] for side in self.corpora}
        return batch


def text_of(sample: object, side: str, data: object, index: int) -> str:
    """Return the source or target text of a sample; raise an error with file and line if it is missing."""
    text = sample.get(side) if isinstance(sample, Mapping) else None
    if isinstance(text, str):
        return text
    there = in_short(map(str, sample)) if isinstance(sample, Mapping) else f"a {type(sample).__name__}"
    got = f"the {side} is {repr(text)[:60]}" if text is not None else f"has no field {side!r}, only {there}"
    hint = "samples need the fields 'source' and 'target', for example from alchemy.pipeline.processors.ParallelText"
    raise AlchemyError(f"{title(data)}: {got}", where=where_in(data, index), hint=hint)
