"""A module's weights as a safetensors file, and the module behind its wrappers."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loguru import logger
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from alchemy.errors import AlchemyError, RunFailed
from alchemy.nn.partial_load import load_partial


def unwrap(module: Any) -> Any:
    """A module without DDP, DataParallel or torch.compile around it."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = module.module
        if inner is None:
            return module
        module = inner


def save_all(
    modules: Mapping[str, nn.Module],
    folder: Path,
    beside: Callable[[nn.Module, Path, str], None] = lambda module, folder, name: None,
) -> None:
    """Writes each module as `<name>.safetensors`; a folder that was not there is left only if it is complete.

    `beside(module, folder, name)` writes what else belongs to a module.
    """
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, module in modules.items():
            _save_weights(module, folder / f"{name}.safetensors")
            beside(module, folder, name)
    except BaseException as error:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            hint = "is the disk full, or the folder read-only?"
            raise RunFailed(f"the weights cannot be written to {str(folder)!r}: {error}", hint=hint) from error
        raise


def _save_weights(module: nn.Module, file: Path) -> None:
    """Writes the tensors of a module, whole or not at all; tied weights are written once."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # what the umask gives; safetensors would leave it to the owner alone
        save_model(_tensors_of(module), str(temporary))
        with open(temporary, "rb+") as written:
            os.fchmod(written.fileno(), mode & 0o777)
            os.fsync(written.fileno())
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class _Tensors:
    """A module that keeps more than tensors, as a file of tensors sees it; it gets the rest when it is loaded."""

    def __init__(self, module: nn.Module, extra: Mapping[str, Any]) -> None:
        self.module, self.extra = module, extra

    def state_dict(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.module.state_dict().items() if isinstance(value, Tensor)}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool) -> tuple[list[str], list[str]]:
        tensors = self.state_dict()
        missing, unexpected = self.module.load_state_dict({**state, **self.extra}, strict=strict)
        return [name for name in missing if name in tensors], unexpected


def _tensors_of(module: nn.Module, extra: Mapping[str, Any] = {}) -> Any:
    plain = all(isinstance(value, Tensor) for value in module.state_dict().values())
    return module if plain else _Tensors(module, extra)


def load_weights(module: nn.Module, file: Path, strict: bool = True, extra: Mapping[str, Any] = {}) -> None:
    """Reads what `_save_weights` wrote; `strict=False` takes what fits by name and shape, and logs what does not.

    `extra` is what the module keeps beside its tensors, under the names of its state.
    """
    if not file.is_file():
        raise AlchemyError(f"there is no {file.name} in {str(file.parent)!r}", hint="name a folder that save() wrote")
    try:
        if strict:
            load_model(_tensors_of(module, extra), str(file))
        else:
            logger.info("{}: {}", file, load_partial(module, load_file(file)))
            module.load_state_dict(extra, strict=False)
    except Exception as error:  # a broken file has an error class of its own, which says as little
        raise AlchemyError(f"{str(file)!r} does not fit {type(module).__name__}: {error}") from error
