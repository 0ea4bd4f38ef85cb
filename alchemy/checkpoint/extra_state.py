"""Save and load the extra state of a module (`get_extra_state`), next to its weights or in a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from alchemy.checkpoint.files import TENSORS, TensorFile
from alchemy.checkpoint.manifest import STATE, read_parts
from alchemy.checkpoint.run_state import MODEL
from alchemy.checkpoint.state_tree import join_state, split_state
from alchemy.errors import AlchemyError
from alchemy.files import parse_json, write_atomic

KEY = "extra"  # metadata key of the JSON, which refers to the tensors in the file


def extra_of(module: nn.Module) -> dict[str, Any]:
    """Return the entries of the state dict that are not tensors."""
    return {name: value for name, value in module.state_dict().items() if not isinstance(value, Tensor)}


def write_extra(module: nn.Module, folder: Path, name: str) -> list[str]:
    """Write `NAME.extra.safetensors` if there is extra state; return the values that are neither JSON nor tensors."""
    extra = extra_of(module)
    if not extra:
        _file(folder, name).unlink(missing_ok=True)  # left over from a different module
        return []
    taken = split_state(extra)
    tensors = {key: tensor.cpu().contiguous().clone() for key, tensor in taken.tensors.items()}
    write_atomic(_file(folder, name), save(tensors, {KEY: json.dumps(taken.json, allow_nan=False)}))
    return taken.left_out


def read_extra(module: nn.Module, folder: Path, name: str) -> dict[str, Any]:
    """Read the extra state of the `name` module from a weights folder or a checkpoint."""
    wanted = extra_of(module)
    if not wanted:
        return {}
    if _file(folder, name).is_file():
        found = _read(_file(folder, name))
    elif (folder / STATE).is_file():
        found = _read_checkpoint(folder, name, wanted)
    else:  # weights written by another program
        found = {}
    return {key: found[key] for key in wanted if key in found}


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.{KEY}{TENSORS}"


def _read(file: Path) -> dict[str, Any]:
    try:
        with safe_open(file, framework="pt") as opened:
            content = parse_json(opened.metadata()[KEY])
        tensors = TensorFile(file)
        extra: dict[str, Any] = join_state(content, {key: tensors[key] for key in tensors.names})
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise AlchemyError(f"cannot read {str(file)!r}: {error!r}") from error
    return extra


class _References(dict[str, Tensor]):
    """The tensors of a checkpoint, keyed by their `file/name` reference in its JSON and read on access."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, reference: str) -> Tensor:
        stem, _, name = reference.partition("/")
        return TensorFile(self.folder / f"{stem}{TENSORS}")[name]


def _read_checkpoint(folder: Path, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    prefix = "" if name == MODEL else f"{name}:"
    try:
        saved = read_parts(folder)[MODEL]
        tensors = _References(folder)
        return {key: join_state(saved[prefix + key], tensors) for key in wanted if prefix + key in saved}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise AlchemyError(f"cannot read {str(folder / STATE)!r}: {error!r}") from error
