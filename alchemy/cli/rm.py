"""`alchemy rm`: move records to the bin, and restore them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from alchemy.cli.ask import confirm
from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.cli.record_names import add_records, choose_records, find_results
from alchemy.cli.table_format import print_table
from alchemy.errors import AlchemyError, printable
from alchemy.files import readable_size

if TYPE_CHECKING:
    from alchemy.index.record_index import RecordIndex
    from alchemy.index.row import Row
    from alchemy.index.settings import ProjectSettings
    from alchemy.records.bin import Removed

EXAMPLES = """examples:
  alchemy rm last
  alchemy rm --filter 'status:failed created<-30d' --children
  alchemy rm --undo                                      # restore what the last command removed
  alchemy rm --list
The bin is .alchemy/bin; `alchemy gc` empties it."""


def _arguments(parser: Parser) -> None:
    add_records(parser)
    add = parser.add_argument
    add("--children", action="store_true", help="remove the tests and predictions of the records too")
    add("--yes", action="store_true", help="do not ask")
    add("--undo", action="store_true", help="restore RECORD.. from the bin (default: those removed last)")
    add("--list", action="store_true", help="list the bin")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.index.settings import load_settings

    if args.list or args.undo:
        if args.list and args.undo:
            raise AlchemyError("--list and --undo exclude each other")
        return _list(load_settings(), args) if args.list else _undo(load_settings(), args)
    with open_index() as index:
        rows = choose_records(index, args.records, args.filter)
        return _remove(index, rows, find_results(index, rows), args)


def _remove(index: RecordIndex, rows: list[Row], children: list[Row], args: argparse.Namespace) -> int:
    from alchemy.records.bin import check_removable, move_to_bin
    from alchemy.records.disk_usage import measure_usage
    from alchemy.records.status import now

    if args.children:
        rows = list({row.path: row for row in [*rows, *children]}.values())
    roots, seen, batch = index.settings.roots, set[tuple[int, int]](), now()
    for row in rows:  # check all of them before the first one is moved
        check_removable(row.folder, roots)
    sizes = [measure_usage(row.folder, seen).total for row in rows]
    if not args.json:
        cells = [[row.name, row.status, row.tag, row.purpose] for row in rows]
        print_table(["id", "status", "tag", "purpose"], cells, wide=["tag", "purpose"])
    what = "this record" if len(rows) == 1 else f"these {len(rows)} records"
    if not confirm(f"move {what} ({readable_size(sum(sizes))}) to the bin?", args.yes):
        return 0
    removed = [move_to_bin(index.settings.home, row.folder, roots, batch) for row in rows]
    if args.json:
        print_json([_as_data(one) for one in removed])
        return 0
    print(f"moved to {index.settings.home / 'bin'}; `alchemy rm --undo` restores")
    left = {child.path for child in children} - {row.path for row in rows}
    if left:
        print(f"tests and predictions that stay: {len(left)}; --children removes them too")
    return 0


def _list(settings: ProjectSettings, args: argparse.Namespace) -> int:
    from alchemy.records.bin import list_bin
    from alchemy.records.disk_usage import measure_usage

    found = list_bin(settings.home)
    sizes = [measure_usage(one.folder).total for one in found]
    if args.json:
        print_json([{**_as_data(one), "bytes": size} for one, size in zip(found, sizes, strict=True)])
    elif found:
        rows = [[one.id, one.when[:16], readable_size(size), one.path] for one, size in zip(found, sizes, strict=True)]
        print_table(["id", "removed", "size", "from"], rows)
    else:
        print("the bin is empty")
    return 0


def _undo(settings: ProjectSettings, args: argparse.Namespace) -> int:
    from alchemy.records.bin import list_bin, restore_record

    found = list_bin(settings.home)
    if not found:
        raise AlchemyError("the bin is empty")
    chosen = [_find(name, found) for name in args.records] or [one for one in found if one.batch == found[-1].batch]
    restored = [(one, restore_record(one, settings.roots)) for one in chosen]
    if args.json:
        print_json([_as_data(one) for one, _ in restored])
    else:
        print("\n".join(f"restored {printable(str(path))}" for _, path in restored))
    return 0


def _find(name: str, found: list[Removed]) -> Removed:
    matches = [one for one in found if one.id == name] or [one for one in found if one.id.startswith(name)]
    if len(matches) != 1:
        what = f"{len(matches)} records in the bin start" if matches else "no record in the bin starts"
        raise AlchemyError(f"{what} with {name!r}", hint="`alchemy rm --list` lists them")
    return matches[0]


def _as_data(removed: Removed) -> dict[str, str]:
    return {"id": removed.id, "path": removed.path, "bin": str(removed.folder), "removed": removed.when}


COMMAND = Command(_arguments, _main, EXAMPLES)
