"""`alchemy replay`: rerun one update of a record and inspect it."""

from __future__ import annotations

import argparse

from alchemy.cli.options import Command, add_devices, add_json, add_user_dir, check_record_name
from alchemy.cli.record_names import RECORD, find_record
from alchemy.cli.verify import print_progress, print_report

EXAMPLES = """examples:
  alchemy replay records/train/2026-11-15_10-00-00.000000 --update 412
  alchemy replay RECORD --update 412 --debug      # find the operation and line that produced a NaN
  alchemy replay RECORD --update 412 --json"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = f"{RECORD}; it is not modified"
    add("record", type=check_record_name, metavar="RECORD", help=text)
    text = "update to rerun, counted from 1"
    add("--update", "--step", dest="update", type=int, required=True, metavar="N", help=text)
    text = "override a config value, or pass a secret (records do not contain secrets)"
    add("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help=text)
    add(
        "--debug",
        action="store_true",
        help="find the operation that produced the first NaN and the line that called it",
    )
    add_devices(parser)
    add_user_dir(parser)
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.verify.replay import replay

    options = {"device": args.device, "user_dir": args.user_dir, "overrides": args.overrides}
    found = replay(find_record(args.record), args.update, debug=args.debug, tell=print_progress, **options)
    print_report(found.plain() if args.json else found)
    return int(found.same_samples is False)


COMMAND = Command(_arguments, _main, EXAMPLES)
