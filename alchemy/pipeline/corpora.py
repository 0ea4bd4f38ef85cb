"""Corpora of `alchemy data build` as sources of a chain of pipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from alchemy.constraints import NotEmpty, PositiveInt
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.sentences import Sentences
from alchemy.data.pipe_chain import Link
from alchemy.data.token_budget import Truncatable
from alchemy.errors import AlchemyError
from alchemy.files import hash_text
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.tokenizers import keep_tokenizer

__all__ = ["Mapped", "Parallel"]


class Sides(Truncatable, Link):
    """Sentences side by side; a loader that asks for a batch of them gets padded rows at once."""

    corpora: Mapping[str, Sentences]
    left: Sequence[str] = ()  # sides that are padded on the left
    pads: Mapping[str, int]

    def __len__(self) -> int:
        return len(next(iter(self.corpora.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        # int64, as in a batch: small numbers would be taken for masks by whoever indexes with them
        cut = self.limits.get
        return {name: corpus.padded([index], limit=cut(name))[0][0] for name, corpus in self.corpora.items()}

    def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
        """Nothing is read sentence by sentence: `collate` reads all of a batch in one go."""
        # plain numbers: those of the loader seed the random numbers of each sample, and nobody draws any here
        return list.copy(indices) if isinstance(indices, list) else indices

    def lengths(self) -> dict[str, np.ndarray]:
        return {name: corpus.lengths for name, corpus in self.corpora.items()}

    def collate(self, indices: Sequence[int]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for name, corpus in self.corpora.items():
            rows, lengths = corpus.padded(
                indices,
                pad=self.pads[name],
                left=name in self.left,
                multiple=self.multiple,
                limit=self.limits.get(name),
            )
            batch[name], batch[f"{name}_lengths"] = torch.from_numpy(rows), torch.from_numpy(lengths)
            if name in self.left:  # else the lengths tell where the tokens are
                batch[f"{name}_mask"] = torch.from_numpy(np.arange(rows.shape[1]) >= rows.shape[1] - lengths[:, None])
        return batch

    def shifted(self, batch: Mapping[str, Tensor], eos: int) -> Tensor:
        """What a decoder is given to predict the target: the target moved by one, the end of a sentence in front."""
        before = batch["target"].roll(1, dims=1)
        before[:, :1] = eos
        # behind the last token that is predicted there is nothing to give
        before[torch.arange(before.shape[1]) >= batch["target_lengths"][:, None]] = self.pads["target"]
        return before


class _Source(Sides):
    """Sides that are corpora."""

    begins: ClassVar[bool] = True
    corpora: Mapping[str, Corpus]

    def open(self, corpora: dict[str, Corpus], *, left: Sequence[str], multiple: int, pad: int | None) -> None:
        """What a constructor does with its arguments."""
        self.corpora, self.left, self.multiple = corpora, left, multiple
        own = {name: corpus.manifest.pad if pad is None else pad for name, corpus in corpora.items()}
        lacking = [str(corpora[name].path) for name, value in own.items() if value is None]
        if lacking:
            hint = "say what rows are filled up with: pad = 0, if the model looks at the lengths"
            raise AlchemyError(f"the tokenizer of {lacking[0]} has no token for padding", hint=hint)
        self.pads = {name: int(value) for name, value in own.items() if value is not None}
        self.digest = hash_text(" ".join(corpus.manifest.digest for corpus in corpora.values()))
        for name, corpus in corpora.items():
            tokenizer = corpus.tokenizer
            if tokenizer is not None:
                keep_tokenizer(tokenizer, name, str(corpus.path))

    def where(self, index: int) -> str:
        """File and line that a sample was made of."""
        return next(iter(self.corpora.values())).where(index)


@DataPipeline.register()
class Mapped(_Source, LstDataPipeline):
    """The sentences of one corpus: `field`, rows padded on the right, or with `left` in front, and `field_lengths`."""

    def __init__(
        self,
        path: str,
        *,
        field: Annotated[str, NotEmpty()] = "ids",
        left: bool = False,
        multiple: PositiveInt = 1,
        pad: int | None = None,
    ) -> None:
        super().__init__()
        self.open({field: Corpus(path)}, left=(field,) if left else (), multiple=multiple, pad=pad)


@DataPipeline.register()
class Parallel(_Source, LstDataPipeline):
    """Two corpora, sentence by sentence: `source`, `target`, their lengths, and what a decoder is given to predict it.

    `prev_output_tokens` is the target moved by one, with the end of the sentence before in front.
    """

    def __init__(
        self, source: str, target: str, *, left_source: bool = False, multiple: PositiveInt = 1, pad: int | None = None
    ) -> None:
        corpora = {"source": Corpus(source), "target": Corpus(target)}
        super().__init__()
        self.open(corpora, left=("source",) if left_source else (), multiple=multiple, pad=pad)
        one, other = map(len, corpora.values())
        if one != other:
            raise AlchemyError(
                f"{source} has {one:,} sentences, and {target} {other:,}", hint="build both sides together"
            )
        eos = corpora["target"].manifest.eos
        if eos is None or not corpora["target"].has_ends:
            hint = "build it without --no-eos: a model learns from it where to stop"
            raise AlchemyError(f"the sentences of {target} have no token for their end", hint=hint)
        self.eos = eos

    def collate(self, indices: Sequence[int]) -> dict[str, Any]:
        batch = super().collate(indices)
        batch["prev_output_tokens"] = self.shifted(batch, self.eos)
        return batch
