"""`alchemy export-tb`: write the metrics of records for TensorBoard."""

from __future__ import annotations

import argparse
from pathlib import Path

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.errors import printable

EXAMPLES = """examples:
  alchemy export-tb last && tensorboard --logdir tensorboard
  alchemy export-tb 'tag:trec' runs/trec"""


def _arguments(parser: Parser) -> None:
    parser.add_argument("record", metavar="RECORD", help="a record, or a quoted filter that selects several runs")
    parser.add_argument("folder", nargs="?", default="tensorboard", metavar="DIR", help="default: tensorboard")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.groups import select_runs
    from alchemy.analysis.tensorboard_files import export_record
    from alchemy.index.value_format import format_count

    with open_index() as index:
        rows = select_runs(index, args.record)
    written = []
    for row in rows:
        folder = Path(args.folder) / row.name
        count = export_record(row, folder)
        written.append({"id": row.name, "folder": str(folder), "rows": count})
        if not args.json:
            print(printable(f"{folder}: {format_count(count, 'row')}"))
    if args.json:
        print_json(written)
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
