"""One set of weights from several: their mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from alchemy.checkpoint.files import TENSORS, TensorFile
from alchemy.errors import AlchemyError

# what lies beside the weights in a checkpoint
_OTHERS = ("optim", "ema", "parts")


def _weight_files(folder: Path) -> list[str]:
    """The files of a folder that `AlchemyModel.load` reads: the model's, and one for each loss that has weights."""
    names = sorted(path.name for path in folder.glob(f"*{TENSORS}") if path.stem not in _OTHERS)
    if not names:
        hint = "name folders that a run or AlchemyModel.save wrote"
        raise AlchemyError(f"{folder} holds no weights: there is no model{TENSORS} in it", hint=hint)
    return names


def mean_weights(folders: Sequence[Path]) -> dict[str, dict[str, Tensor]]:
    """The mean of the weights, added up in float64; whole numbers and flags are those of the last folder.

    One tensor of each folder is in memory at a time.
    """
    files = _weight_files(folders[-1])
    for folder in folders:
        _same(_weight_files(folder), files, folder, folders[-1], "files")
    return {file: _mean_file([folder / file for folder in folders]) for file in files}


def _mean_file(paths: Sequence[Path]) -> dict[str, Tensor]:
    opened = [TensorFile(path) for path in paths]
    for path, file in zip(paths, opened, strict=True):
        _same(file.names, opened[-1].names, path, paths[-1], "tensors")
    return {name: _mean_tensor([file[name] for file in opened], name, paths) for name in opened[-1].names}


def _mean_tensor(tensors: Sequence[Tensor], name: str, paths: Sequence[Path]) -> Tensor:
    last = tensors[-1]
    for tensor, path in zip(tensors, paths, strict=True):
        if tensor.shape != last.shape:
            shapes = f"{list(tensor.shape)} in {path.parent} and {list(last.shape)} in {paths[-1].parent}"
            raise AlchemyError(f"the shapes of {name} differ: {shapes}", hint="average states of one model")
    if not last.is_floating_point() and not last.is_complex():
        return last
    wide = torch.complex128 if last.is_complex() else torch.float64
    total = torch.zeros(last.shape, dtype=wide)
    for tensor in tensors:
        total += tensor.to(wide)
    return (total / len(tensors)).to(last.dtype)


def _same(names: Sequence[str], expected: Sequence[str], one: Path, other: Path, what: str) -> None:
    odd = sorted(set(names) ^ set(expected))
    if odd:
        raise AlchemyError(
            f"{one} and {other} do not have the same {what}: {', '.join(odd[:5])}", hint="average states of one model"
        )
