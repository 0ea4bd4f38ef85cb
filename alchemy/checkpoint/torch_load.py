"""Weights that `torch.save` wrote: whole networks, state dicts and `.pth.tar` dicts, read with care."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from alchemy.checkpoint.run_state import MODEL, STATE, collect_state
from alchemy.checkpoint.state_tree import DTYPES
from alchemy.errors import AlchemyError, did_you_mean

# where training scripts keep the weights among other things
USUAL = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params")
WRAPPERS = ("module.", "_orig_mod.")  # DataParallel and DDP, torch.compile


class _Foreign(NamedTuple):
    """Weights by their names, where in the file they were, and the plain values that stood beside them."""

    weights: dict[str, Tensor]
    key: str
    beside: dict[str, Any]


def load_foreign(path: Path, *, allow_pickle: bool = False, key: str = "") -> _Foreign:
    """Reads the weights; a file that holds Python objects only with `allow_pickle`, since reading it runs code."""
    content = _load(path, allow_pickle)
    found, key = _find(content, key, path)
    state = found.state_dict() if isinstance(found, nn.Module) else found
    weights = {str(name): value.detach() for name, value in state.items() if isinstance(value, Tensor)}
    odd = [f"{name} ({value.dtype}, {value.layout})" for name, value in weights.items() if not _fits(value)]
    if odd:
        raise AlchemyError(f"{path} has tensors that safetensors cannot hold: {', '.join(odd[:5])}")
    beside = content if isinstance(content, Mapping) and key else {}
    plain = {str(name): value for name, value in beside.items() if isinstance(value, int | float | str)}
    return _Foreign(_unwrapped(weights), key, plain)


def _load(path: Path, allow_pickle: bool) -> Any:
    if not path.is_file():
        raise AlchemyError(f"there is no file {str(path)!r}")
    if not _is_saved(path):  # else torch takes it for a pickle, and we would recommend to run what is in it
        raise AlchemyError(f"{path} is no file that torch.save wrote")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not allow_pickle:
            raise AlchemyError(
                f"{path} holds Python objects, and reading them can run any code that is in the file",
                hint="if you trust whoever made it, say so with --allow-pickle",
            ) from error
    except Exception as error:
        raise AlchemyError(f"{path} is no file that torch.save wrote: {str(error) or type(error).__name__}") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ModuleNotFoundError) as error:
        hint = "start alchemy where the modules of the project can be imported, or name its package with --user-dir"
        raise AlchemyError(f"{path} needs code that is not here: {error}", hint=hint) from error
    except Exception as error:
        raise AlchemyError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _is_saved(path: Path) -> bool:
    """Whether a file begins as those of torch.save do: a zip, and in old versions a pickle."""
    with path.open("rb") as file:
        return file.read(1) == b"\x80" or zipfile.is_zipfile(path)


def _find(content: object, key: str, path: Path) -> tuple[Any, str]:
    """The weights inside what was read, and their key: the one that is asked for, else where they usually are."""
    if not key and _is_weights(content):
        return content, ""
    if not isinstance(content, Mapping):
        raise AlchemyError(f"{path} holds no weights but {type(content).__name__}")
    if key:
        keys = [str(name) for name in content]
        if key not in keys:
            hint = did_you_mean(key, keys) or f"it has {', '.join(keys[:20]) or 'no keys'}"
            raise AlchemyError(f"{path} has no key {key!r}", hint=hint)
        if not _is_weights(content[key]):
            raise AlchemyError(f"{key!r} in {path} holds no weights but {type(content[key]).__name__}")
        return content[key], key
    fitting = [str(name) for name, value in content.items() if _is_weights(value)]
    chosen = next((name for name in USUAL if name in fitting), fitting[0] if len(fitting) == 1 else "")
    if not chosen:
        hint = f"choose one of {', '.join(fitting or map(str, content))} with --key"
        raise AlchemyError(f"{path} does not say where its weights are", hint=hint)
    return content[chosen], chosen


def _is_weights(value: object) -> bool:
    if isinstance(value, nn.Module):
        return True
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())


def _fits(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.dtype in DTYPES


def _unwrapped(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names without those of wrappers that all of them begin with."""
    for prefix in WRAPPERS * 2:  # one may be around the other, in either order
        if weights and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


class _Weights:
    """Weights in the place of a model."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def state_dict(self) -> Mapping[str, Tensor]:
        return self.weights

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.weights = state


def as_files(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The files that `AlchemyModel.load` reads: each tied tensor once."""
    files = collect_state({MODEL: _Weights(weights)}).files()
    del files[STATE]
    return files
