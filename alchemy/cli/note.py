"""`alchemy note`: add a note to a record."""

from __future__ import annotations

import argparse
import sys

from alchemy.cli.ask import edit_text
from alchemy.cli.options import Command, Parser
from alchemy.cli.record_names import add_record, find_record
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy note last "the loss explodes after 2,000 updates"
  alchemy note last                            # opens $EDITOR
  git log -1 | alchemy note 'best(dev/f1)'
Notes are written to README.md in the record, with the time."""


def _arguments(parser: Parser) -> None:
    add_record(parser)
    text = "the note; without it, $EDITOR is opened, or the note is read from standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=text)


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.readme import add_note

    record = find_record(args.record)
    text = " ".join(args.text)
    if not args.text:
        text = edit_text("", "note.md") if sys.stdin.isatty() else sys.stdin.read()
    if not text.strip():
        raise AlchemyError("the note is empty, so nothing was changed")
    add_note(record, text)
    print(printable(f"added a note to {record.name}"))
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
