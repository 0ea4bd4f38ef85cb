"""Samples become a batch: lists of numpy arrays and numbers in, padded tensors out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alchemy.constraints import PositiveInt
from alchemy.data.columns import Column, Padded
from alchemy.data.padding import LISTS, join_rows, value_text
from alchemy.data.pipe_chain import link_of
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable, build, construct


class CollateFn(Registrable):
    """Makes a batch of a list of samples; named in a config as `collate_fn = { type = "..." }`."""

    multiple = 1  # to which lengths are rounded up: a budget of tokens counts it

    def __call__(self, batch: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, batch)")

    def multiple_of(self, field: str) -> int:
        """The same of a single field."""
        return self.multiple


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
        if not any(issubclass(kind, np.ndarray | Tensor) for kind in set(map(type, values))):
            return values
        rows = join_rows(name, values)
        return values if rows is None else rows.pad(name=name)

    @staticmethod
    def padded_stack_tensor(tensors: Sequence[Tensor], padding: float = 0) -> Tensor:
        """Tensors of one rank as one tensor, each filled up with `padding` to the largest size."""
        shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
        return torch.stack([DefaultCollateFn.extend_tensor(tensor, shape, padding) for tensor in tensors])

    @staticmethod
    def extend_tensor(tensor: Tensor, extended_shape: Sequence[int], fill: float = 0) -> Tensor:
        """A tensor of `extended_shape` that begins with `tensor`; the rest is `fill`."""
        extended = tensor.new_full(tuple(extended_shape), fill)
        extended[tuple(map(slice, tensor.shape))] = tensor
        return extended


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
        multiple: PositiveInt = 1,
        left: bool = False,
        lengths: str = "",
        fields: dict[str, dict[str, Any]] | None = None,
        dataset: object = None,
    ) -> None:
        super().__init__()
        self.padding = link_of(dataset).padding() if value is None else {}
        self.common: dict[str, Any] = {"value": 0 if value is None else value, "multiple": multiple, "left": left}
        self.lengths = lengths
        tables = _merged(values or {}, fields or {})
        self.fields = {name: self._column(name, table) for name, table in tables.items()}
        self.told = {name: construct(Padded, self._common(name)) for name in self.padding}
        self.others = construct(Padded, self.common)  # for fields of which nobody says anything
        self.multiple = self.others.multiple

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _columns(batch)
        self._check_fields(columns)
        out: dict[str, Any] = {}
        for name, values in columns.items():
            made = self._made(name, values)
            if len(made) > 1:
                _check_new(made.keys() - {name}, [*columns, *out], f"made of {name!r}")
            out |= made
        if self.lengths:
            self._add_lengths(out, columns)
        return out

    def multiple_of(self, field: str) -> int:
        return self.fields[field].multiple if field in self.fields else self.multiple

    def _check_fields(self, columns: Mapping[str, Any]) -> None:
        absent = [name for name in self.fields if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns) or f"they have {', '.join(map(str, columns))}"
            raise AlchemyError(f"Pad: the samples have no field {absent[0]!r}", hint=hint)

    def _made(self, name: str, values: list[Any]) -> dict[str, Any]:
        """What the batch gets for a field."""
        if name in self.fields:
            return self.fields[name](name, values)
        if name not in self.told and all(isinstance(value, LISTS) and not value for value in values):
            return {name: values}  # they may be lists of texts as well
        made = self.told.get(name, self.others).pad(name, values)
        return {name: values} if made is None else made

    def _add_lengths(self, out: dict[str, Any], columns: Mapping[str, list[Any]]) -> None:
        """Those of the first field of which somebody said how it is padded, else of the first that is not empty."""
        padded = [name for name in columns if isinstance(self.fields.get(name, self.others), Padded)]
        rows = {
            # no longer than the padded row: it may have been cut
            name: torch.tensor(list(map(len, columns[name]))).clamp(max=out[name].shape[1])
            for name in padded
            if isinstance(out[name], Tensor) and out[name].dim() > 1
        }
        if rows:
            _check_new([self.lengths], out, "which `lengths` names")
            told = [name for name in rows if name in self.fields or name in self.told]
            out[self.lengths] = rows[[*told, *(name for name in rows if rows[name].any()), *rows][0]]

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
        raise AlchemyError(f"collate expects a list of samples that are dicts, not {value_text(batch)}", hint=hint)
    try:
        if set(map(len, batch)) != {len(batch[0])}:
            _check_samples(batch)
        return {name: [sample[name] for sample in batch] for name in batch[0].keys()}  # noqa: SIM118 (no list has them)
    except (AttributeError, KeyError, TypeError, IndexError):
        _check_samples(batch)
        raise


def _check_samples(batch: Sequence[Any]) -> None:
    for number, sample in enumerate(batch):
        if not isinstance(sample, Mapping):
            hint = "make dicts of them in a pipe before, or name a collate_fn of your own"
            raise AlchemyError(
                f"collate expects samples that are dicts; sample {number} is {value_text(sample)}", hint=hint
            )
    for number, sample in enumerate(batch):
        if sample.keys() != batch[0].keys():
            odd = sorted(set(sample) ^ set(batch[0]), key=str)
            hint = "give every sample the same fields in a pipe before"
            raise AlchemyError(f"sample {number} of a batch differs from the first in the fields {odd}", hint=hint)
