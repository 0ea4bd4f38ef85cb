"""`alchemy stop`: stop a running experiment at its next step."""

from __future__ import annotations

import argparse

from alchemy.cli.options import Command, check_record_name
from alchemy.cli.record_names import RECORD, find_record

EXAMPLES = """examples:
  alchemy stop latest
  alchemy stop records/demo/2026-01-31_12-00-00.000000 --wait 60
  alchemy stop 4711                       # the pid printed by 'alchemy run --background'"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = f"{RECORD}; 'latest' is the latest that is running; or the pid of a background run"
    add("record", type=check_record_name, metavar="RECORD", help=text)
    add("--wait", type=float, default=0.0, metavar="SECONDS", help="wait up to SECONDS for the run to end")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli import background
    from alchemy.records import newest
    from alchemy.records.folder import stop

    if args.record.isdecimal():
        info = background.stop_detached(int(args.record))
    else:
        info = stop(newest(status="running") if args.record == "latest" else find_record(args.record))
    name = info.get("id") or info.get("log")
    print(f"stopping {name} (pid {info['pid']}); it closes its record at the next step")
    return background.wait_for_exit(info, args.wait)


COMMAND = Command(_arguments, _main, EXAMPLES)
