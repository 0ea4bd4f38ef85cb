"""`alchemy import`: unpack an archive of records."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy import run.tar.gz
  alchemy import run.tar.gz --to records/from-anna
The config of a record from somebody else may only name known parts, until you `alchemy trust` it."""

FOLDER = "records/imported"


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="an archive that `alchemy archive` wrote")
    add("--to", default=FOLDER, metavar="DIR", help=f"folder for the records (default: {FOLDER})")
    text = "largest total size of the files in GiB (default: 100)"
    add("--max-size", type=float, default=100.0, metavar="GIB", help=text)
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.unpack_archive import unpack_archive

    if not os.path.exists(args.file):
        raise AlchemyError(f"file not found: {args.file!r}")
    if not 0 < args.max_size < 2**30:
        raise AlchemyError(f"--max-size must be greater than 0, got {args.max_size}")
    with open_index() as index:
        known = {row.name for row in index.query()}
    done = unpack_archive(Path(args.file), Path(args.to), known, largest=int(args.max_size * 2**30))
    untrusted = [record for record in done.added if not _is_trusted(record)]
    if args.json:
        rows = [{"path": str(record), "trusted": record not in untrusted} for record in done.added]
        print_json({"added": rows, "existing": done.existing})
        return 0
    for record in done.added:
        print(printable(str(record)))
    if done.existing:
        names = ", ".join(done.existing)
        print(printable(f"left out, since records with these ids exist already: {names}"), file=sys.stderr)
    if untrusted:
        what = "a config that you have not trusted" if len(untrusted) == 1 else f"{len(untrusted)} untrusted configs"
        print(f"{what}: read cfg.toml, then `alchemy trust` the record to use it", file=sys.stderr)
    return 0


def _is_trusted(record: Path) -> bool:
    from alchemy.trust import untrusted_record

    return not untrusted_record(record / "cfg.toml")


COMMAND = Command(_arguments, _main, EXAMPLES)
