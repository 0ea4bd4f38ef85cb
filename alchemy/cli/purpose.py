"""`alchemy purpose`: print or change the purpose of a record."""

from __future__ import annotations

import argparse

from alchemy.cli.ask import edit_text
from alchemy.cli.options import Command, Parser
from alchemy.cli.record_names import add_record, find_record
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy purpose last
  alchemy purpose last "Does warm-up help with a small batch size?"
  alchemy purpose last --edit                  # opens $EDITOR
The purpose is written to README.md in the record."""


def _arguments(parser: Parser) -> None:
    add_record(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="the new purpose; without it, the purpose is printed")
    parser.add_argument("--edit", action="store_true", help="edit the purpose in $EDITOR")


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.readme import read_readme, set_purpose

    if args.text and args.edit:
        raise AlchemyError("pass either TEXT or --edit")
    record = find_record(args.record)
    if args.text or args.edit:
        set_purpose(record, " ".join(args.text) if args.text else edit_text(read_readme(record).purpose, "purpose.md"))
        print(printable(f"changed the purpose of {record.name}"))
    else:
        print(printable(read_readme(record).purpose))
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
