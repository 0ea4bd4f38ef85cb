"""`alchemy plot`: plot the metrics of runs, in the terminal or as a picture."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, print_json
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alchemy.analysis.series import Plot
    from alchemy.index.row import Row

EXAMPLES = """examples:
  alchemy plot last                                       # the loss, and the monitored metric
  alchemy plot last~1 last --metric dev/f1 --x epoch
  alchemy plot 'tag:trec' --metric dev/f1                 # mean and band over seeds
  alchemy plot last --metric train/loss,dev/loss --metric dev/f1 --smooth 0.9 --out curves.svg
  alchemy plot last --metric train/grad_norm --log"""


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="A", help="records, or quoted filters that select several runs")
    add("--metric", action="append", default=[], metavar="NAME,..", help="metrics of one panel; may be repeated")
    add("--out", metavar="FILE", help="write a picture: .svg or .png")
    add("--smooth", type=float, default=0.0, metavar="W", help="exponential smoothing, from 0 (none) to below 1")
    add("--x", choices=("update", "epoch", "time"), default="update", help="the x-axis (default: update)")
    add("--log", action="store_true", help="logarithmic y-axis")
    add("--each", action="store_true", help="one curve per run, instead of a mean over seeds")
    add("--height", type=int, default=15, metavar="N", help="rows of a panel in the terminal (default: 15)")
    add("--json", action="store_true", help="print the points as JSON")


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.groups import select_runs
    from alchemy.analysis.series import build_plot

    check_picture(args.out)
    with open_index() as index:
        rows = [row for text in args.runs for row in select_runs(index, text)]
        names = [[name.strip() for name in text.split(",") if name.strip()] for text in args.metric]
        metrics = [group for group in names if group] or _choose_metrics(rows, index.metrics(rows))
        plot = build_plot(index, rows, metrics, x=args.x, smooth=args.smooth, log=args.log, each=args.each)
    if args.json:
        print_json(_as_data(plot))
    elif args.out:
        write_plot(plot, args.out)
    else:
        print_plot(plot, args.height)
    for note in plot.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    return 0


def _choose_metrics(rows: Sequence[Row], known: dict[int, dict[str, Any]]) -> list[list[str]]:
    from alchemy.analysis.series import choose_metrics

    found = choose_metrics({name for table in known.values() for name in table}, (row.best_metric for row in rows))
    if not found:
        raise AlchemyError("these runs have logged no loss and no monitored metric", hint="choose one with --metric")
    return found


def _as_data(plot: Plot) -> dict[str, Any]:
    return {
        "x": plot.x_label,
        "panels": [vars(panel) | {"lines": list(map(vars, panel.lines))} for panel in plot.panels],
    }


def check_picture(out: str | None) -> None:
    """Raise an error if a file cannot be written as a picture because of its name."""
    if out is not None and not out.lower().endswith((".svg", ".png")):
        raise AlchemyError(f"--out {out or repr(out)}: expected a file that ends with .svg or .png")


def write_plot(plot: Plot, out: str) -> None:
    """Write a plot as a picture."""
    from alchemy.files import write_atomic

    if out.lower().endswith(".svg"):
        from alchemy.analysis.plot_svg import draw_svg

        data: str | bytes = draw_svg(plot)
    else:
        from alchemy.analysis.plot_png import draw_png

        data = draw_png(plot)
    try:
        write_atomic(out, data)
    except OSError as error:
        raise AlchemyError(f"cannot write {out}: {error.strerror or error}") from error
    print(f"wrote {printable(out)}", file=sys.stderr)


def print_plot(plot: Plot, height: int) -> None:
    """Draw a plot in the terminal."""
    from alchemy.analysis.plot_text import draw_text
    from alchemy.analysis.screen import measure_screen

    if not 3 <= height <= 200:
        raise AlchemyError(f"--height must be between 3 and 200, got {height}")
    screen = measure_screen()
    print(draw_text(plot, screen.columns, height, color=screen.color, unicode=screen.unicode))


COMMAND = Command(_arguments, _main, EXAMPLES)
