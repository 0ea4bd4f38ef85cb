"""`alchemy report`: write runs as one HTML page to read, send and keep."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy report last                                     # one run: report.html
  alchemy report last~1 last --out comparison.html        # two runs side by side, with what differs
  alchemy report 'tag:trec' --title "TREC: word order"    # seeds become one curve with a band
  alchemy report last --max-mb 10 --open                  # more images; opens the browser
The page needs no other files and no network. Its images, texts and tables come from one run of each config, the one
with the median of the monitored metric, and from the latest test of this run."""


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", metavar="RECORD", help="records, or quoted filters that select several runs")
    add("--out", default="report.html", metavar="FILE", help="the file to write (default: report.html)")
    add("--title", default="", metavar="TEXT", help="the title of the page (default: the tags of the runs)")
    add("--max-mb", type=float, default=2.0, metavar="MB", help="space for images, texts and tables (default: 2)")
    add("--open", action="store_true", help="open the page in the browser")


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.groups import select_runs
    from alchemy.files import readable_size, write_atomic
    from alchemy.report.build import build_report
    from alchemy.report.render import render_page

    if not args.out.lower().endswith((".html", ".htm")):
        raise AlchemyError(f"--out {args.out}: expected a file that ends with .html")
    if not 0 <= args.max_mb <= 1000:
        raise AlchemyError(f"--max-mb must be between 0 and 1000, got {args.max_mb:g}")
    with open_index() as index:
        rows = list({row.id: row for text in args.runs for row in select_runs(index, text)}.values())
        report = build_report(index, rows, title=args.title, media_bytes=int(args.max_mb * 1e6))
    page = render_page(report.page).encode("utf-8")
    try:
        write_atomic(args.out, page)
    except OSError as error:
        raise AlchemyError(f"cannot write {args.out}: {error.strerror or error}") from error
    print(printable(f"wrote {args.out} ({readable_size(len(page))})"))
    for note in report.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    if args.open:
        import webbrowser

        webbrowser.open(Path(os.path.abspath(args.out)).as_uri())
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
