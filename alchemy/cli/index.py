"""`alchemy index`: update or rebuild the index of records."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, Parser

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from alchemy.index.record_index import RecordIndex
    from alchemy.index.sync import Progress

EXAMPLES = """examples:
  alchemy index                         # update the index; other commands do this too
  alchemy index --rebuild               # read all records again
  alchemy index ../other-project        # look in another folder as well"""


def _arguments(parser: Parser) -> None:
    parser.add_argument("roots", nargs="*", metavar="DIR", help="folders to look in (default: the project)")
    parser.add_argument("--rebuild", action="store_true", help="read all records again, even unchanged ones")


def _main(args: argparse.Namespace) -> int:
    from alchemy.index.value_format import format_count

    begin = time.monotonic()
    with open_index(args.roots, rebuild=args.rebuild) as index:
        total, changes = len(index.query()), index.changes
    changed = f"{changes.added} added, {changes.updated} updated, {changes.removed} removed"
    print(f"{format_count(total, 'record')}: {changed} in {time.monotonic() - begin:.1f} s")
    return 0


def open_index(
    roots: Sequence[str] = (), *, names: Sequence[str] = (), rebuild: bool = False
) -> AbstractContextManager[RecordIndex]:
    """Open the index of the project, or of `roots`, and show the progress if it has to be updated."""
    from alchemy.index.record_index import RecordIndex

    return RecordIndex.open(roots, names=names, rebuild=rebuild, progress=_show_progress())


def _show_progress() -> Progress | None:
    """Return a function that shows the progress of indexing on a terminal, once it takes longer than a second."""
    if not sys.stderr.isatty():
        return None
    begin = time.monotonic()

    def show(done: int, total: int) -> None:
        if time.monotonic() - begin > 1.0:
            print(f"\rindexing {done}/{total} records", end="" if done < total else "\r\x1b[K", file=sys.stderr)

    return show


COMMAND = Command(_arguments, _main, EXAMPLES)
