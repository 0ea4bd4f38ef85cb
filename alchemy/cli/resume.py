"""`alchemy resume`: resume an interrupted run."""

from __future__ import annotations

import argparse

from alchemy.cli.options import Command, add_devices, add_user_dir, check_record_name
from alchemy.cli.record_names import RECORD, find_record

EXAMPLES = """examples:
  alchemy resume records/train/2026-11-15_10-00-00.000000
  alchemy resume RECORD --set sched.epochs=20 --allow sched.epochs     # train longer
  alchemy resume RECORD --allow code,torch                             # even if code and torch have changed
  alchemy run train.toml --resume auto                                 # the latest unfinished record, or a new run"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("record", type=check_record_name, metavar="RECORD", help=RECORD)
    add(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a config value",
    )
    add(
        "--allow",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,..",
        help="resume even if NAME has changed: a config key, config, code, torch, device, threads, data, ranks, ..",
    )
    add_devices(parser)
    add_user_dir(parser)
    add(
        "--debug",
        action="store_true",
        help="enable debug messages, anomaly detection and exact locations of CUDA errors",
    )
    add("--raise", dest="raise_errors", action="store_true", help="exit with the traceback if the run fails")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.summary import suggest_next, summarize
    from alchemy.resuming import resume

    result = resume(
        find_record(args.record),
        device=args.device,
        user_dir=args.user_dir,
        overrides=args.overrides,
        allow=args.allow,
        debug=args.debug,
        raise_errors=args.raise_errors,
    )
    code = summarize([result.cfg], [result])
    suggest_next(result, result.cfg)
    return code


COMMAND = Command(_arguments, _main, EXAMPLES)
