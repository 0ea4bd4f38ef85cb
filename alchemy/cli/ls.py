"""`alchemy ls`: list the records of a project."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, Parser, print_json
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.index.listing import Line, Listing

EXAMPLES = """examples:
  alchemy ls
  alchemy ls 'tag:trec status:finished' --sort -dev/accuracy
  alchemy ls 'lr<1e-3 best(dev/f1)>0.9 created>-7d' --columns id,lr,dev/f1,test/f1
  alchemy ls '"focal loss" or 焦点' --each
  alchemy ls --csv > runs.csv
filters: status:failed, tag:NAME, KEY=VALUE, METRIC>NUMBER, created>-7d, "full text"; see docs/records.md"""

WATCH_SECONDS = 2.0


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("filter", nargs="*", metavar="FILTER", help="only records that match, for example 'status:failed lr<1e-3'")
    add("--in", dest="roots", action="append", default=[], metavar="DIR", help="look in DIR instead; may be repeated")
    add("--columns", metavar="NAME,..", help="fields, config keys and metrics to show; '+NAME' adds to the default")
    add("--sort", default="-created", metavar="NAME", help="field, config key or metric; -NAME is descending")
    add("--each", action="store_true", help="show every run, instead of folding runs that differ only in their seed")
    add("-n", dest="limit", type=int, default=30, metavar="N", help="show at most N lines (default: 30); 0 shows all")
    add("--all", action="store_true", help="show tests and predictions too, not only training runs")
    add("--watch", action="store_true", help="update the list every 2 seconds until you press Ctrl-C")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--csv", action="store_true", help="print CSV")


def _main(args: argparse.Namespace) -> int:
    if not args.watch:
        _show(args)
        return 0
    if args.json or args.csv:
        raise AlchemyError("--watch cannot be combined with --json or --csv")
    while True:
        sys.stdout.write("\x1b[2J\x1b[H" if sys.stdout.isatty() else "")
        _show(args)
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def _show(args: argparse.Namespace) -> None:
    from alchemy.cli.index import show_progress
    from alchemy.index.listing import build_listing
    from alchemy.index.record_index import RecordIndex

    text = " ".join(args.filter)
    shown = text if args.all or "kind" in text else f"kind:train {f'({text})' if text.strip() else ''}"
    with RecordIndex.open(args.roots, progress=show_progress()) as index:
        columns = list(index.settings.columns)
        added = args.columns or ""
        if added.startswith("+"):
            columns = [*build_listing(index, shown, limit=args.limit or None).columns, *_split(added[1:])]
        elif added:
            columns = _split(added)
        listing = build_listing(
            index, shown, columns=columns, sort=args.sort, fold=not args.each, limit=args.limit or None
        )
        roots = ", ".join(map(str, index.roots))
    if args.json:
        print_json([_as_data(line) for line in listing.lines])
    elif args.csv:
        _print_csv(listing)
    elif not listing.lines:
        print(f"no records match {text!r}" if text else f"no records below {roots}")
    else:
        _print_table(listing)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _as_data(line: Line) -> dict[str, Any]:
    runs = [{"id": row.name, "path": row.path, "status": row.status, "seed": row.seed} for row in line.runs]
    cells = {}
    for name, cell in line.cells.items():
        spread = {} if cell.deviation is None else {"std": cell.deviation, "n": cell.count}
        cells[name] = {"mean": cell.value, **spread} if spread else cell.value
    return {"columns": cells, "runs": runs}


def _print_csv(listing: Listing) -> None:
    import csv

    from alchemy.analysis.table_formats import safe_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    header = [
        name
        for column in listing.columns
        for name in ([column, f"{column} std"] if _spread(listing, column) else [column])
    ]
    writer.writerow([*map(safe_cell, header), "n", "path"])
    for line in listing.lines:
        cells: list[object] = []
        for column in listing.columns:
            cell = line.cells[column]
            cells.append("" if cell.value is None else safe_cell(cell.value))
            if _spread(listing, column):
                cells.append("" if cell.deviation is None else cell.deviation)
        writer.writerow([*cells, len(line.runs), safe_cell(line.runs[0].path)])


def _spread(listing: Listing, column: str) -> bool:
    return any(line.cells[column].deviation is not None for line in listing.lines)


def _print_table(listing: Listing) -> None:
    from alchemy.cli.table_format import print_table

    rows = [[_render(name, line) for name in listing.columns] for line in listing.lines]
    print_table(listing.columns, rows, wide={"purpose", "notes", "reason", "cmd", "path"})
    if listing.shown < listing.total:
        print(f"\n{listing.shown} of {listing.total} runs; -n 0 shows all", file=sys.stderr)


def _render(name: str, line: Line) -> str:
    from alchemy.index.listing import format_duration, format_time

    if name == "runs":
        return str(len(line.runs))
    first = line.runs[0]
    if name == "id":
        return first.name.partition(".")[0] if len(line.runs) == 1 else f"{first.name.partition('.')[0]} .."
    if name in ("created", "ended"):
        return format_time(first.started if name == "created" else first.ended)
    if name == "duration":
        value = line.cells[name].value
        return format_duration(value if isinstance(value, float) else None)
    return str(line.cells[name])


COMMAND = Command(_arguments, _main, EXAMPLES)
