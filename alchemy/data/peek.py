"""Show the first samples after each pipe of a dataset."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from alchemy.data.padding import clip_text, value_text
from alchemy.data.pipe_chain import has_index, link_of, members, seed_chain, title
from alchemy.data.pipe_errors import locate_error
from alchemy.errors import AlchemyError
from alchemy.registry import parameters
from alchemy.seeds import set_current_sample

WIDTH = 100


@dataclass
class Stage:
    """A pipe, its settings and its first samples."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    length: int | None = None
    takes: Mapping[str, str] | None = None
    gives: Mapping[str, str] | None = None
    error: str = ""

    @property
    def shapes(self) -> list[str]:
        """The type of each item, such as `{ids: int64[12], text: str}`."""
        return [describe(item) for item in self.items]


def peek(dataset: object, n: int = 3, *, seed: int = 0, collate_fn: Any = None) -> list[Stage]:
    """Return the stages of a chain, source first; stop at the first stage that fails, with its `error` set.

    Every stage is read from the start with the same seed, so that all stages show the same samples.
    """
    if n < 1:
        raise AlchemyError(f"the number of samples must be at least 1, got {n}")
    chain: list[Any] = [dataset]
    while isinstance(above := link_of(chain[-1]).datapipe, Dataset):  # a list of files is a setting, not a stage
        chain.append(above)
    stages: list[Stage] = []
    for pipe in reversed(chain):
        seed_chain(dataset, seed)
        stages.append(_read_stage(pipe, n, seed))
        if stages[-1].error:
            return stages
    if collate_fn is not None:
        stages.append(_collate_stage(collate_fn, stages[-1].items))
    seed_chain(dataset, seed)
    return stages


def render(stages: list[Stage]) -> str:
    """Format the stages as text for a terminal."""
    lines: list[str] = []
    for number, stage in enumerate(stages, 1):
        settings = ", ".join(f"{key} = {_short(value, 40)}" for key, value in stage.params.items())
        length = "" if stage.length is None else f"  [{stage.length}]"
        lines.append(f"{number}. {stage.name}({settings}){length}")
        for word, fields in (("takes", stage.takes), ("gives", stage.gives)):
            if fields:
                lines.append(f"   {word} {', '.join(f'{name}: {kind}' for name, kind in fields.items())}")
        for item, shape in zip(stage.items, stage.shapes, strict=True):
            lines += [f"   - {_short(item, WIDTH)}", f"     {clip_text(shape, WIDTH)}"]
        if stage.error:
            lines.append(f"   ! {stage.error}")
        elif not stage.items:
            lines.append("   ! yields nothing")
    return "\n".join(lines)


def describe(item: object, depth: int = 0) -> str:
    """Describe the type of a value, with dtype and shape if it has them."""
    if isinstance(item, Tensor | np.ndarray):
        dtype = str(item.dtype).removeprefix("torch.")
        return f"{'tensor ' if isinstance(item, Tensor) else ''}{dtype}[{', '.join(map(str, item.shape))}]"
    if isinstance(item, Mapping) and depth < 4:
        return "{" + ", ".join(f"{key}: {describe(value, depth + 1)}" for key, value in item.items()) + "}"
    if isinstance(item, list | tuple) and depth < 4:
        kinds = list(dict.fromkeys(describe(value, depth + 1) for value in itertools.islice(item, 8)))
        return f"{type(item).__name__}[{len(item)}]" + (f" of {' | '.join(kinds[:3])}" if kinds else "")
    return type(item).__name__


def _read_stage(pipe: Any, n: int, seed: int) -> Stage:
    stage = Stage(title(pipe), _get_params(pipe), takes=link_of(pipe).takes, gives=link_of(pipe).gives)
    with contextlib.suppress(TypeError, NotImplementedError):
        stage.length = len(pipe)
    try:
        for item in itertools.islice(_iter_samples(pipe, seed), n):
            stage.items.append(item)
    except Exception as error:
        stage.error = _format_error(error)
    return stage


def _iter_samples(pipe: Any, seed: int) -> Iterator[Any]:
    """Read samples as a loader does; if the data has an index, seed the random numbers of each sample."""
    if not has_index(pipe):
        yield from pipe
        return
    for index in range(len(pipe)):
        set_current_sample(seed, index)
        yield pipe[index]


def _format_error(error: Exception) -> str:
    known = locate_error(error)
    if known is None and not isinstance(error, AlchemyError):
        return f"{type(error).__name__}: {error}"
    return str(known or error)


def _collate_stage(collate_fn: Any, items: list[Any]) -> Stage:
    name = (collate_fn if isinstance(collate_fn, FunctionType) else type(collate_fn)).__qualname__
    stage = Stage(f"collate_fn {name}")
    batches = items if items and isinstance(items[0], list | tuple) else [items]
    try:
        stage.items = [collate_fn(batch) for batch in batches]
    except Exception as error:
        stage.error = _format_error(error)
    return stage


def _get_params(pipe: object) -> dict[str, Any]:
    """Return the settings of a pipe: the constructor parameters that it stores under the same name."""
    kept, names = members(pipe), parameters(type(pipe))[0]
    return {name: kept[name] for name in names if name in kept and not isinstance(kept[name], Dataset)}


def shorten_item(item: object) -> str:
    """Format the values of a sample or batch, shortened for a terminal."""
    return _short(item, 3 * WIDTH)


def _short(value: object, width: int) -> str:
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Tensor | np.ndarray):
        return value_text(value.tolist(), width)
    return value_text(value, width)
