"""Samples become a batch: lists of numpy arrays and numbers in, padded tensors out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alchemy.data.columns import Column, Kept, Padded
from alchemy.data.rows import LISTS, numbers_if_any, shown, stack
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable, build, construct


class CollateFn(Registrable):
    """Makes a batch of a list of samples; named in a config as `collate_fn = { type = "..." }`."""

    multiple = 1  # to which lengths are rounded up: a budget of tokens counts it

    def __call__(self, batch: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, batch)")


@CollateFn.register("Default")
class DefaultCollateFn(CollateFn):
    """Arrays and tensors of a field are padded with 0 and stacked; other fields become plain lists.

    It takes and ignores any keyword: existing projects hand it their whole table.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: self._stacked(name, values) for name, values in _columns(batch).items()}

    def _stacked(self, name: str, values: list[Any]) -> Any:
        if not any(isinstance(value, np.ndarray | Tensor) for value in values):
            return values
        arrays = numbers_if_any(name, values)
        return values if arrays is None else stack(arrays, name=name)


@CollateFn.register()
class Pad(CollateFn):
    """Numbers become a vector; lists and arrays of numbers are padded to the longest; the rest stays a list.

    `value` pads every field, `values` single ones: `{ type = "alchemy.data.collate.Pad", values = { labels = -100 } }`;
    without them the padding is what the `dataset`, which a loader hands over, answers as `padding()`, and else 0.
    `multiple` rounds lengths up, `left` puts the padding in front, and `lengths` names a field for the true lengths.
    Lists that are all empty in a batch tell nothing, and stay lists unless the config or the dataset says how to pad.
    `fields` tells more about single ones: a table of `alchemy.data.columns.Padded`, or of the column that it names.
    """

    def __init__(
        self,
        *,
        value: float | None = None,
        values: dict[str, float] | None = None,
        multiple: int = 1,
        left: bool = False,
        lengths: str = "",
        fields: dict[str, dict[str, Any]] | None = None,
        dataset: Any = None,
    ) -> None:
        super().__init__()
        told = getattr(dataset, "padding", None)
        self.padding = told() if callable(told) and value is None else {}
        self.common: dict[str, Any] = {"value": 0 if value is None else value, "multiple": multiple, "left": left}
        self.lengths = lengths
        tables = _merged(values or {}, fields or {})
        self.fields = {name: self._column(name, table) for name, table in tables.items()}
        self.multiple = Padded(**self.common).multiple  # of fields that say nothing else

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _columns(batch)
        absent = [name for name in self.fields if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns) or f"they have {', '.join(map(str, columns))}"
            raise AlchemyError(f"Pad: the samples have no field {absent[0]!r}", hint=hint)
        out: dict[str, Any] = {}
        rows: dict[str, Tensor] = {}
        for name, values in columns.items():
            column, values = self._column_of(name, values)
            made = column(name, values)
            _check_new(made.keys() - {name}, [*columns, *out], f"made of {name!r}")
            out |= made
            if self.lengths and isinstance(column, Padded) and made[name].dim() > 1:
                lengths = torch.tensor([len(value) for value in values])
                rows[name] = lengths.clamp(max=made[name].shape[1])  # of rows that are cut
        further = {self.lengths: self._lengths(rows)} if rows else {}
        _check_new(further, out, "which `lengths` names")
        return out | further

    def _lengths(self, rows: dict[str, Tensor]) -> Tensor:
        """Those of the first field of which somebody said how it is padded, else of the first that is not empty."""
        told = [name for name in rows if name in self.fields or name in self.padding]
        return rows[[*told, *(name for name in rows if rows[name].any()), *rows][0]]

    def _column_of(self, name: str, values: list[Any]) -> tuple[Column, list[Any]]:
        """How a field is collated, and its values, as arrays if they are numbers."""
        if name in self.fields:
            return self.fields[name], values
        if name not in self.padding and all(isinstance(value, LISTS) and not value for value in values):
            return Kept(), values  # they may be lists of texts as well
        arrays = numbers_if_any(name, values)
        return (Kept(), values) if arrays is None else (Padded(**self._common(name)), arrays)

    def _column(self, name: str, table: Any) -> Column:
        """The column of a table, which need not say what holds for all."""
        if isinstance(table, Column):
            return table
        if "type" in table:
            return build(Column, table, section=f"collate_fn.fields.{name}")
        return construct(Padded, {**self._common(name), **table}, section=f"collate_fn.fields.{name}")

    def _common(self, name: str) -> dict[str, Any]:
        return self.common | ({"value": self.padding[name]} if name in self.padding else {})


def _merged(values: Mapping[str, float], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of single fields: `values` is the short way to write the `value` of some of them."""
    tables: dict[str, Any] = {name: {"value": value} for name, value in values.items()}
    for name, table in fields.items():
        if not isinstance(table, Mapping | Column):
            raise AlchemyError(f"Pad: fields.{name} must be a table, not {table!r}")
        if name in values and (isinstance(table, Column) or table.keys() & {"type", "value"}):
            hint = f"say it in fields.{name} alone"
            raise AlchemyError(f"Pad: values and fields.{name} both say how {name!r} is padded", hint=hint)
        tables[name] = table if isinstance(table, Column) else {**tables.get(name, {}), **table}
    return tables


def _check_new(names: Iterable[str], taken: Collection[str], whence: str) -> None:
    """No field takes the place of another."""
    twice = [name for name in names if name in taken]
    if twice:
        raise AlchemyError(f"Pad: the batch would have two fields {twice[0]!r}, one of them {whence}", hint="rename it")


def _columns(batch: Any) -> dict[str, list[Any]]:
    """The samples of a batch by field; every sample must have the fields of the first."""
    if not isinstance(batch, list | tuple) or not batch:
        hint = "put alchemy.pipeline.itr.Batch at the end of the pipes, or give batch_size"
        raise AlchemyError(f"collate expects a list of samples that are dicts, not {shown(batch)}", hint=hint)
    for number, sample in enumerate(batch):
        if not isinstance(sample, Mapping):
            hint = "make dicts of them in a pipe before, or name a collate_fn of your own"
            raise AlchemyError(f"collate expects samples that are dicts; sample {number} is {shown(sample)}", hint=hint)
    names = list(batch[0])
    for number, sample in enumerate(batch):
        if sample.keys() != batch[0].keys():
            odd = sorted(set(sample) ^ set(names), key=str)
            hint = "give every sample the same fields in a pipe before"
            raise AlchemyError(f"sample {number} of a batch differs from the first in the fields {odd}", hint=hint)
    return {name: [sample[name] for sample in batch] for name in names}
