"""Draw the graph of a model as SVG: one column of layers in call order, with arcs for connections that skip layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alchemy.analysis.plot_svg import escape_text
from alchemy.architecture.module_graph import Graph, Node
from alchemy.errors import display_width

WIDTH, HEIGHT = 250, 36  # of a layer
SMALL = 22  # of inputs and joins
GAP, PAD, HEAD = 16, 12, 20  # between nodes, around the nodes of a group, and for its title
LANE = 12  # between parallel arcs
LETTER = 7  # estimated width of a letter
COLORS = {  # of the light and the dark mode
    "page": ("#ffffff", "#0d1117"),
    "text": ("#24292f", "#c9d1d9"),
    "dim": ("#57606a", "#8b949e"),
    "group": ("#f6f8fa", "#161b22"),
    "frame": ("#d0d7de", "#30363d"),
    "layer": ("#ddf4ff", "#0c2d6b"),
    "edge": ("#0072b2", "#4ea8de"),
}


@dataclass
class _Box:
    """The place of a node; x is the center."""

    node: Node
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw_graph(graph: Graph, title: str) -> str:
    """Return the graph as an SVG document, which follows the light or dark mode of the reader."""
    layout = _Layout()
    bottom = layout.place(graph.root.items, 40.0)
    boxes = {box.node.path: box for box in layout.boxes if not box.node.items}
    order = {path: number for number, path in enumerate(boxes)}
    lanes = _assign_lanes(graph, order)
    half = max([WIDTH, *(box.width for box in layout.boxes)]) / 2
    left, right = (half + LANE * (2 + max(lanes.get(side, {0: 0}).values(), default=0)) for side in ("up", "down"))
    width, height = left + right, bottom + GAP
    drawn = [*map(_draw_box, sorted(layout.boxes, key=lambda box: not box.node.items))]
    drawn += [_draw_edge(boxes, order, edge, lanes, half) for edge in graph.edges]
    drawn += [_draw_title(box) for box in layout.boxes if box.node.items]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="{-left:.0f} 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape_text(title)}</title>\n'
        f"<style>\n{_style()}</style>\n{ARROW}"
        f'<rect class="page" x="{-left:.0f}" width="{width:.0f}" height="{height:.0f}"/>\n'
        f'<text class="name" x="0" y="24" text-anchor="middle">{escape_text(title)}</text>\n{"".join(drawn)}</svg>\n'
    )


ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0L6 3L0 6z"/></marker></defs>\n'
)


def _style() -> str:
    rules = [
        "text{font:12px system-ui,sans-serif}.name{font-weight:600}.group,.layer{stroke-width:1}",
        ".edge{fill:none;stroke-width:1.4}.arc{opacity:.75}.title{paint-order:stroke;stroke-width:5px}",
    ]
    for mode, media in enumerate(("", "@media (prefers-color-scheme:dark)")):
        color = {name: pair[mode] for name, pair in COLORS.items()}
        text = (
            ".page{{fill:{page}}}text{{fill:{text}}}.dim{{fill:{dim}}}.group{{fill:{group};stroke:{frame}}}"
            ".layer,.join{{fill:{layer};stroke:{edge}}}.input{{fill:{page};stroke:{dim}}}.edge{{stroke:{edge}}}"
            ".head{{fill:{edge}}}.title{{stroke:{group}}}"
        ).format(**color)
        rules.append(f"{media}{{{text}}}" if media else text)
    return "".join(f"{rule}\n" for rule in rules)


class _Layout:
    """Places nodes below each other, and groups around their nodes."""

    def __init__(self) -> None:
        self.boxes: list[_Box] = []

    def place(self, items: list[Node], y: float) -> float:
        """Place nodes from `y` downwards and return where they end."""
        for item in items:
            place = len(self.boxes)
            if item.items:
                end = self.place(item.items, y + HEAD + PAD) - GAP + PAD
                inner = max(box.width for box in self.boxes[place:])
                box = _Box(item, y, max(inner + 2 * PAD, _text_width(*_labels(item)) + 2 * PAD), end - y)
            elif item.layer is None:
                box = _Box(item, y, max(SMALL, _text_width(item.title) + 2 * PAD), SMALL)
            else:
                box = _Box(item, y, max(WIDTH, _text_width(*_labels(item)) + 2 * PAD), HEIGHT)
            self.boxes.insert(place, box)
            y = box.y + box.height + GAP
        return y


def _text_width(*lines: str) -> float:
    return LETTER * max(map(display_width, lines))


def _labels(node: Node) -> tuple[str, str]:
    """Return the two lines of a layer: its name and class, then its output shape and parameters."""
    layer = node.layer
    if layer is None:
        return node.title, ""
    times = f" × {layer.repeats}" if layer.repeats > 1 else ""
    shape = " ".join(str(shape) for shape in layer.shapes[:2]) + (" .." if len(layer.shapes) > 2 else "")
    params = f"{layer.parameters:,} parameters" if layer.parameters else ""
    return f"{node.title}  {layer.kind}{times}", "   ".join(filter(None, (shape, params)))


def _draw_box(box: _Box) -> str:
    node, (first, second) = box.node, _labels(box.node)
    kind = "group" if node.items else "layer" if node.layer else "input" if node.path.startswith("<") else "join"
    place = f'x="{-box.width / 2:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    radius = 6 if node.layer else box.height / 2
    tip = node.path if node.layer is None else f"{node.path or 'model'}: {node.layer.kind}"
    lines = [f'<g><title>{escape_text(tip)}</title><rect class="{kind}" {place} rx="{radius:.0f}"/>']
    if node.layer is None:
        lines.append(f'<text x="0" y="{box.middle + 4:.1f}" text-anchor="middle">{escape_text(first)}</text>')
    elif not node.items:
        y = box.y + (15 if second else 22)
        lines.append(f'<text class="name" x="0" y="{y:.1f}" text-anchor="middle">{escape_text(first)}</text>')
        lines.append(f'<text class="dim" x="0" y="{box.y + 29:.1f}" text-anchor="middle">{escape_text(second)}</text>')
    return "".join(lines) + "</g>\n"


def _draw_title(box: _Box) -> str:
    """Draw the title of a group, after the edges, which may cross it."""
    x, y = -box.width / 2 + PAD, box.y + 18
    return f'<text class="name title" x="{x:.1f}" y="{y:.1f}">{escape_text(_labels(box.node)[0])}</text>\n'


def _assign_lanes(graph: Graph, order: Mapping[str, int]) -> dict[str, dict[tuple[str, str], int]]:
    """Return the lane of each arc, counted from the column: downward arcs on the right, upward arcs on the left."""
    found: dict[str, dict[tuple[str, str], int]] = {"up": {}, "down": {}}
    taken: dict[str, list[tuple[int, int, int]]] = {"up": [], "down": []}
    for edge in sorted(graph.edges, key=lambda edge: abs(order[edge[1]] - order[edge[0]])):
        low, high = sorted((order[edge[0]], order[edge[1]]))
        side = "down" if order[edge[1]] > order[edge[0]] else "up"
        if side == "down" and high - low == 1:
            continue  # a straight arrow
        crossed = {lane for start, end, lane in taken[side] if start < high and low < end}
        lane = next(lane for lane in range(1, len(graph.edges) + 2) if lane not in crossed)
        taken[side].append((low, high, lane))
        found[side][edge] = lane
    return found


def _draw_edge(
    boxes: Mapping[str, _Box],
    order: Mapping[str, int],
    edge: tuple[str, str],
    lanes: Mapping[str, Mapping[tuple[str, str], int]],
    half: float,
) -> str:
    source, target = boxes[edge[0]], boxes[edge[1]]
    tip = f"<title>{escape_text(f'{edge[0]} → {edge[1]}')}</title>"
    side = "up" if order[edge[1]] < order[edge[0]] else "down"
    lane = lanes[side].get(edge)
    if lane is None:
        path, kind = f"M0 {source.y + source.height:.1f}V{target.y:.1f}", "edge"
    else:
        sign, kind = (1 if side == "down" else -1), "edge arc"
        x, start, end = sign * (half + LANE * lane), source.middle + 5, target.middle - 5
        path = f"M{sign * source.width / 2:.1f} {start:.1f}H{x:.1f}V{end:.1f}H{sign * target.width / 2:.1f}"
    return f'<path class="{kind}" d="{path}" marker-end="url(#arrow)">{tip}</path>\n'
