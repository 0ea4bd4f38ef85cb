"""Map-style pipes: indexable data, in memory or computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from loguru import logger

from alchemy.constraints import Ge, Gt, Lt, NonNegativeInt, NotEmpty, PositiveInt
from alchemy.data.pipe_chain import has_index, title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before, where_in
from alchemy.pipeline.itr import field_of, function_of, length_of, map_sample

__all__ = ["Filter", "HoldOut", "ItrToLst", "Map", "SequenceWrapper", "Take"]


@DataPipeline.register()
class SequenceWrapper(LstDataPipeline):
    """A source pipe over a list, usually of file names."""

    def __init__(self, datapipe: Annotated[Sequence[Any], NotEmpty()]) -> None:
        super().__init__(datapipe)

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class ItrToLst(LstDataPipeline):
    """Reads a stream once, when it is built, and keeps its samples in memory; fast for small data and many epochs.

    Set `is_sized` if the stream has a length; a warning is logged if the length is wrong.
    """

    keeps = True

    def __init__(self, datapipe: object, is_sized: bool = False) -> None:
        super().__init__(datapipe)
        self.is_sized = is_sized
        stated = length_of(self) if is_sized else None
        self.samples = list(self.datapipe)
        if not self.samples:
            hint = "is the file empty, or is a filter too strict?"
            raise AlchemyError(f"ItrToLst: {title(datapipe)} yields no samples", hint=hint)
        if stated is not None and stated != len(self.samples):
            logger.warning("{} has a length of {} samples but yielded {}", title(datapipe), stated, len(self.samples))

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)


@DataPipeline.register()
class Map(LstDataPipeline):
    """Applies `fn(sample, **args)` each time a sample is read; `field` and `to` work as in `itr.Map`."""

    maps = True
    where = where_before

    def __init__(
        self, datapipe: object, fn: object, *, args: dict[str, Any] | None = None, field: str = "", to: str = ""
    ) -> None:
        super().__init__(check_list(datapipe, "Map"))
        self.fn, self.args, self.field, self.to = function_of(fn, args, "Map"), args or {}, field, to

    def __getitem__(self, index: int) -> Any:
        return map_sample(self, self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class Filter(LstDataPipeline):
    """Keeps the samples for which `fn` is true, evaluated once when the pipe is built."""

    keeps = True

    def __init__(self, datapipe: object, fn: object, *, args: dict[str, Any] | None = None, field: str = "") -> None:
        super().__init__(check_list(datapipe, "Filter"))
        self.fn, self.args, self.field = function_of(fn, args, "Filter"), args or {}, field
        samples = enumerate(map(self.datapipe.__getitem__, range(len(self.datapipe))))
        self.kept = [index for index, sample in samples if self.fn(field_of(sample, field, self) if field else sample)]
        if not self.kept:
            raise AlchemyError(f"Filter keeps none of {len(self.datapipe)} samples", hint="check its fn")

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[self.kept[index]]

    def where(self, index: int) -> str:
        return where_in(self.datapipe, int(self.kept[index]))

    def __len__(self) -> int:
        return len(self.kept)


@DataPipeline.register()
class Take(LstDataPipeline):
    """Keeps the first `n` samples."""

    keeps = True
    where = where_before

    def __init__(self, datapipe: object, n: PositiveInt) -> None:
        super().__init__(check_list(datapipe, "Take"))
        self.n = n

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.datapipe[index % len(self)]

    def __len__(self) -> int:
        return min(self.n, len(self.datapipe))


@DataPipeline.register()
class HoldOut(LstDataPipeline):
    """Drops a random `share` of the samples, drawn with `seed`; with `held`, keeps only that share, in data order.

    To split one file into training and development data, use two chains with the same share and seed, one of them
    with `held`. For a third split, set `skip` to the share of the second: `share = 0.3` for training,
    `share = 0.1, held = true` for development, `share = 0.2, skip = 0.1, held = true` for testing.
    `by` names a field whose values are never divided: samples with the same value are in the same split, and the share
    is a share of the distinct values.
    """

    keeps = True

    def __init__(
        self,
        datapipe: object,
        *,
        share: Annotated[float, Gt(0), Lt(1)] = 0.1,
        held: bool = False,
        seed: NonNegativeInt = 0,
        skip: Annotated[float, Ge(0), Lt(1)] = 0.0,
        by: str = "",
    ) -> None:
        super().__init__(check_list(datapipe, "HoldOut"))
        self.share, self.held, self.seed, self.skip, self.by = share, held, seed, skip, by
        groups = self._groups()
        count = len(set(groups))
        begin, end = round(count * skip), round(count * round(skip + share, 9))
        if not begin < end <= count or end - begin == count:
            hint = "choose a share that leaves samples in both splits"
            after = f" after skipping {begin}" if skip else ""
            what = f"values of {by!r}" if by else "samples"
            raise AlchemyError(f"HoldOut: share = {share} selects {end - begin} of {count} {what}{after}", hint=hint)
        places = np.random.Generator(np.random.PCG64(seed)).permutation(count)[groups]
        self.kept = np.flatnonzero(((begin <= places) & (places < end)) == held)

    def _groups(self) -> Sequence[int]:
        """Return the number of the group of each sample; without `by`, each sample is a group."""
        if not self.by:
            return range(len(self.datapipe))
        numbers: dict[Any, int] = {}
        values = (field_of(self.datapipe[index], self.by, self) for index in range(len(self.datapipe)))
        return [numbers.setdefault(value, len(numbers)) for value in values]

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[int(self.kept[index])]

    def where(self, index: int) -> str:
        return where_in(self.datapipe, int(self.kept[index]))

    def __len__(self) -> int:
        return len(self.kept)


def check_list(datapipe: object, what: str) -> Sequence[Any]:
    if not has_index(datapipe):
        raise AlchemyError(
            f"lst.{what} needs indexable data, got the stream {title(datapipe)}",
            hint=f"put alchemy.pipeline.lst.ItrToLst before it, or use alchemy.pipeline.itr.{what}",
        )
    return datapipe
