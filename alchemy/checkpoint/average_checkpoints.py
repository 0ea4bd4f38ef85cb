"""Average the weights of several checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from alchemy.checkpoint.files import TENSORS, TensorFile
from alchemy.errors import AlchemyError

# other tensor files in a checkpoint
_OTHERS = ("optim", "ema", "parts")


def _weight_files(folder: Path) -> list[str]:
    """Return the files that `AlchemyModel.load` reads: the model file, and one file for each loss with weights."""
    names = sorted(path.name for path in folder.glob(f"*{TENSORS}") if path.stem not in _OTHERS)
    if not names:
        hint = "pass folders written by a run or by AlchemyModel.save"
        raise AlchemyError(f"{folder} contains no weights: model{TENSORS} is missing", hint=hint)
    return names


def average_weights(folders: Sequence[Path]) -> dict[str, dict[str, Tensor]]:
    """Return the mean of the weights, computed in float64; integer and boolean tensors come from the last folder.

    Only one tensor of each folder is in memory at a time.
    """
    files = _weight_files(folders[-1])
    for folder in folders:
        _check_equal(_weight_files(folder), files, folder, folders[-1], "files")
    return {file: _average_file([folder / file for folder in folders]) for file in files}


def _average_file(paths: Sequence[Path]) -> dict[str, Tensor]:
    opened = [TensorFile(path) for path in paths]
    for path, file in zip(paths, opened, strict=True):
        _check_equal(file.names, opened[-1].names, path, paths[-1], "tensors")
    return {name: _average_tensor([file[name] for file in opened], name, paths) for name in opened[-1].names}


def _average_tensor(tensors: Sequence[Tensor], name: str, paths: Sequence[Path]) -> Tensor:
    last = tensors[-1]
    for tensor, path in zip(tensors, paths, strict=True):
        if tensor.shape != last.shape:
            shapes = f"{list(tensor.shape)} in {path.parent} and {list(last.shape)} in {paths[-1].parent}"
            raise AlchemyError(f"the shapes of {name} differ: {shapes}", hint="average checkpoints of the same model")
    if not last.is_floating_point() and not last.is_complex():
        return last
    wide = torch.complex128 if last.is_complex() else torch.float64
    total = torch.zeros(last.shape, dtype=wide)
    for tensor in tensors:
        total += tensor.to(wide)
    return (total / len(tensors)).to(last.dtype)


def _check_equal(names: Sequence[str], expected: Sequence[str], one: Path, other: Path, what: str) -> None:
    odd = sorted(set(names) ^ set(expected))
    if odd:
        raise AlchemyError(
            f"{one} and {other} differ in their {what}: {', '.join(odd[:5])}",
            hint="average checkpoints of the same model",
        )
