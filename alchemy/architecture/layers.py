"""The layers of a model as a tree, in which repeated blocks are folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from alchemy.architecture.module_trace import ModuleCall, Trace

ROWS = 40  # up to this many rows, a table or graph is easy to read


@dataclass
class Layer:
    """A module. If `repeats` is above 1, it stands for siblings with equal structure; the numbers are those of one."""

    name: str
    path: str
    kind: str
    shapes: list[list[int]]  # of the outputs
    calls: int
    parameters: int
    trainable: int
    size: int  # bytes of the parameters
    flops: int
    children: list[Layer] = field(default_factory=list)
    twins: list[str] = field(default_factory=list)  # paths of the other siblings that it stands for

    @property
    def repeats(self) -> int:
        return 1 + len(self.twins)

    @property
    def range(self) -> str:
        """What follows the name of repeated blocks: `–11`."""
        return f"–{self.twins[-1].rpartition('.')[2]}" if self.twins else ""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Layer]]:
        """Yield the layer and its descendants with their depths, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def build_layers(name: str, module: nn.Module, trace: Trace) -> Layer:
    """Return the tree of a module; children are in the order of their first calls."""
    return _build("", name, module, trace)


def _build(path: str, name: str, module: nn.Module, trace: Trace) -> Layer:
    children = [_build(f"{path}.{key}".removeprefix("."), key, child, trace) for key, child in module.named_children()]
    never = len(trace.order)

    def first_call(child: Layer) -> int:
        # a part may be called on its own before the whole, such as the keys and values of a decoder's attention
        paths = [child.path] if child.path in trace.order else [each.path for _, each in child.walk()]
        return min(trace.order.get(path, never) for path in paths)

    children.sort(key=first_call)
    params = {id(param): param for param in module.parameters()}.values()  # a shared parameter counts once
    call = trace.calls.get(path, ModuleCall([]))
    return Layer(
        name=name,
        path=path,
        kind=type(module).__name__,
        shapes=call.shapes,
        calls=call.count,
        parameters=sum(param.numel() for param in params),
        trainable=sum(param.numel() for param in params if param.requires_grad),
        size=sum(param.numel() * param.element_size() for param in params),
        flops=call.flops + sum(child.flops for child in children),
        children=children,
    )


def fold(layer: Layer, trace: Trace) -> Layer:
    """Replace consecutive equal blocks of a list by the first of them.

    Blocks that call other modules, such as a residual connection around a layer that it is given, are not equal.
    """
    children: list[Layer] = []
    for child in (fold(each, trace) for each in layer.children):
        before = children[-1] if children else None
        foldable = child.name.isdecimal() and child.path not in trace.hosts
        if before is not None and foldable and _signature(before) == _signature(child):
            before.twins.append(child.path)
        else:
            children.append(child)
    return replace(layer, children=children, twins=list(layer.twins))


def _signature(layer: Layer) -> tuple[Any, ...]:
    own = (layer.kind, layer.shapes, layer.calls, layer.parameters, layer.trainable, layer.flops)
    inner = [(child.name, child.repeats, _signature(child)) for child in layer.children]
    return (*own, layer.name.isdecimal(), inner)


def limit_depth(layer: Layer, depth: int | None, rows: int = ROWS) -> Layer:
    """Remove the layers below a depth; the default is the largest depth that leaves at most `rows` layers.

    Lists of modules, which are not called themselves, do not count as a level.
    """
    if depth is not None:
        children = [limit_depth(child, depth if _is_list(child) else depth - 1) for child in layer.children]
        return replace(layer, children=children if depth > 0 else [])
    best = limit_depth(layer, 1)
    for deeper in range(2, 1 + max(level for level, _ in layer.walk())):
        found = limit_depth(layer, deeper)
        if sum(1 for _ in found.walk()) > rows:
            break
        best = found
    return best


def _is_list(layer: Layer) -> bool:
    return not layer.calls and bool(layer.children)
