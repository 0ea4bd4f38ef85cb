"""`alchemy gc`: delete what is no longer needed."""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.cli.table_format import print_table
from alchemy.errors import AlchemyError, printable
from alchemy.files import readable_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from alchemy.analysis.garbage import Garbage
    from alchemy.index.record_index import RecordIndex

EXAMPLES = """examples:
  alchemy gc                                   # show what could be deleted; deletes nothing
  alchemy gc --yes
  alchemy gc --keep best --filter 'tag:trec' --yes
  alchemy gc --bin-days 0 --keep all --yes     # empty the bin
Only finished runs lose checkpoints, and every run keeps at least one. Running records are never touched."""

DAYS = 30.0


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    text = "checkpoints that finished runs keep: best, last, best,last (default), or all"
    add("--keep", type=_parse_keep, default=("best", "last"), metavar="NAME,..", help=text)
    add("--filter", default="", metavar="FILTER", help="only the checkpoints of runs that match, as in 'alchemy ls'")
    text = f"delete records that were moved to the bin more than N days ago (default: {DAYS:g})"
    add("--bin-days", type=float, default=DAYS, metavar="N", help=text)
    text = f"delete cached samples that were not read for N days (default: {DAYS:g})"
    add("--cache-days", type=float, default=DAYS, metavar="N", help=text)
    add("--yes", action="store_true", help="delete it; without this option, nothing is deleted")
    add_json(parser)


def _parse_keep(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= {"best", "last", "all"} or ("all" in names and len(names) > 1):
        raise argparse.ArgumentTypeError(f"expected best, last, best,last or all, got {text!r}")
    return names


def _main(args: argparse.Namespace) -> int:

    for name, days in (("--bin-days", args.bin_days), ("--cache-days", args.cache_days)):
        if not 0 <= days < math.inf:
            raise AlchemyError(f"{name} must be a number of days >= 0, got {days}", hint=f"for example {name} 30")
    with open_index() as index:
        found, home = list(_find(index, args)), index.settings.home
    failed = 0
    if args.yes:
        wanted, found = found, _delete(found)
        failed = len(wanted) - len(found)
    if args.json:
        rows = [{"what": one.what, "path": str(one.path), "items": one.items, "bytes": one.bytes} for one in found]
        print_json({"deleted": args.yes, "bytes": sum(one.bytes for one in found), "found": rows})
    elif not found:
        print("nothing to delete")
    else:
        cells = [[one.what, readable_size(one.bytes), str(one.path), " ".join(one.items)] for one in found]
        print_table(["what", "size", "where", "items"], cells, wide=["where", "items"])
        total = readable_size(sum(one.bytes for one in found))
        print(f"{total} deleted" if args.yes else f"{total} could be deleted: add --yes")
    if not args.json:
        _tell_bin(home, {one.path for one in found})
    return 1 if failed else 0


def _find(index: RecordIndex, args: argparse.Namespace) -> Iterator[Garbage]:
    from alchemy.analysis.garbage import find_checkpoints, find_in_bin, find_leftovers

    for row in index.query(args.filter, sort="created"):
        if "all" not in args.keep:
            yield from find_checkpoints(row, args.keep)
        yield from find_leftovers(row)
    yield from find_in_bin(index.settings.home, args.bin_days)
    if (cache := index.settings.home / "cache").is_dir():
        yield from _find_cache(cache, args.cache_days)


def _tell_bin(home: Path, found: set[Path]) -> None:
    """Say what is left in the bin because it is not old enough."""
    from alchemy.index.value_format import format_count
    from alchemy.records.bin import list_bin
    from alchemy.records.disk_usage import measure_usage

    left = [removed.folder for removed in list_bin(home) if removed.folder not in found]
    if left:
        size, seen = 0, set[tuple[int, int]]()
        for folder in left:
            size += measure_usage(folder, seen).total
        count = format_count(len(left), "record")
        print(f"the bin has {count} ({readable_size(size)}); `alchemy gc --bin-days 0` includes them")


def _find_cache(folder: Path, days: float) -> Iterator[Garbage]:
    from alchemy.analysis.garbage import DAY, Garbage
    from alchemy.data.cache.entries import list_entries

    for entry in list_entries(folder, "sizes"):
        if time.time() - entry.used > days * DAY:
            yield Garbage("cache", entry.folder, (entry.key[:12],), entry.bytes, partial(_remove, folder, entry.key))


def _remove(folder: Path, key: str) -> None:
    from alchemy.data.cache.entries import remove

    if not remove(folder, [key]):
        raise AlchemyError("it is being written by another process")


def _delete(found: list[Garbage]) -> list[Garbage]:
    """Delete everything, and return what was deleted; what cannot be deleted is reported."""
    deleted = []
    for one in found:
        try:
            one.delete()
            deleted.append(one)
        except (AlchemyError, OSError) as error:
            print(printable(f"warning: {one.path} was not deleted: {error}"), file=sys.stderr)
    return deleted


COMMAND = Command(_arguments, _main, EXAMPLES)
