"""Collect the state of all parts of a run into the files of a checkpoint, and restore it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors.torch import _remove_duplicate_names
from torch import Tensor, nn

from alchemy.checkpoint.files import TENSORS
from alchemy.checkpoint.manifest import STATE
from alchemy.checkpoint.state_tree import Name, dotted_name, join_state, split_state
from alchemy.errors import AlchemyError, Refused
from alchemy.null_objects import Stateful

# version of the saved state; version 1 stored the updater's state in the backward handler, 2 used other step seeds
VERSION = 3
MODEL, OPTIM, AVERAGE = "model", "optim", "average"
WEIGHT_PARTS = (MODEL, AVERAGE)


@runtime_checkable
class _ManyFiles(Protocol):
    """A model whose weights are saved in several files, one per named module."""

    def saved_modules(self) -> Mapping[str, nn.Module]: ...


@dataclass
class Collected:
    """The state of the parts. Tensors are named `file/name`: `model/encoder.weight` is in model.safetensors."""

    json: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    stems: set[str] = field(default_factory=set)  # files that are written even if empty

    def files(self) -> dict[str, Any]:
        """Return the files to pass to `write`."""
        files: dict[str, Any] = {STATE: {"version": VERSION, "parts": self.json}}
        files |= {f"{stem}{TENSORS}": {} for stem in sorted(self.stems)}
        for name, tensor in self.tensors.items():
            stem, _, inner = name.partition("/")
            files.setdefault(f"{stem}{TENSORS}", {})[inner] = tensor
        return files


def collect_state(parts: Mapping[str, object], only: Collection[str] = ()) -> Collected:
    """Collect the state of every part, or only of the parts named in `only`; the tensors are not copied."""
    collected = Collected()
    for part_name, part in parts.items():
        if isinstance(part, Stateful) and (not only or part_name in only):
            try:
                state = part.state_dict()
                taken = split_state(state, _make_namer(part_name, part, state))
            except Exception as error:
                raise AlchemyError(f"state_dict() of the part {part_name!r} failed: {error!r}") from error
            collected.json[part_name] = taken.json
            collected.tensors |= taken.tensors
            collected.left_out += [f"{part_name}.{name}" for name in taken.left_out]
    if MODEL in collected.json:
        collected.stems |= {MODEL, *_losses(parts[MODEL])}
    return collected


def restore(parts: Mapping[str, object], files: Mapping[str, Any], where: str) -> None:
    """Load the saved state into every part; raises an error if the saved parts differ from the parts of the run."""
    state = files.get(STATE)
    if not isinstance(state, dict) or not isinstance(state.get("parts"), dict):
        raise AlchemyError(f"{where} has no training state in {STATE}")
    version = state.get("version", 1)
    if version != VERSION:
        text = f"{where} has version {version} of the training state, but this alchemy version expects {VERSION}"
        hint = "resume it with the version that wrote it, or load its weights in a new run with [model] model_path"
        raise Refused(text, hint=hint)
    saved = state["parts"]
    wanted = {name: part for name, part in parts.items() if isinstance(part, Stateful)}
    missing, unknown = sorted(wanted.keys() - saved.keys()), sorted(saved.keys() - wanted.keys())
    if missing or unknown:
        listed = ", ".join(map(repr, missing or unknown))
        text = f"has no state for {listed}" if missing else f"has state for {listed}, which this run does not have"
        hint = "resume with the config that wrote it, or load only its weights with [model] model_path"
        raise AlchemyError(f"{where} {text}", hint=hint)
    tensors = tensors_by_reference(files)
    for name, part in wanted.items():
        try:
            part.load_state_dict(join_state(saved[name], tensors))
        except AlchemyError:
            raise
        except Exception as error:
            text = f"{where}: load_state_dict() of the part {name!r} failed: {type(error).__name__}: {error}"
            raise AlchemyError(text) from error


def tensors_by_reference(files: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of all files, keyed by their reference in the JSON."""
    return {
        f"{file.removesuffix(TENSORS)}/{name}": tensor
        for file, tensors in files.items()
        if file.endswith(TENSORS)
        for name, tensor in tensors.items()
    }


def _losses(model: object) -> set[str]:
    """Return the names of the losses that have weights."""
    return set(model.saved_modules()) - {MODEL} if isinstance(model, _ManyFiles) else set()


def _make_namer(name: str, part: object, state: Mapping[str, object]) -> Name:
    """Return the function that names the tensors of a part."""
    if name == MODEL:
        return _make_model_namer(state, _losses(part))
    if name == OPTIM:
        return lambda path: f"optim/{dotted_name(path)}"
    if name == AVERAGE:  # {"weights": {..}}: the names inside are the model's names
        return lambda path: f"ema/{dotted_name(path[1:] or path)}"
    return lambda path: f"parts/{name}.{dotted_name(path)}"


def _make_model_namer(state: Mapping[str, object], losses: Collection[str]) -> Name:
    """Return the function that assigns tensors to files: one file for the model and one per loss.

    Tensors in the extra state of a module, and partial views of another tensor, go to the parts file instead.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta:
            groups.setdefault(_stem(key, losses)[0], {})[key] = value
    views = {name for group in groups.values() for name in _partial_views(group)}

    def name(path: tuple[str, ...]) -> str:
        if len(path) > 1 or path[0] in views:
            return f"parts/{MODEL}.{dotted_name(path)}"
        return "/".join(_stem(path[0], losses))

    return name


def _stem(key: str, losses: Collection[str]) -> tuple[str, str]:
    """Return the file of a tensor and its name there. Loss weights are named like `criterion:gamma`."""
    loss, colon, inner = key.partition(":")  # other names may contain colons too
    return (loss, inner) if colon and loss in losses else (MODEL, key)


def _partial_views(tensors: dict[str, Tensor]) -> set[str]:
    """Return the names of tensors that are views of part of another tensor, but not exact duplicates."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    if len(set(places)) == len(places):
        return set()
    try:
        removed = _remove_duplicate_names(tensors)
    except RuntimeError:  # no tensor covers the whole storage, so write all of them
        return set()
    return {name for kept, names in removed.items() for name in names if not _is_same(tensors[name], tensors[kept])}


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
