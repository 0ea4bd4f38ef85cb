"""Save and load module weights as safetensors files, and unwrap modules."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from alchemy.errors import AlchemyError, RunFailed
from alchemy.nn.partial_load import load_partial


def unwrap(module: Any) -> Any:
    """Return the module inside DDP, DataParallel or torch.compile wrappers."""
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
    write_extra: Callable[[nn.Module, Path, str], None] = lambda module, folder, name: None,
) -> None:
    """Write each module to `<name>.safetensors`; a newly created folder is removed if writing fails.

    `write_extra(module, folder, name)` writes additional files for a module.
    """
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, module in modules.items():
            _save_weights(module, folder / f"{name}.safetensors")
            write_extra(module, folder, name)
    except BaseException as error:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            hint = "is the disk full, or the folder read-only?"
            raise RunFailed(f"cannot write the weights to {str(folder)!r}: {error}", hint=hint) from error
        raise


def _save_weights(module: nn.Module, file: Path) -> None:
    """Write the tensors of a module atomically; tied weights are written once."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # permissions from the umask; safetensors would restrict the file to the owner
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
    """The tensors of a module that also has extra state, which is added when the module is loaded."""

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
    """Load a file written by `save_all`; `strict=False` loads tensors whose name and shape match, and logs the rest.

    `extra` maps names in the module's state dict to its extra state.
    """
    if not file.is_file():
        raise AlchemyError(f"{file.name} not found in {str(file.parent)!r}", hint="pass a folder written by save()")
    try:
        if strict:
            load_model(_tensors_of(module, extra), str(file))
        else:
            load_partial(module, load_file(file)).log(file)
            module.load_state_dict(extra, strict=False)
    except Exception as error:  # a broken file raises a different error class that is no more informative
        raise AlchemyError(f"{str(file)!r} does not fit {type(module).__name__}: {error}") from error
