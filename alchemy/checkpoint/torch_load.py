"""Load weights from `torch.save` files safely: modules, state dicts and `.pth.tar` dicts."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from alchemy.checkpoint.run_state import MODEL, STATE, collect_state
from alchemy.checkpoint.state_tree import DTYPES
from alchemy.errors import AlchemyError, did_you_mean

# keys under which training scripts usually store the weights
USUAL = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params")
WRAPPERS = ("module.", "_orig_mod.")  # DataParallel and DDP, torch.compile


class TorchWeights(NamedTuple):
    """Weights by name, their key in the file, and the plain values stored next to them."""

    weights: dict[str, Tensor]
    key: str
    plain: dict[str, Any]


def load_torch_file(path: Path, *, allow_pickle: bool = False, key: str = "") -> TorchWeights:
    """Load the weights. Files with Python objects require `allow_pickle`, since loading them can run code."""
    content = _load(path, allow_pickle)
    found, key = _find(content, key, path)
    state = found.state_dict() if isinstance(found, nn.Module) else found
    weights = {str(name): value.detach() for name, value in state.items() if isinstance(value, Tensor)}
    odd = [f"{name} ({value.dtype}, {value.layout})" for name, value in weights.items() if not _is_supported(value)]
    if odd:
        raise AlchemyError(f"{path} has tensors that safetensors does not support: {', '.join(odd[:5])}")
    siblings = content if isinstance(content, Mapping) and key else {}
    plain = {str(name): value for name, value in siblings.items() if isinstance(value, int | float | str)}
    return TorchWeights(_strip_wrappers(weights), key, plain)


def load_any_file(path: Path) -> dict[str, Tensor]:
    """Load the weights of a `.safetensors` file or of a `torch.save` file without Python objects, by name."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise AlchemyError(f"{path} is not a safetensors file: {error}", hint="is it truncated?") from error
    try:
        return load_torch_file(path).weights
    except AlchemyError as error:  # its hints are options of the command
        hint = f"convert it with `alchemy checkpoint import`: {error.problem.hint}" if error.problem.hint else ""
        raise AlchemyError(error.problem.message, hint=hint) from error


def _load(path: Path, allow_pickle: bool) -> Any:
    if not path.is_file():
        raise AlchemyError(f"file not found: {str(path)!r}")
    if not _is_torch_file(path):  # torch would treat it as a pickle, and the error would wrongly suggest --allow-pickle
        raise AlchemyError(f"{path} is not a torch.save file")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not allow_pickle:
            raise AlchemyError(
                f"{path} contains Python objects, and loading them can run arbitrary code",
                hint="if you trust the source of the file, pass --allow-pickle",
            ) from error
    except Exception as error:
        raise AlchemyError(f"{path} is not a torch.save file: {str(error) or type(error).__name__}") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ModuleNotFoundError) as error:
        hint = "run alchemy where the project's modules can be imported, or pass its package with --user-dir"
        raise AlchemyError(f"{path} needs code that cannot be imported: {error}", hint=hint) from error
    except Exception as error:
        raise AlchemyError(f"cannot read {path}: {type(error).__name__}: {error}") from error


def _is_torch_file(path: Path) -> bool:
    """Return whether a file looks like a torch.save file: a zip file, or a pickle written by old versions."""
    with path.open("rb") as file:
        return file.read(1) == b"\x80" or zipfile.is_zipfile(path)


def _find(content: object, key: str, path: Path) -> tuple[Any, str]:
    """Return the weights in the content and their key, which is `key` if given, otherwise one of the usual keys."""
    if not key and _is_weights(content):
        return content, ""
    if not isinstance(content, Mapping):
        raise AlchemyError(f"expected weights in {path}, got {type(content).__name__}")
    if key:
        keys = [str(name) for name in content]
        if key not in keys:
            hint = did_you_mean(key, keys) or f"it has {', '.join(keys[:20]) or 'no keys'}"
            raise AlchemyError(f"{path} has no key {key!r}", hint=hint)
        if not _is_weights(content[key]):
            raise AlchemyError(f"expected weights under {key!r} in {path}, got {type(content[key]).__name__}")
        return content[key], key
    fitting = [str(name) for name, value in content.items() if _is_weights(value)]
    chosen = next((name for name in USUAL if name in fitting), fitting[0] if len(fitting) == 1 else "")
    if not chosen:
        hint = f"choose one of {', '.join(fitting or map(str, content))} with --key"
        raise AlchemyError(f"cannot determine which key of {path} has the weights", hint=hint)
    return content[chosen], chosen


def _is_weights(value: object) -> bool:
    if isinstance(value, nn.Module):
        return True
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())


def _is_supported(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.dtype in DTYPES


def _strip_wrappers(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the prefixes added by DDP, DataParallel and torch.compile if all names have them."""
    for prefix in WRAPPERS * 2:  # the wrappers may be nested in either order
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


class _Weights:
    """A stand-in for a model that has only weights."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def state_dict(self) -> Mapping[str, Tensor]:
        return self.weights

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.weights = state


def to_files(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the files that `AlchemyModel.load` reads, in which each tied tensor is stored once."""
    files = collect_state({MODEL: _Weights(weights)}).files()
    del files[STATE]
    return files
