"""A module's weights as a safetensors file, and the module behind its wrappers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model
from torch import nn

from alchemy.errors import AlchemyError


def unwrap(module: Any) -> Any:
    """A module without DDP, DataParallel or torch.compile around it."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = module.module
        if inner is None:
            return module
        module = inner


def save_weights(module: nn.Module, file: Path) -> None:
    """Writes the file whole or not at all; tied weights are written once."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    save_model(module, str(temporary))
    with open(temporary, "rb+") as written:
        os.fsync(written.fileno())
    os.replace(temporary, file)


def load_weights(module: nn.Module, file: Path, strict: bool = True) -> None:
    """Reads what `save_weights` wrote; `strict=False` takes what fits by name."""
    if not file.is_file():
        raise AlchemyError(f"there is no {file.name} in {str(file.parent)!r}", hint="name a folder that save() wrote")
    try:
        load_model(module, str(file), strict=strict)
    except Exception as error:  # a broken file has an error class of its own, which says as little
        raise AlchemyError(f"{str(file)!r} does not fit {type(module).__name__}: {error}") from error
