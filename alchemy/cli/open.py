"""`alchemy open`: print the folder of a record, or open one of its files."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from alchemy.cli.ask import edit_file, view_file
from alchemy.cli.options import Command, Parser
from alchemy.cli.record_names import add_record, find_record
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  cd "$(alchemy open last)"
  alchemy open last --log                      # in $PAGER; prints the path if the output is not a terminal
  alchemy open last --readme                   # in $EDITOR"""

FILES = {"readme": "README.md", "config": "cfg.toml", "log": "run.log"}


def _arguments(parser: Parser) -> None:
    add_record(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--readme", dest="file", action="store_const", const="readme", help="edit README.md")
    which.add_argument("--config", dest="file", action="store_const", const="config", help="view cfg.toml")
    which.add_argument("--log", dest="file", action="store_const", const="log", help="view run.log")


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.symlinks import path_inside

    record = Path(os.path.abspath(find_record(args.record)))
    if args.file is None:
        _print_path(record)
        return 0
    path = path_inside(record, FILES[args.file])
    if not path.is_file() and args.file != "readme":
        raise AlchemyError(f"{record} has no {path.name}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_path(path)
    elif args.file == "readme":
        edit_file(path)
    else:
        view_file(path)
    return 0


def _print_path(path: Path) -> None:
    """Print a path as it is, for use in scripts; on a terminal, escape control characters."""
    print(printable(str(path)) if sys.stdout.isatty() else path)


COMMAND = Command(_arguments, _main, EXAMPLES)
