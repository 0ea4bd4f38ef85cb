"""The state of all parts of a run, laid out over the files of a checkpoint, and back."""

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

VERSION = 3  # of what the parts save; 1: the backward handler had the state of the updater; 2: other seeds of steps
MODEL, OPTIM, AVERAGE = "model", "optim", "average"
WEIGHT_PARTS = (MODEL, AVERAGE)


@runtime_checkable
class _ManyFiles(Protocol):
    """A model whose weights go to several files, by their names."""

    def saved_modules(self) -> Mapping[str, nn.Module]: ...


@dataclass
class Collected:
    """The state of the parts. A tensor is called `file/name`: `model/encoder.weight` is in model.safetensors."""

    json: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    stems: set[str] = field(default_factory=set)  # files that are there even if they hold nothing

    def files(self) -> dict[str, Any]:
        """What `write` takes."""
        files: dict[str, Any] = {STATE: {"version": VERSION, "parts": self.json}}
        files |= {f"{stem}{TENSORS}": {} for stem in sorted(self.stems)}
        for name, tensor in self.tensors.items():
            stem, _, inner = name.partition("/")
            files.setdefault(f"{stem}{TENSORS}", {})[inner] = tensor
        return files


def collect_state(parts: Mapping[str, object], only: Collection[str] = ()) -> Collected:
    """Asks every part for its state, or those that `only` names; the tensors are still those of the parts."""
    collected = Collected()
    for part_name, part in parts.items():
        if isinstance(part, Stateful) and (not only or part_name in only):
            try:
                state = part.state_dict()
                taken = split_state(state, _naming(part_name, part, state))
            except Exception as error:
                raise AlchemyError(f"the part {part_name!r} cannot give its state: {error!r}") from error
            collected.json[part_name] = taken.json
            collected.tensors |= taken.tensors
            collected.left_out += [f"{part_name}.{name}" for name in taken.left_out]
    if MODEL in collected.json:
        collected.stems |= {MODEL, *_losses(parts[MODEL])}
    return collected


def restore(parts: Mapping[str, object], files: Mapping[str, Any], where: str) -> None:
    """Hands every part the state that a checkpoint has of it; each must be there, and no other."""
    state = files.get(STATE)
    if not isinstance(state, dict) or not isinstance(state.get("parts"), dict):
        raise AlchemyError(f"{where} has no state of a training in {STATE}")
    version = state.get("version", 1)
    if version != VERSION:
        text = f"{where} has version {version} of the training state, and this alchemy continues from version {VERSION}"
        hint = "resume it with the alchemy that wrote it, or take its weights into a new run with [model] model_path"
        raise Refused(text, hint=hint)
    saved = state["parts"]
    wanted = {name: part for name, part in parts.items() if isinstance(part, Stateful)}
    missing, unknown = sorted(wanted.keys() - saved.keys()), sorted(saved.keys() - wanted.keys())
    if missing or unknown:
        listed = ", ".join(map(repr, missing or unknown))
        text = f"has no state of {listed}" if missing else f"has the state of {listed}, which this run does not have"
        hint = "go on with the config that wrote it, or take only its weights with [model] model_path"
        raise AlchemyError(f"{where} {text}", hint=hint)
    tensors = by_reference(files)
    for name, part in wanted.items():
        try:
            part.load_state_dict(join_state(saved[name], tensors))
        except AlchemyError:
            raise
        except Exception as error:
            text = f"{where}: the part {name!r} cannot take its saved state: {type(error).__name__}: {error}"
            raise AlchemyError(text) from error


def by_reference(files: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of all files as the JSON names them."""
    return {
        f"{file.removesuffix(TENSORS)}/{name}": tensor
        for file, tensors in files.items()
        if file.endswith(TENSORS)
        for name, tensor in tensors.items()
    }


def _losses(model: object) -> set[str]:
    """The losses that have weights."""
    return set(model.saved_modules()) - {MODEL} if isinstance(model, _ManyFiles) else set()


def _naming(name: str, part: object, state: Mapping[str, object]) -> Name:
    """How the tensors of a part are called."""
    if name == MODEL:
        return _model_naming(state, _losses(part))
    if name == OPTIM:
        return lambda path: f"optim/{dotted_name(path)}"
    if name == AVERAGE:  # {"weights": {..}}: inside, the names are those of the model
        return lambda path: f"ema/{dotted_name(path[1:] or path)}"
    return lambda path: f"parts/{name}.{dotted_name(path)}"


def _model_naming(state: Mapping[str, object], losses: Collection[str]) -> Name:
    """Names for `AlchemyModel.load`: the model in one file, each loss in its own, and no overlapping tensors in either.

    What a loader of weights does not expect goes to the parts: what a module keeps beside its tensors, and names that
    are windows on another tensor.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta:
            groups.setdefault(_stem(key, losses)[0], {})[key] = value
    windows = {name for group in groups.values() for name in _windows(group)}

    def name(path: tuple[str, ...]) -> str:
        if len(path) > 1 or path[0] in windows:
            return f"parts/{MODEL}.{dotted_name(path)}"
        return "/".join(_stem(path[0], losses))

    return name


def _stem(key: str, losses: Collection[str]) -> tuple[str, str]:
    """The file and the name in it: a loss's weights are called `criterion:gamma`; a module's may have a colon, too."""
    loss, colon, inner = key.partition(":")
    return (loss, inner) if colon and loss in losses else (MODEL, key)


def _windows(tensors: dict[str, Tensor]) -> set[str]:
    """Names whose tensor shows a part of another one's memory. Whole duplicates are not among them: one name stays."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    if len(set(places)) == len(places):
        return set()
    try:
        removed = _remove_duplicate_names(tensors)
    except RuntimeError:  # none of them shows the whole memory: all are written
        return set()
    return {name for kept, names in removed.items() for name in names if not _same(tensors[name], tensors[kept])}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
