"""`alchemy table`: show and edit tables of results, which are files in `tables/`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, add_roots, print_json
from alchemy.cli.record_names import RECORD
from alchemy.errors import AlchemyError, printable
from alchemy.files import shorten_path

if TYPE_CHECKING:
    from alchemy.analysis.tables import ResultTable

EXAMPLES = """examples:
  alchemy table new main                            # create tables/main.toml from the records of the project
  alchemy table show main
  alchemy table show main --format latex > main.tex
  alchemy table set main "TextCNN (Kim 2014)" TREC 93.6 --source "Kim 2014, table 2" --new-row
  alchemy table link main TextCNN TREC 'best(dev/accuracy, tag:trec)'
  alchemy table save main                           # keep the results in tables/main.json, without the records"""

FORMATS = ("text", "latex", "markdown", "csv", "html")
TABLE = "the name of a table in tables/, or a file"


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, epilog=f"example:\n  alchemy table {name} {example}")

    ls = add("ls", "list the tables of the project", "--json")
    add_json(ls)
    show = add("show", "print a table", "main --format latex > main.tex")
    show.add_argument("table", metavar="TABLE", help=TABLE)
    output = show.add_mutually_exclusive_group()
    output.add_argument("--format", choices=FORMATS, default="text", help=f"{', '.join(FORMATS)} (default: text)")
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument(
        "--into",
        action="append",
        default=[],
        metavar="PAGE",
        help="write the table into a Markdown page, between <!-- table NAME --> and <!-- end of table -->",
    )
    new = add("new", "create a table from the records of the project", "main")
    new.add_argument("name", metavar="NAME", help="the table is written to tables/NAME.toml")
    put = add("set", "type in a number or a text", 'main "TextCNN (Kim 2014)" TREC 93.6 --source "Kim 2014, table 2"')
    link = add("link", "link a cell to a record, or to several", "main TextCNN TREC last")
    for editing in (put, link):
        editing.add_argument("table", metavar="TABLE", help=TABLE)
        editing.add_argument("row", metavar="ROW", help="name of the row")
        editing.add_argument("column", metavar="COLUMN", help="name of the column")
        editing.add_argument("--new-row", action="store_true", help="add the row if it does not exist")
        editing.add_argument("--source", default="", metavar="TEXT", help="where the number comes from")
    put.add_argument("value", metavar="VALUE", help="a number, or any text")
    put.add_argument("--std", type=float, metavar="X", help="standard deviation")
    put.add_argument("--n", type=int, metavar="N", help="number of runs")
    link.add_argument("records", nargs="+", metavar="RECORD", help=f"{RECORD}; several are averaged")
    save = add("save", "keep the results in a file, so that the table does not need the records", "main")
    save.add_argument("table", metavar="TABLE", help=TABLE)
    save.add_argument("--replace", action="store_true", help="update cells even if saved seeds are lost")
    for reading in (show, new, link, save):
        add_roots(reading)


def _main(args: argparse.Namespace) -> int:
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "ls": _ls,
        "show": _show,
        "new": _new,
        "set": _set,
        "link": _link,
        "save": _save,
    }
    return actions[args.action](args)


def _ls(args: argparse.Namespace) -> int:
    from alchemy.analysis.table_files import list_tables, read_table_file
    from alchemy.cli.table_format import print_table

    rows: list[dict[str, str]] = []
    for path in list_tables():
        try:
            title, problem = read_table_file(path).spec.title, ""
        except AlchemyError as error:
            title, problem = "", str(error).splitlines()[0]
        rows.append({"name": path.stem, "title": title, "path": shorten_path(path), "problem": problem})
    if args.json:
        print_json(rows)
    elif rows:
        shown = [
            [row["name"], f"error: {row['problem']}" if row["problem"] else row["title"], row["path"]] for row in rows
        ]
        print_table(["name", "title", "path"], shown, wide={"title", "path"})
    else:
        print("no tables; `alchemy table new NAME` creates one")
    return 0


def _show(args: argparse.Namespace) -> int:
    from alchemy.analysis import table_formats
    from alchemy.analysis.table_files import find_table, read_table_file
    from alchemy.analysis.tables import build_table

    file = read_table_file(find_table(args.table))
    with open_index(args.roots) as index:
        table = build_table(file, index)
    for warning in [*map(str, table.warnings), *table.stale()]:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    if args.json:
        print_json(table_formats.to_data(table))
    elif args.into:
        for page in args.into:
            write_into(Path(page), file.name, table_formats.to_markdown(table))
            print(f"wrote the table to {page}")
    elif args.format == "text":
        _print_text(table)
    else:
        formats = {
            "latex": table_formats.to_latex,
            "markdown": table_formats.to_markdown,
            "csv": table_formats.to_csv,
            "html": table_formats.to_html,
        }
        print(formats[args.format](table))
    return 0


def _print_text(table: ResultTable) -> None:
    from alchemy.cli.table_format import print_table

    spec = table.file.spec
    if spec.title:
        print(f"{printable(spec.title)}\n")
    rows = [
        [row.name, *(f"{cell} †" if cell.stale else str(cell) for cell in cells)]
        for row, cells in zip(table.rows, table.cells, strict=True)
    ]
    ansi = {1: 1, 2: 4}  # bold, underlined
    styles = {
        (line, place): ansi[cell.rank]
        for line, cells in enumerate(table.cells)
        for place, cell in enumerate(cells, start=1)
        if cell.rank
    }
    names = [column.name for column in table.columns]
    print_table([table.first_column, *names], rows, wide=[table.first_column], styles=styles)  # numbers stay whole
    notes = [spec.caption] if spec.caption else []
    notes += [f"{source}: {', '.join(cells)}" for source, cells in table.sources().items()]
    notes += ["† stale"] if table.stale() else []
    for note in notes:
        print(f"\n{printable(note)}")


def write_into(page: Path, name: str, text: str) -> None:
    """Replace the table between the markers of a Markdown page."""
    from alchemy.files import read_bytes, write_atomic

    begin, end = f"<!-- table {name} -->", "<!-- end of table -->"
    try:
        old = read_bytes(page).decode("utf-8")
        new, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n{text}\n{end}", old, flags=re.DOTALL
        )
        if not count:
            raise AlchemyError(f"{page} has no place for the table", hint=f"add a line {begin} and a line {end}")
        write_atomic(page.resolve(), new)
    except (OSError, ValueError) as error:
        raise AlchemyError(f"{page} cannot be changed: {error}") from error


def _new(args: argparse.Namespace) -> int:
    from alchemy.analysis.table_files import new_table_path, parse_table
    from alchemy.analysis.table_template import write_template
    from alchemy.files import write_atomic

    path = new_table_path(args.name)
    with open_index(args.roots) as index:
        text = write_template(index, args.name)
    parse_table(text, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise AlchemyError(f"{shorten_path(path)} cannot be written: {error.strerror or error}") from error
    print(f"created {shorten_path(path)}\nEdit it, then run: alchemy table show {args.name}")
    return 0


def _set(args: argparse.Namespace) -> int:
    from alchemy.analysis.table_files import find_table

    cell: dict[str, Any] = {"value": _parse_value(args.value)}
    cell |= {name: value for name, value in (("std", args.std), ("n", args.n)) if value is not None}
    return _edit(find_table(args.table), args, cell)


def _parse_value(text: str) -> float | int | str:
    """Return a number if the text is one that is written the same in the file, for example not '90.90'.

    >>> _parse_value("91.2"), _parse_value("90.90"), _parse_value("n/a")
    (91.2, '90.90', 'n/a')
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if repr(number) == text and text not in ("inf", "-inf", "nan"):
            return number
    return text


def _link(args: argparse.Namespace) -> int:
    from alchemy.analysis.table_files import find_table

    path = find_table(args.table)
    with open_index(args.roots) as index:
        names = list(dict.fromkeys(index.find(record).name for record in args.records))
    return _edit(path, args, {"record": names[0] if len(names) == 1 else names})


def _edit(path: Path, args: argparse.Namespace, cell: dict[str, Any]) -> int:
    from alchemy.analysis.table_edit import set_cell

    cell |= {"source": args.source} if args.source else {}
    set_cell(path, args.row, args.column, cell, new_row=args.new_row)
    print(printable(f"set {args.row} / {args.column} in {shorten_path(path)}"))
    return 0


def _save(args: argparse.Namespace) -> int:
    from alchemy.analysis.table_edit import set_results
    from alchemy.analysis.table_files import find_table, read_table_file
    from alchemy.analysis.table_results import load_results, merge_results, write_results
    from alchemy.analysis.tables import collect_results

    file = read_table_file(find_table(args.table))
    path = file.results_path or file.path.with_suffix(".json")
    with open_index(args.roots) as index:
        new = collect_results(file, index)
    shown = shorten_path(path)
    results, kept = merge_results(load_results(path), new, replace=args.replace)
    for (row, column), seeds in kept.items():
        text = f"{row} / {column} is unchanged: seeds {', '.join(seeds)} are only in {shown}; --replace drops them"
        print(f"warning: {printable(text)}", file=sys.stderr)
    if not results:
        raise AlchemyError(f"no cell of {args.table} has a run to save", hint="`alchemy table show` shows the table")
    try:
        write_results(path, results)
    except OSError as error:
        raise AlchemyError(f"{shown} cannot be written: {error.strerror or error}") from error
    if not file.spec.results:
        set_results(file.path, path.name)
    print(f"updated {len(new) - len(kept)} of {len(results)} cells in {shown}")
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
