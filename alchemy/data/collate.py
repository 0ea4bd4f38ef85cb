"""Collate functions: turn a list of samples into a batch of padded tensors."""

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
from alchemy.data.stacked import StackedSamples, StackedValues
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable, build, construct


class CollateFn(Registrable):
    """Base class for collate functions, set in a config as `collate_fn = { type = "..." }`."""

    multiple = 1  # lengths are rounded up to a multiple of this; token budgets take it into account

    def __call__(self, batch: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, batch)")

    def multiple_of(self, field: str) -> int:
        """Return the `multiple` for a single field."""
        return self.multiple


@CollateFn.register("Default")
class DefaultCollateFn(CollateFn):
    """Pads arrays and tensors with 0 and stacks them; other fields become lists.

    Ignores all keyword arguments, because existing projects pass their whole table.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: self._stack(name, values) for name, values in _to_columns(batch).items()}

    def _stack(self, name: str, values: list[Any]) -> Any:
        if not any(issubclass(kind, np.ndarray | Tensor) for kind in set(map(type, values))):
            return values
        rows = join_rows(name, values)
        return values if rows is None else rows.pad(name=name)

    @staticmethod
    def padded_stack_tensor(tensors: Sequence[Tensor], padding: float = 0) -> Tensor:
        """Stack tensors of the same rank, each padded with `padding` to the largest size."""
        shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
        return torch.stack([DefaultCollateFn.extend_tensor(tensor, shape, padding) for tensor in tensors])

    @staticmethod
    def extend_tensor(tensor: Tensor, extended_shape: Sequence[int], fill: float = 0) -> Tensor:
        """Return a tensor of `extended_shape` that starts with `tensor` and is otherwise filled with `fill`."""
        extended = tensor.new_full(tuple(extended_shape), fill)
        extended[tuple(map(slice, tensor.shape))] = tensor
        return extended


@CollateFn.register()
class Pad(CollateFn):
    """Stacks numbers, and pads lists and arrays of numbers to the longest one; other fields become lists.

    `value` is the padding value for all fields, and `values` sets it for individual fields:
    `{ type = "alchemy.data.collate.Pad", values = { labels = -100 } }`. By default, each field is padded with the value
    that the dataset's `padding()` returns for it, or with 0. `multiple` rounds lengths up, `left` pads on the left, and
    `lengths` names a new field for the true lengths. If all lists of a field are empty in a batch, the field stays a
    list unless the config or the dataset defines its padding. `fields` configures individual fields, each
    with a table for `alchemy.data.columns.Padded` or another column type.
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
        tables = _merge_tables(values or {}, fields or {})
        self.fields = {name: self._column(name, table) for name, table in tables.items()}
        self.dataset_fields = {name: construct(Padded, self._common(name)) for name in self.padding}
        self.others = construct(Padded, self.common)  # for fields that neither the config nor the dataset mentions
        self.multiple = self.others.multiple

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _to_columns(batch)
        self._check_fields(columns)
        out: dict[str, Any] = {}
        for name, values in columns.items():
            made = self._collate_field(name, values)
            if len(made) > 1:
                _check_new(made.keys() - {name}, [*columns, *out], f"derived from {name!r}")
            out |= made
        if self.lengths:
            self._add_lengths(out, columns)
        return out

    def multiple_of(self, field: str) -> int:
        return self.fields[field].multiple if field in self.fields else self.multiple

    def _check_fields(self, columns: Mapping[str, Any]) -> None:
        absent = [name for name in self.fields if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns) or f"available fields: {', '.join(map(str, columns))}"
            raise AlchemyError(f"Pad: the samples have no field {absent[0]!r}", hint=hint)

    def _collate_field(self, name: str, values: list[Any]) -> dict[str, Any]:
        """Return the batch entries for a field, including any derived fields."""
        if name in self.fields:
            return self.fields[name](name, values)
        if name not in self.dataset_fields and all(isinstance(value, LISTS) and not value for value in values):
            return {name: values}  # they might be lists of strings
        made = self.dataset_fields.get(name, self.others).pad(name, values)
        return {name: values} if made is None else made

    def _add_lengths(self, out: dict[str, Any], columns: Mapping[str, list[Any]]) -> None:
        """Add the lengths of the first field with configured padding, or else of the first field that is not empty."""
        padded = [name for name in columns if isinstance(self.fields.get(name, self.others), Padded)]
        rows = {
            # at most the length of the padded row, which may have been truncated
            name: torch.tensor(list(map(len, columns[name]))).clamp(max=out[name].shape[1])
            for name in padded
            if isinstance(out[name], Tensor) and out[name].dim() > 1
        }
        if rows:
            _check_new([self.lengths], out, "set by `lengths`")
            configured = [name for name in rows if name in self.fields or name in self.dataset_fields]
            out[self.lengths] = rows[[*configured, *(name for name in rows if rows[name].any()), *rows][0]]

    def _column(self, name: str, table: Any) -> Column:
        """Build the column of a field; keys missing from its table default to the settings for all fields."""
        if isinstance(table, Column):
            return table
        if "type" in table:
            return build(Column, table, section=f"collate_fn.fields.{name}")
        return construct(Padded, {**self._common(name), **table}, section=f"collate_fn.fields.{name}")

    def _common(self, name: str) -> dict[str, Any]:
        return self.common | ({"value": self.padding[name]} if name in self.padding else {})


def _merge_tables(values: Mapping[str, float], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return one table per field; `values` is a shorthand for `fields` with only a `value`."""
    tables: dict[str, Any] = {name: {"value": value} for name, value in values.items()}
    for name, table in fields.items():
        if not isinstance(table, Mapping | Column):
            raise AlchemyError(f"Pad: fields.{name} must be a table, not {table!r}")
        if name in values and (isinstance(table, Column) or table.keys() & {"type", "value"}):
            hint = f"keep only fields.{name}"
            raise AlchemyError(f"Pad: values and fields.{name} both set the padding of {name!r}", hint=hint)
        tables[name] = table if isinstance(table, Column) else {**tables.get(name, {}), **table}
    return tables


def _check_new(names: Iterable[str], taken: Collection[str], whence: str) -> None:
    """Raise if a new field would replace an existing one."""
    twice = [name for name in names if name in taken]
    if twice:
        text = f"Pad: the batch would have two fields named {twice[0]!r}, one of them {whence}"
        raise AlchemyError(text, hint="rename one of them")


def _to_columns(batch: Any) -> dict[str, list[Any]]:
    """Return the values of a batch by field; all samples must have the same fields."""
    if not isinstance(batch, list | tuple) or not batch:
        hint = "put alchemy.pipeline.itr.Batch at the end of the pipes, or set batch_size"
        raise AlchemyError(f"collate_fn expects a list of dicts, got {value_text(batch)}", hint=hint)
    try:
        if set(map(len, batch)) != {len(batch[0])}:
            _check_samples(batch)
        columns = {name: [sample[name] for sample in batch] for name in batch[0].keys()}  # noqa: SIM118 (lists have no keys)
    except (AttributeError, KeyError, TypeError, IndexError):
        _check_samples(batch)
        raise
    if isinstance(batch, StackedSamples):
        columns |= {name: StackedValues(columns[name], array) for name, array in batch.stacked.items()}
    return columns


def _check_samples(batch: Sequence[Any]) -> None:
    for number, sample in enumerate(batch):
        if not isinstance(sample, Mapping):
            hint = "convert the samples to dicts in an earlier pipe, or use your own collate_fn"
            raise AlchemyError(
                f"collate_fn expects samples that are dicts, but sample {number} is {value_text(sample)}", hint=hint
            )
    for number, sample in enumerate(batch):
        if sample.keys() != batch[0].keys():
            odd = sorted(set(sample) ^ set(batch[0]), key=str)
            hint = "give all samples the same fields in an earlier pipe"
            raise AlchemyError(f"sample {number} of a batch differs from the first in the fields {odd}", hint=hint)
