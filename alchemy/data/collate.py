"""Samples become a batch: lists of numpy arrays and numbers in, padded tensors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.registry import Registrable


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
            name: stack(values) if isinstance(values[0], np.ndarray | Tensor) else values
            for name, values in columns.items()
        }


@CollateFn.register()
class Pad(CollateFn):
    """Numbers become a vector; lists and arrays of numbers are padded to the longest; the rest stays a list.

    `value` pads every field, `values` single ones: `{ type = "alchemy.data.collate.Pad", values = { labels = -100 } }`.
    `multiple` rounds lengths up, `left` puts the padding in front, and `lengths` names a field for the true lengths.
    """

    def __init__(
        self,
        *,
        value: float = 0,
        values: dict[str, float] | None = None,
        multiple: int = 1,
        left: bool = False,
        lengths: str = "",
    ) -> None:
        super().__init__()
        if multiple < 1:
            raise AlchemyError(f"Pad: multiple must be at least 1, not {multiple}")
        self.value, self.values, self.multiple, self.left, self.lengths = value, values or {}, multiple, left, lengths

    def __call__(self, batch: list[Mapping[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, column in _columns(batch).items():
            arrays = [as_array(item) for item in column]
            if any(array is None for array in arrays):
                out[name] = column
                continue
            out[name] = stack(
                [array for array in arrays if array is not None],
                value=self.values.get(name, self.value),
                multiple=self.multiple,
                left=self.left,
            )
            if self.lengths and self.lengths not in out and out[name].dim() > 1:
                out[self.lengths] = torch.tensor([len(array) for array in arrays if array is not None])
        return out


def as_array(item: Any) -> np.ndarray | None:
    """Numbers, lists of numbers, arrays and tensors as an array; None for anything else (texts, ragged lists)."""
    if isinstance(item, Tensor):
        return item.detach().cpu().numpy()
    if isinstance(item, np.ndarray):
        return item if item.dtype.kind in "biufc" else None
    if isinstance(item, bool | int | float | np.generic) or (isinstance(item, list | tuple) and _is_numeric(item)):
        array = np.asarray(item)
        if isinstance(item, list | tuple) and not item:
            array = array.astype(np.int64)  # an empty list of ids must not turn its batch into floats
        # torch's own default, so that a float in a sample becomes what a model's weights are
        return array.astype(np.float32) if array.dtype == np.float64 and not isinstance(item, np.generic) else array
    return None


def stack(arrays: Sequence[np.ndarray | Tensor], *, value: float = 0, multiple: int = 1, left: bool = False) -> Tensor:
    """One tensor of arrays that may differ in length along every dimension."""
    tensors = [
        array if isinstance(array, Tensor) else torch.from_numpy(np.ascontiguousarray(array)) for array in arrays
    ]
    # from_numpy of a 0-d contiguous array has one dimension
    tensors = [t.reshape(np.shape(a)) if isinstance(a, np.ndarray) else t for t, a in zip(tensors, arrays, strict=True)]
    if len({tensor.dim() for tensor in tensors}) > 1:
        raise AlchemyError(
            f"samples of one batch differ in dimensions: {[tuple(tensor.shape) for tensor in tensors][:4]}"
        )
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    shape = [max(sizes) for sizes in zip(*(t.shape for t in tensors), strict=True)]
    if shape:
        shape[0] += -shape[0] % multiple  # the length; other dimensions are features, and stay
    out = torch.full((len(tensors), *shape), value, dtype=dtype)
    for row, tensor in zip(out, tensors, strict=True):
        window = tuple(slice(size - n, size) if left else slice(n) for n, size in zip(tensor.shape, shape, strict=True))
        row[window] = tensor
    return out


def _is_numeric(items: Sequence[Any]) -> bool:
    """Whether nested lists hold numbers only and are not ragged."""
    if all(isinstance(item, bool | int | float | np.number) for item in items):
        return True
    inner = [item for item in items if isinstance(item, list | tuple)]
    return len(inner) == len(items) and len({len(i) for i in inner}) == 1 and all(map(_is_numeric, inner))


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
