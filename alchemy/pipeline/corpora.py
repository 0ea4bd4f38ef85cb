"""Source pipes that read the corpora built by `alchemy data build`."""

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
    """Aligned sentences from one or more corpora; the padded rows of a batch are read in a single operation."""

    corpora: Mapping[str, Sentences]
    left: Sequence[str] = ()  # fields that are padded on the left
    pads: Mapping[str, int]

    def __len__(self) -> int:
        return len(next(iter(self.corpora.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        # int64, as in a batch: torch treats uint8 indices as masks
        cut = self.limits.get
        return {name: corpus.padded([index], limit=cut(name))[0][0] for name, corpus in self.corpora.items()}

    def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
        """Return the indices themselves: `collate` reads the whole batch at once."""
        # plain integers: iterating over the loader's list would seed the random generators for each sample
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
            if name in self.left:  # with padding on the right, the lengths are enough
                batch[f"{name}_mask"] = torch.from_numpy(np.arange(rows.shape[1]) >= rows.shape[1] - lengths[:, None])
        return batch

    def shifted(self, batch: Mapping[str, Tensor], eos: int) -> Tensor:
        """Return the decoder input: the target shifted right by one, starting with `eos`."""
        before = batch["target"].roll(1, dims=1)
        before[:, :1] = eos
        # positions after the last predicted token are padding
        before[torch.arange(before.shape[1]) >= batch["target_lengths"][:, None]] = self.pads["target"]
        return before


class _Source(Sides):
    """Base class for pipes that read fields from corpora on disk."""

    begins: ClassVar[bool] = True
    corpora: Mapping[str, Corpus]

    def open(self, corpora: dict[str, Corpus], *, left: Sequence[str], multiple: int, pad: int | None) -> None:
        """Set up the corpora, padding and tokenizers; called by the constructors."""
        self.corpora, self.left, self.multiple = corpora, left, multiple
        own = {name: corpus.manifest.pad if pad is None else pad for name, corpus in corpora.items()}
        lacking = [str(corpora[name].path) for name, value in own.items() if value is None]
        if lacking:
            hint = "set the padding id, for example pad = 0 if the model uses the lengths"
            raise AlchemyError(f"the tokenizer of {lacking[0]} has no padding token", hint=hint)
        self.pads = {name: int(value) for name, value in own.items() if value is not None}
        self.digest = hash_text(" ".join(corpus.manifest.digest for corpus in corpora.values()))
        for name, corpus in corpora.items():
            tokenizer = corpus.tokenizer
            if tokenizer is not None:
                keep_tokenizer(tokenizer, name, str(corpus.path))

    def where(self, index: int) -> str:
        """Return the source file and line of a sample."""
        return next(iter(self.corpora.values())).where(index)


@DataPipeline.register()
class Mapped(_Source, LstDataPipeline):
    """The sentences of one corpus as `field`, padded on the right (or left, with `left`), and `field_lengths`."""

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
    """Two aligned corpora: `source`, `target`, their lengths, and the decoder input.

    `prev_output_tokens`, the decoder input, is the target shifted right by one, starting with the EOS token.
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
                f"{source} has {one:,} sentences, but {target} has {other:,}", hint="build both corpora together"
            )
        eos = corpora["target"].manifest.eos
        if eos is None or not corpora["target"].has_ends:
            hint = "build it without --no-eos: the model needs the EOS token to learn where to stop"
            raise AlchemyError(f"the sentences of {target} do not end with an EOS token", hint=hint)
        self.eos = eos

    def collate(self, indices: Sequence[int]) -> dict[str, Any]:
        batch = super().collate(indices)
        batch["prev_output_tokens"] = self.shifted(batch, self.eos)
        return batch
