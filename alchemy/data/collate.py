"""Samples become a batch: lists of numpy arrays and numbers in, padded tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alchemy.data.columns import Column, Padded, as_array, stack
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable, build, construct


class CollateFn(Registrable):
    """Makes a batch of a list of samples; named in a config as `collate_fn = { type = "..." }`."""

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
        columns = _columns(batch)
        return {
            name: stack(values, name=name) if isinstance(values[0], np.ndarray | Tensor) else values
            for name, values in columns.items()
        }


@CollateFn.register()
class Pad(CollateFn):
    """Numbers become a vector; lists and arrays of numbers are padded to the longest; the rest stays a list.

    `value` pads every field, `values` single ones: `{ type = "alchemy.data.collate.Pad", values = { labels = -100 } }`.
    `multiple` rounds lengths up, `left` puts the padding in front, and `lengths` names a field for the true lengths.
    `fields` tells more about single ones: a table of `alchemy.data.columns.Padded`, or of the column that it names.
    """

    def __init__(
        self,
        *,
        value: float = 0,
        values: dict[str, float] | None = None,
        multiple: int = 1,
        left: bool = False,
        lengths: str = "",
        fields: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        if multiple < 1:
            raise AlchemyError(f"Pad: multiple must be at least 1, not {multiple}")
        self.value, self.values, self.multiple, self.left, self.lengths = value, values or {}, multiple, left, lengths
        self.fields = {name: self._column(name, table) for name, table in (fields or {}).items()}

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        columns = _columns(batch)
        absent = [name for name in self.fields if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns) or f"they have {', '.join(map(str, columns))}"
            raise AlchemyError(f"Pad: the samples have no field {absent[0]!r}", hint=hint)
        out: dict[str, Any] = {}
        for name, column in columns.items():
            if name not in self.fields:
                out |= self._plain(name, column, out)
                continue
            made = self.fields[name](name, column)
            twice = [key for key in made if key in out or (key != name and key in columns)]
            if twice:
                raise AlchemyError(f"Pad: the batch would have two fields {twice[0]!r}, one of them made of {name!r}")
            out |= made
        return out

    def _column(self, name: str, table: Any) -> Any:
        """How a field is collated; a table of rows need not say what holds for all."""
        if isinstance(table, Column):
            return table
        if "type" in table:
            return build(Column, table, section=f"collate_fn.fields.{name}")
        common = {"value": self.values.get(name, self.value), "multiple": self.multiple, "left": self.left}
        return construct(Padded, {**common, **table}, section=f"collate_fn.fields.{name}")

    def _plain(self, name: str, column: list[Any], out: Mapping[str, Any]) -> dict[str, Any]:
        arrays = [as_array(item) for item in column]
        if any(array is None for array in arrays):
            return {name: column}
        rows = stack(
            [array for array in arrays if array is not None],
            value=self.values.get(name, self.value),
            multiple=self.multiple,
            left=self.left,
            name=name,
        )
        if not self.lengths or self.lengths in out or rows.dim() < 2:
            return {name: rows}
        return {name: rows, self.lengths: torch.tensor([len(array) for array in arrays if array is not None])}


def _columns(batch: Any) -> dict[str, list[Any]]:
    """The samples of a batch by field; every sample must have the fields of the first."""
    if not isinstance(batch, list | tuple) or not batch or not all(isinstance(sample, Mapping) for sample in batch):
        raise AlchemyError(
            f"collate expects a list of samples that are dicts, not {type(batch).__name__}",
            hint="put alchemy.pipeline.itr.Batch at the end of the pipes, or give batch_size",
        )
    names = list(batch[0])
    for number, sample in enumerate(batch):
        if sample.keys() != batch[0].keys():
            odd = sorted(set(sample) ^ set(names), key=str)
            raise AlchemyError(f"sample {number} of a batch differs from the first in the fields {odd}")
    return {name: [sample[name] for sample in batch] for name in names}
