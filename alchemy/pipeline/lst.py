"""Pipes over lists: data with an index, held in memory or computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.data.chain import title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before, where_in
from alchemy.pipeline.itr import at_least, field_of, function_of, length_of, mapped

__all__ = ["Filter", "HoldOut", "ItrToLst", "Map", "SequenceWrapper", "Take"]


@DataPipeline.register()
class SequenceWrapper(LstDataPipeline):
    """A list of the config, or of Python, as a source: names of files, mostly."""

    def __init__(self, datapipe: list[Any]) -> None:
        super().__init__(datapipe)
        is_list = hasattr(datapipe, "__getitem__") and hasattr(datapipe, "__len__")
        if isinstance(datapipe, str | bytes) or not is_list:
            hint = 'write datapipe = ["train.jsonl"]'
            raise AlchemyError(f"SequenceWrapper needs a list, not {datapipe!r}", hint=hint)
        if len(datapipe) == 0:
            raise AlchemyError("SequenceWrapper was given an empty list", hint="name at least one file")

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class ItrToLst(LstDataPipeline):
    """Reads a stream once, when it is built, and keeps it as a list: quick where data is small and epochs are many.

    With `is_sized` the stream states its length, and a warning tells when it was wrong.
    """

    keeps = True

    def __init__(self, datapipe: Any, is_sized: bool = False) -> None:
        super().__init__(datapipe)
        self.is_sized = is_sized
        stated = length_of(self) if is_sized else None
        self.samples = list(datapipe)
        if not self.samples:
            hint = "is the file empty, or a filter too strict?"
            raise AlchemyError(f"ItrToLst: {title(datapipe)} yields nothing", hint=hint)
        if stated is not None and stated != len(self.samples):
            logger.warning("{} states {} samples and gave {}", title(datapipe), stated, len(self.samples))

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)


@DataPipeline.register()
class Map(LstDataPipeline):
    """`fn(sample, **args)`, computed whenever a sample is asked for; `field` and `to` as in `itr.Map`."""

    maps = True
    where = where_before

    def __init__(
        self, datapipe: Any, fn: Any, *, args: dict[str, Any] | None = None, field: str = "", to: str = ""
    ) -> None:
        super().__init__(check_list(datapipe, "Map"))
        self.fn, self.args, self.field, self.to = function_of(fn, args, "Map"), args or {}, field, to

    def __getitem__(self, index: int) -> Any:
        return mapped(self, self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class Filter(LstDataPipeline):
    """The samples for which `fn` holds, decided when it is built."""

    keeps = True

    def __init__(self, datapipe: Any, fn: Any, *, args: dict[str, Any] | None = None, field: str = "") -> None:
        super().__init__(check_list(datapipe, "Filter"))
        self.fn, self.args, self.field = function_of(fn, args, "Filter"), args or {}, field
        samples = ((index, datapipe[index]) for index in range(len(datapipe)))
        self.kept = [index for index, sample in samples if self.fn(field_of(sample, field, self) if field else sample)]
        if not self.kept:
            raise AlchemyError(f"Filter keeps none of {len(datapipe)} samples", hint="look at its fn")

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[self.kept[index]]

    def where(self, index: int) -> str:
        return where_in(self.datapipe, int(self.kept[index]))

    def __len__(self) -> int:
        return len(self.kept)


@DataPipeline.register()
class Take(LstDataPipeline):
    """The first `n` samples."""

    keeps = True
    where = where_before

    def __init__(self, datapipe: Any, n: int) -> None:
        super().__init__(check_list(datapipe, "Take"))
        self.n = at_least(1, n, "Take: n")

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.datapipe[index % len(self)]

    def __len__(self) -> int:
        return min(self.n, len(self.datapipe))


@DataPipeline.register()
class HoldOut(LstDataPipeline):
    """All samples but a `share` that is drawn by `seed`; with `held` those of that share, in the order of the data.

    So that one file serves for training and for development: two chains of the same share and seed, one with `held`.
    """

    keeps = True

    def __init__(self, datapipe: Any, *, share: float = 0.1, held: bool = False, seed: int = 0) -> None:
        super().__init__(check_list(datapipe, "HoldOut"))
        self.share, self.held, self.seed = share, held, seed
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise AlchemyError(f"HoldOut: share must be a number between 0 and 1, not {share!r}")
        count = len(datapipe)
        size = round(count * share) if 0 < share < 1 else 0
        if not 0 < size < count:
            hint = "share is a number between 0 and 1 that leaves some on both sides"
            raise AlchemyError(f"HoldOut: a share of {share} of {count} samples is {size}", hint=hint)
        drawn = np.random.Generator(np.random.PCG64(at_least(0, seed, "HoldOut: seed"))).permutation(count) < size
        self.kept = np.flatnonzero(drawn == held)

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[int(self.kept[index])]

    def where(self, index: int) -> str:
        return where_in(self.datapipe, int(self.kept[index]))

    def __len__(self) -> int:
        return len(self.kept)


def check_list(datapipe: Any, what: str) -> Sequence[Any]:
    if isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__"):
        raise AlchemyError(
            f"lst.{what} needs data with an index, not {title(datapipe)}",
            hint=f"put alchemy.pipeline.lst.ItrToLst before it, or use alchemy.pipeline.itr.{what}",
        )
    return datapipe
