"""`alchemy ls`: list the records of a project."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_limit, add_roots, print_json
from alchemy.cli.table_format import fit_table
from alchemy.errors import AlchemyError, printable
from alchemy.index.filters import TIME_FIELDS
from alchemy.index.listing import FIELD_COLUMNS, Cell, Line, Listing, build_listing, known_columns
from alchemy.index.record_index import RecordIndex
from alchemy.index.value_format import format_count, format_duration, format_iso, format_names, format_time

EXAMPLES = """examples:
  alchemy ls
  alchemy ls 'tag:trec status:finished' --sort dev/accuracy
  alchemy ls 'lr<1e-3 best(dev/f1)>0.9 created>-7d' --columns id,lr,dev/f1,test/f1
  alchemy ls '"focal loss" or 焦点' --each --columns +model.depth
  alchemy ls --csv > runs.csv
filters: status:failed, tag:NAME, KEY=VALUE, METRIC>NUMBER, created>-7d, "full text"; see docs/find-records.md"""

WATCH_SECONDS = 2.0
MOST_KEYS = 5  # in a note on config keys without a column
DISPENSABLE = ("created", "duration", "seed")  # the first columns to leave out in a narrow terminal


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("filter", nargs="*", metavar="FILTER", help="only records that match, for example 'status:failed lr<1e-3'")
    add_roots(parser)
    add("--columns", metavar="COLUMN,..", help="fields, config keys and metrics to show; '+NAME' adds to the default")
    text = "field, config key or metric to sort by: newest and best values first, others ascending (default: created)"
    add("--sort", default="created", metavar="COLUMN", help=text)
    add("--reverse", action="store_true", help="reverse the order")
    add("--each", action="store_true", help="show every run, instead of folding runs that differ only in their seed")
    add_limit(parser, 30, "lines")
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
    try:
        while True:
            _redraw(args)
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:  # the documented way to end it
        return 0


def _redraw(args: argparse.Namespace) -> None:
    """Write the list in one piece over the previous one, so that the screen does not flicker."""
    with RecordIndex.open(args.roots) as index:
        lines, notes = _view(index, _list(index, args), args)
    lines = [time.strftime("%H:%M:%S, every 2 s, Ctrl-C ends"), *lines, *notes]
    if not sys.stdout.isatty():
        print("\n".join(lines), flush=True)
        return
    lines = lines[: shutil.get_terminal_size().lines - 1]
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    sys.stdout.flush()


def _show(args: argparse.Namespace) -> None:
    with open_index(args.roots) as index:
        listing = _list(index, args)
        lines, notes = ([], []) if args.json or args.csv else _view(index, listing, args)
    if args.json:
        print_json([_as_data(line) for line in listing.lines])
    elif args.csv:
        _print_csv(listing)
    for line in lines:
        print(line)
    for note in notes:
        print(note, file=sys.stderr)


def _list(index: RecordIndex, args: argparse.Namespace) -> Listing:
    given = args.columns or ""
    more = _split(given[1:]) if given.startswith("+") else []
    return build_listing(
        index,
        " ".join(args.filter),
        columns=([] if more else _split(given)) or known_columns(index, index.settings.columns),
        more=more,
        sort=index.sort_best_first(f"-{args.sort}" if args.reverse else args.sort),
        fold=not args.each,
        limit=args.limit,
        kind="" if args.all else "train",
    )


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip().removeprefix("+"))]


def _view(index: RecordIndex, listing: Listing, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the lines of the table, and notes on what it does not show."""
    if not listing.lines:
        return [], _explain_empty(index, args)
    ids = index.shorten_ids(line.runs[0] for line in listing.lines)
    headers = {name: _shorten_key(index, name) for name in listing.columns}
    rows = [[_cell(name, line, ids) for name in listing.columns] for line in listing.lines]
    texts = {name for line in listing.lines for name, cell in line.cells.items() if isinstance(cell.value, str)}
    wide = {headers[name] for name in texts - {"id"}}  # a shortened id would be of no use
    keys = [headers[name] for name in listing.columns if headers[name] not in FIELD_COLUMNS and "/" not in name]
    optional = [] if args.columns else [*DISPENSABLE, *reversed(keys), "tags", "runs", "tag"]
    lines, left_out = fit_table(list(headers.values()), rows, wide, optional)
    notes = [f"{listing.shown} of {listing.total} runs; -n 0 shows all"] if listing.shown < listing.total else []
    if listing.further:
        count = format_count(len(listing.further), "more config key")
        verb, them = ("differs", "it") if len(listing.further) == 1 else ("differ", "them")
        option = f"--columns +{','.join(listing.further[:MOST_KEYS])}"
        notes.append(f"{count} {verb}: {format_names(listing.further, MOST_KEYS)}; show {them} with {option}")
    if left_out:
        notes.append(f"not enough space for {', '.join(left_out)}; --columns chooses what to show")
    return lines, notes


def _explain_empty(index: RecordIndex, args: argparse.Namespace) -> list[str]:
    from alchemy.analysis.groups import is_start_of_id

    text, roots = " ".join(args.filter), ", ".join(map(str, index.roots))
    if not args.all and (others := len(index.query(text))):
        return [f"no training run matches, but {format_count(others, 'other record')}: add --all"]
    if total := len(index.query()):
        hint = f"; to look at a record: alchemy show {text}" if is_start_of_id(index, text) else ""
        return [f"none of {format_count(total, 'record')} matches {printable(text)!r}{hint}"]
    return [f"no records below {roots}; `alchemy run CFG` writes one, --in DIR looks elsewhere"]


def _shorten_key(index: RecordIndex, name: str) -> str:
    """Return the shortest form of a config key that means only this key: `lr` for `optim.lr`."""
    if name in FIELD_COLUMNS or "/" in name or "(" in name:
        return name
    parts = name.split(".")
    candidates = (".".join(parts[place:]) for place in range(len(parts) - 1, 0, -1))
    meant = index.names.find_keys(name)
    return next((key for key in candidates if key not in FIELD_COLUMNS and index.names.find_keys(key) == meant), name)


def _cell(name: str, line: Line, ids: Mapping[int, str]) -> str:
    first = line.runs[0]
    if name == "id":
        return ids[first.id]
    if name in ("created", "ended"):
        return format_time(first.started if name == "created" else first.ended)
    if name == "duration":
        value = line.cells[name].value
        return format_duration(value if isinstance(value, float) else None)
    return str(line.cells[name])


def _as_data(line: Line) -> dict[str, Any]:
    runs = [{"id": row.name, "path": row.path, "status": row.status, "seed": row.seed} for row in line.runs]
    cells: dict[str, Any] = {}
    for name, cell in line.cells.items():
        spread = {} if cell.deviation is None else {"std": cell.deviation, "n": cell.n}
        cells[name] = {"mean": cell.value, **spread} if spread else _as_plain(name, cell)
    return {"columns": cells, "runs": runs}


def _as_plain(name: str, cell: Cell) -> float | str | None:
    """Return the value of a cell; times become ISO 8601 texts."""
    if name in TIME_FIELDS and isinstance(cell.value, float):
        return format_iso(cell.value)
    return cell.value


def _print_csv(listing: Listing) -> None:
    import csv

    from alchemy.analysis.table_formats import safe_cell

    spread = {name for name in listing.columns if any(line.cells[name].deviation is not None for line in listing.lines)}
    header = [part for name in listing.columns for part in ([name, f"{name} std"] if name in spread else [name])]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*map(safe_cell, header), "n", "path"])
    for line in listing.lines:
        cells: list[object] = []
        for name in listing.columns:
            value, deviation = _as_plain(name, line.cells[name]), line.cells[name].deviation
            cells.append("" if value is None else safe_cell(value))
            cells += ["" if deviation is None else deviation] if name in spread else []
        writer.writerow([*cells, len(line.runs), safe_cell(line.runs[0].path)])


COMMAND = Command(_arguments, _main, EXAMPLES)
