"""`alchemy find`: search for a learning rate or a batch size."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, Parser, add_configs, add_json, add_trial
from alchemy.cli.verify import load_checked_config, print_report

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.verify.finders import Rates, Sizes

EXAMPLES = """examples:
  alchemy find lr train.toml --device 0
  alchemy find lr train.toml --first 1e-6 --last 0.1 --updates 200
  alchemy find batch-size train.toml --device 0
  alchemy find batch-size train.toml --max 256 --json"""

BARS = "▁▂▃▄▅▆▇█"
ROWS = 20


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="WHAT", required=True)
    rate = actions.add_parser("lr", help="train briefly with a growing learning rate", epilog=EXAMPLES)
    add_configs(rate, many=False)
    add = rate.add_argument
    add("--first", type=float, default=1e-7, metavar="RATE", help="first learning rate (default: 1e-7)")
    add("--last", type=float, default=1.0, metavar="RATE", help="last learning rate (default: 1)")
    add("--updates", type=int, default=100, metavar="N", help="number of updates (default: 100)")
    size = actions.add_parser("batch-size", help="find the largest batch size that fits in memory", epilog=EXAMPLES)
    add_configs(size, many=False)
    size.add_argument("--max", type=int, metavar="N", help="largest batch size to try; required on the CPU")
    for action in (rate, size):
        add_trial(action)
        add_json(action)


def _main(args: argparse.Namespace) -> int:
    document = load_checked_config(args)
    with contextlib.redirect_stdout(sys.stderr):  # only the result goes to standard output
        found = _find(document, args)
    print_report(
        found.as_data() if args.json else _render_rates(found) if args.action == "lr" else _render_sizes(found)
    )
    return 0 if (found.steepest if args.action == "lr" else found.best) else 1


def _find(document: Document, args: argparse.Namespace) -> Any:
    from alchemy.verify.finders import find_batch_size, find_rate

    more = {"device": args.device, "user_dir": args.user_dir}
    if args.action == "lr":
        return find_rate(document, first=args.first, last=args.last, updates=args.updates, **more)
    return find_batch_size(document, limit=args.max, **more)


def _render_rates(found: Rates) -> str:
    step = max(1, len(found.rates) // ROWS)
    rows = list(zip(found.rates, found.losses, strict=True))[::step]
    top, bottom = found.losses[0], min(found.losses)
    lines = [f"{rate:9.2e}  {loss:11.5g}  {_bar(loss, bottom, top)}" for rate, loss in rows]
    head = f"{'rate':>9}  {'loss':>11}"
    return "\n".join([head, *lines, f"ended: {found.ended}", "", _advice(found)])


def _advice(found: Rates) -> str:
    if found.steepest is None or found.lowest is None:
        return "the loss did not decrease: try other rates (--first, --last) or more --updates, or check the data"
    return (
        f"suggested: lr = {found.steepest:.1e}, where the loss fell fastest; it was lowest at {found.lowest:.1e} "
        f"(a tenth of that is {found.lowest / 10:.1e})"
    )


def _bar(value: float, bottom: float, top: float) -> str:
    """
    >>> _bar(0.5, 0.0, 1.0), _bar(7.0, 0.0, 1.0)
    ('▅', '█')
    """
    share = (value - bottom) / (top - bottom) if top > bottom else 0.0
    return BARS[min(7, max(0, int(share * 7 + 0.5)))] if share == share else "!"


def _render_sizes(found: Sizes) -> str:
    lines = [f"{'batch_size':>10}  result"]
    for row in found.tries:
        peak = "" if row.peak is None else f", peak {row.peak:.0f} MiB"
        lines.append(f"{row.batch_size:>10}  {'fits' if row.fits else 'out of memory'}{peak}")
    if not found.best:
        return "\n".join(
            [*lines, "", "not even one sample fits: set recompute or dtype in [precision], or use a smaller model"]
        )
    end = f"; the largest size tried ({found.why})" if found.best == found.limit else ""
    return "\n".join([*lines, "", f"batch_size = {found.best} fits, measured with the largest samples{end}"])


COMMAND = Command(_arguments, _main, EXAMPLES)
