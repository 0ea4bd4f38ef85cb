"""The graph of a model: layers as nodes in nested groups, and edges between outputs and inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from alchemy.architecture.layers import Layer
from alchemy.architecture.module_trace import JOIN, Trace


@dataclass
class Node:
    """A layer, an input or a join; if it has items, a group of them."""

    path: str
    title: str
    layer: Layer | None = None  # None for inputs and joins
    items: list[Node] = field(default_factory=list)

    def leaves(self) -> Iterator[Node]:
        """Yield the nodes that are not groups, in drawing order."""
        if not self.items:
            yield self
        for item in self.items:
            yield from item.leaves()


@dataclass
class Graph:
    """A graph with a root group; edges connect the paths of nodes that are not groups."""

    root: Node
    edges: list[tuple[str, str]]


def build_graph(layer: Layer, trace: Trace) -> Graph:
    """Return the graph of a tree that is folded and cut. Layers that were not called are left out."""
    names = _Names(layer, trace)
    # an edge to the next repetition of a block is implied
    within = [edge for edge in trace.edges if not names.are_in_different_blocks(*edge)]
    edges = dict.fromkeys((names.find(source), names.find(target)) for source, target in within)
    edges = _remove_dead_ends({edge: None for edge in edges if edge[0] != edge[1]})
    used = {path for edge in edges for path in edge}
    root = names.group(layer, used)
    inputs = [path for path in used if path.startswith("<")]
    root.items[:0] = [Node(path, path.strip("<>")) for path in sorted(inputs)]
    place = {node.path for node in root.leaves()}
    return Graph(root, [edge for edge in edges if edge[0] in place and edge[1] in place])


class _Names:
    """Maps the paths of a trace to the nodes that stand for them."""

    def __init__(self, layer: Layer, trace: Trace) -> None:
        self.trace = trace
        layers = [each for _, each in layer.walk()]
        self.first_of = {twin: each.path for each in layers for twin in each.twins}
        self.units = {each.path for each in layers if not each.children}

    def find(self, path: str) -> str:
        """Return the node for a path: itself, the layer that contains it, or the first of repeated layers."""
        found = path
        for found, _ in self._prefixes(path):
            if found in self.units:
                break
        return found

    def are_in_different_blocks(self, source: str, target: str) -> bool:
        """Return whether two paths are in different repetitions of the same block."""
        blocks = dict(self._prefixes(source))
        return any(blocks.get(first, name) != name for first, name in self._prefixes(target))

    def _prefixes(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield the first parts of a path of increasing length with repetitions replaced by the first one, and the last
        name of each before that.
        """
        found = ""
        for name in () if path.startswith("<") else path.split("."):
            found = f"{found}.{name}".removeprefix(".")
            found = self.first_of.get(found, found)
            yield found, name

    def group(self, layer: Layer, used: set[str], within: str = "") -> Node:
        """Return the node of a layer with those of its children, and with the joins in it, in call order."""
        items = list(self._items(layer, used, layer.path))
        items.sort(key=lambda item: self._first_entry(item.path))
        return Node(layer.path, f"{layer.path.removeprefix(within).removeprefix('.')}{layer.range}", layer, items)

    def _items(self, layer: Layer, used: set[str], within: str) -> Iterator[Node]:
        for child in layer.children:
            # the parts of lists, and of modules that call others, are drawn among those that they are called with
            is_group = bool(child.twins or not child.children or (child.calls and child.path not in self.trace.hosts))
            if is_group and self._is_called(child):
                yield self.group(child, used, within)
            elif not is_group:
                yield from self._items(child, used, within)
        for path, symbol in self.trace.joins.items() if layer.children else ():
            if path in used and _parent(path) == layer.path:
                yield Node(path, symbol)

    def _is_called(self, layer: Layer) -> bool:
        return layer.calls > 0 or any(path.startswith(f"{layer.path}.") for path in self.trace.calls)

    def _first_entry(self, path: str) -> int:
        """Return when a module was entered; for a list, when the first of its modules was entered."""
        inner = (place for other, place in self.trace.order.items() if other.startswith(f"{path}."))
        return self.trace.order[path] if path in self.trace.order else min(inner, default=0)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _is_join(path: str) -> bool:
    return path.rpartition(".")[2].startswith(JOIN)


def _remove_dead_ends(edges: dict[tuple[str, str], None]) -> dict[tuple[str, str], None]:
    """Remove joins that no layer reads, such as those of the loss, and replace joins of a single node by it."""
    while True:
        joins = {path for edge in edges for path in edge if _is_join(path)}
        for path in joins:
            before, after = _neighbors(edges, path)
            if not after or len(before) < 2:
                kept = {edge: None for edge in edges if path not in edge}
                edges = kept | {(source, target): None for source in before for target in after if source != target}
                break
        else:
            return edges


def _neighbors(edges: Iterable[tuple[str, str]], path: str) -> tuple[list[str], list[str]]:
    before = [source for source, target in edges if target == path]
    return before, [target for source, target in edges if source == path]
