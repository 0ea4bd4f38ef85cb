"""`alchemy archive`: pack records into one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser
from alchemy.cli.record_names import add_records, choose_records, find_results
from alchemy.errors import printable
from alchemy.files import readable_size

EXAMPLES = """examples:
  alchemy archive last -o run.tar.gz
  alchemy archive 'best(dev/f1)' --children -o best.tar.gz
  alchemy archive --filter tag:paper --no-checkpoints -o paper.tar.gz
Unpack it with `alchemy import`, or with tar. For a trained model alone, see `alchemy export`."""


def _arguments(parser: Parser) -> None:
    add_records(parser)
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="FILE", help="the archive to write: FILE.tar.gz or FILE.tar")
    add("--children", action="store_true", help="add the tests and predictions of the records too")
    add("--no-checkpoints", action="store_true", help="leave out checkpoints, which are most of the size")


def _main(args: argparse.Namespace) -> int:
    from alchemy.index.value_format import format_count
    from alchemy.records.archive import write_archive

    with open_index() as index:
        rows = choose_records(index, args.records, args.filter)
        if args.children:
            rows += find_results(index, rows)
    folders = list(dict.fromkeys(row.folder for row in rows))
    packed = write_archive(Path(args.output), folders, checkpoints=not args.no_checkpoints)
    count = format_count(len(folders), "record")
    print(f"{args.output}: {count}, {format_count(packed.files, 'file')}, {readable_size(packed.bytes)}")
    for name in packed.left_out:
        print(printable(f"left out, since it is a link or not a regular file: {name}"), file=sys.stderr)
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
