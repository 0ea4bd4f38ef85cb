"""`alchemy tag`: add tags to records, and remove them."""

from __future__ import annotations

import argparse

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.cli.record_names import add_records, choose_records
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy tag last +paper +v2
  alchemy tag last last~1 +paper --remove draft
  alchemy tag --filter 'tag:trec lr<1e-3' +paper
  alchemy tag last                             # print its tags
Tags are written to README.md in the record; `alchemy ls tag:paper` finds them."""


def _arguments(parser: Parser) -> None:
    add_records(parser)
    text = "remove a tag; may be repeated"
    parser.add_argument("--remove", action="append", default=[], metavar="NAME", help=text)
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.records.readme import read_readme, set_tags

    added = [name[1:] for name in args.records if name.startswith("+")]
    removed = [name.removeprefix("+") for name in args.remove]
    with open_index() as index:
        try:
            rows = choose_records(index, [name for name in args.records if not name.startswith("+")], args.filter)
        except AlchemyError as error:
            if added or removed or len(args.records) < (1 if args.filter else 2):
                raise
            found = error.problem.message if args.filter else str(error)
            raise AlchemyError(found, hint=f"to add a tag, write +{args.records[-1]}") from error
        ids = index.shorten_ids(rows)
    changed = bool(added or removed)
    tags = {row: set_tags(row.folder, added, removed) if changed else read_readme(row.folder).tags for row in rows}
    if args.json:
        print_json([{"id": row.name, "path": row.path, "tags": own} for row, own in tags.items()])
    else:
        print(printable("\n".join(f"{ids[row.id]}: {', '.join(own) or 'no tags'}" for row, own in tags.items())))
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
