"""`alchemy model`: the layers of a model with their shapes, parameters and FLOPs, and its graph."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, add_json, add_overrides, add_user_dir, print_json
from alchemy.cli.record_names import RECORD
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.architecture.examine import Architecture
    from alchemy.architecture.layers import Layer

EXAMPLES = """examples:
  alchemy model train.toml                       # the layers of a model
  alchemy model train.toml --depth 3
  alchemy model last --graph model.svg           # draw the graph of the model
  alchemy model train.toml --set model.hidden=64 --json"""


NODES = 30  # up to this many layers, a graph is easy to read


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="CFG|RECORD", help=f"{RECORD}, or a config file")
    add("--depth", type=int, metavar="N", help="levels of nested layers to show (default: as many as are readable)")
    add("--graph", default="", metavar="FILE.svg", help="draw the layers and their connections")
    add_overrides(parser)
    add_user_dir(parser)
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.architecture.examine import examine_model
    from alchemy.architecture.layers import fold, limit_depth
    from alchemy.cli.target import open_target
    from alchemy.plugins.log_sinks import console_log
    from alchemy.progress import Terminal

    if args.depth is not None and args.depth < 1:
        raise AlchemyError(f"--depth must be at least 1, got {args.depth}")
    if args.graph and not args.graph.lower().endswith(".svg"):
        raise AlchemyError(f"--graph {args.graph}: expected a file that ends with .svg")
    with console_log(Terminal(stderr=True), "WARNING"):
        found = examine_model(open_target(args, quiet=True, weights=False).document)
    folded = fold(found.layers, found.trace)
    layers = limit_depth(folded, args.depth)
    if args.graph:
        _write_graph(found, limit_depth(folded, args.depth, NODES), args.graph)
    if args.json:
        print_json(_as_data(found, layers))
    elif not args.graph:
        _print(found, layers)
    if found.note:
        print(printable(f"note: {found.note}"), file=sys.stderr)
    return 0


def _write_graph(found: Architecture, layers: Layer, out: str) -> None:
    from alchemy.architecture.graph_svg import draw_graph
    from alchemy.architecture.module_graph import build_graph
    from alchemy.files import write_atomic

    if not found.trace.calls:
        raise AlchemyError(f"the graph needs a batch: {found.note}")
    try:
        write_atomic(out, draw_graph(build_graph(layers, found.trace), found.name))
    except OSError as error:
        raise AlchemyError(f"cannot write {out}: {error.strerror or error}") from error
    print(f"wrote {printable(out)}", file=sys.stderr)


def _as_data(found: Architecture, layers: Layer) -> dict[str, Any]:
    batch = {"split": found.split, "samples": found.samples, "fields": found.batch} if found.split else None
    return {"model": found.name, "batch": batch, "layers": _layer_data(layers), "note": found.note}


def _layer_data(layer: Layer) -> dict[str, Any]:
    fields = {name: value for name, value in vars(layer).items() if name not in ("children", "twins")}
    return fields | {"repeats": layer.repeats, "children": list(map(_layer_data, layer.children))}


def _print(found: Architecture, layers: Layer) -> None:
    from alchemy.cli.table_format import print_table
    from alchemy.files import readable_size

    samples = max(found.samples, 1)
    rows = [_render(layer, depth, samples) for depth, layer in layers.walk()]
    print_table(["layer", "class", "output", "parameters", "FLOPs"], rows, wide={"layer", "output"})
    frozen = layers.parameters - layers.trainable
    print(
        f"\nparameters: {layers.parameters:,} ({layers.trainable:,} trainable, {frozen:,} frozen), "
        f"{readable_size(layers.size)}"
    )
    if found.split:
        print(f"FLOPs per sample: {_short(layers.flops / samples)}, forward pass only")
        print(printable(f"batch: {found.samples} samples of {found.split!r}: {found.batch}"))


def _render(layer: Layer, depth: int, samples: int) -> list[str]:
    times = f"{layer.repeats} × " if layer.repeats > 1 else ""
    shape = " ".join(map(str, layer.shapes[:2])) + (" .." if len(layer.shapes) > 2 else "")
    state = "" if layer.trainable == layer.parameters else " frozen" if not layer.trainable else " partly frozen"
    params = f"{times}{layer.parameters:,}{state}" if layer.parameters else ""
    flops = f"{times}{_short(layer.flops / samples)}" if layer.flops else ""
    # not leading spaces, which a table removes
    indent = "· " * depth
    calls = f", {layer.calls} calls" if layer.calls > 1 else ""
    return [f"{indent}{layer.name}{layer.range}", f"{layer.kind}{calls}", shape, params, flops]


def _short(number: float) -> str:
    """
    >>> _short(1234567), _short(980), _short(2.5e9)
    ('1.23 M', '980', '2.5 G')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number < 100 * size else f"{number / size:.0f} {unit}"
    return f"{number:.0f}"


COMMAND = Command(_arguments, _main, EXAMPLES)
