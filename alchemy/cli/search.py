"""`alchemy search`: full-text search over records."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, add_limit, print_json
from alchemy.errors import printable

if TYPE_CHECKING:
    from alchemy.analysis.text_matches import Match
    from alchemy.index.row import Row

EXAMPLES = """examples:
  alchemy search focal loss                    # all words must occur, in any field
  alchemy search adam                          # the beginning of a word: AdamW too
  alchemy search 焦点
  alchemy search "out of memory" --all
It searches purpose, README, notes, tags, config values, commands, reasons and tracebacks.
To combine it with other conditions: alchemy ls '"focal loss" status:failed'"""


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("text", nargs="+", metavar="TEXT", help="words to search for")
    add("--all", action="store_true", help="search tests and predictions too, not only training runs")
    add_limit(parser, 20, "records")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.text_matches import find_matches, search
    from alchemy.index.words import SHORTEST_PREFIX, is_cjk, query_terms

    text = " ".join(args.text)
    with open_index() as index:
        found = search(index, text, kind="" if args.all else "train")
        others = 0 if args.all else len(search(index, text)) - len(found)
        shown = index.load(found[: args.limit])
        matches, ids = find_matches(index, shown, text), index.shorten_ids(shown)
    if args.json:
        print_json([_as_data(row, matches[row.id]) for row in shown])
        return 0
    for row in shown:
        print(printable(f"{ids[row.id]}  {row.status}  {row.tag}"))
        for match in matches[row.id]:
            print(f"    {printable(match.where)}: {_render(match)}")
    if not found:
        short = [term for term in query_terms(text) if len(term) < SHORTEST_PREFIX and not is_cjk(term)]
        why = f" is only found as a whole word, since it is shorter than {SHORTEST_PREFIX} letters"
        hint = f"; {short[0]!r}{why}" if short else ""
        print(f"no training run contains all of these words{hint}", file=sys.stderr)
    if len(found) > len(shown):
        print(f"{len(shown)} of {len(found)} records; -n 0 shows all", file=sys.stderr)
    if others:
        print(f"{others} tests and predictions match too: --all shows them", file=sys.stderr)
    return 0


def _as_data(row: Row, matches: list[Match]) -> dict[str, object]:
    places = [{"where": match.where, "text": match.text} for match in matches]
    return {"id": row.name, "path": row.path, "status": row.status, "tag": row.tag, "matches": places}


def _render(match: Match) -> str:
    """Return the excerpt; on a terminal, the words are bold."""
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    parts, end = [], 0
    for start, stop in match.spans:
        parts += [printable(match.text[end:start]), bold, printable(match.text[start:stop]), plain]
        end = stop
    return "".join([*parts, printable(match.text[end:])])


COMMAND = Command(_arguments, _main, EXAMPLES)
