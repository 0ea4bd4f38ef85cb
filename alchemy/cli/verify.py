"""`alchemy verify`: the promises, checked on your own records and configs."""

from __future__ import annotations

import argparse

from alchemy.cli.options import Parser

EXAMPLES = """examples:
  alchemy verify ledger records/demo/2026-01-31_12-00-00.000000
  alchemy verify ledger RECORD OTHER --json"""


def arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ledger = actions.add_parser("ledger", help="was every sample seen once; did two runs see the same", epilog=EXAMPLES)
    ledger.add_argument("record", metavar="RECORD", help="a record folder, or its name")
    ledger.add_argument("other", nargs="?", metavar="OTHER", help="another one, to compare with")
    ledger.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    # a promise is the module of that name in alchemy/verify, imported when it is asked for
    return {"ledger": _ledger}[args.action](args)


def _ledger(args: argparse.Namespace) -> int:
    import json

    from alchemy.verify.ledger import check, compare

    reports = [check(record) for record in (args.record, args.other) if record]
    comparison = compare(args.record, args.other) if args.other else None
    if args.json:
        plain = [report.plain() for report in reports]
        print(json.dumps(comparison.plain() | {"records": plain} if comparison else plain[0], indent=1))
    elif comparison is None:
        print(reports[0])
    else:
        print("\n".join([comparison.text, *(report.broken for report in reports if report.broken)]))
    if comparison is not None:
        return int(not comparison.equal or any(report.broken for report in reports))
    return int(not reports[0].holds)
