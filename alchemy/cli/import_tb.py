"""`alchemy import-tb`: create records from TensorBoard logs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from alchemy.cli.options import Command, Parser, add_json, print_json
from alchemy.errors import AlchemyError, printable

EXAMPLES = """examples:
  alchemy import-tb runs                        # each folder with event files becomes a record
  alchemy import-tb lightning_logs --to records/old
  alchemy ls kind:import"""


def _arguments(parser: Parser) -> None:
    parser.add_argument("logdir", metavar="LOGDIR", help="a folder with event files, or folders that contain them")
    parser.add_argument("--to", default="records/import", metavar="DIR", help="default: records/import")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis import tensorboard_files as files

    root, target = Path(args.logdir), Path(args.to)
    if not root.is_dir():
        raise AlchemyError(f"folder not found: {args.logdir}", hint="pass the --logdir of TensorBoard")
    found = files.find_event_runs(root)
    if not found:
        raise AlchemyError(f"no event files below {args.logdir}", hint="their names contain 'tfevents'")
    created = []
    for folder, paths in found:
        run = files.read_event_run(root, folder, paths)
        known = files.find_imported(run, target)
        record = files.create_record(run, target) if run.steps and known is None else None
        what = f"{record}: {len(run.steps):,} steps" if record else f"already in {known}" if known else "no scalars"
        created.append({"source": str(folder), "record": str(record or known or ""), "steps": len(run.steps)})
        if not args.json:
            print(printable(f"{os.path.relpath(folder)} -> {what}" if record else f"{os.path.relpath(folder)}: {what}"))
    if args.json:
        print_json(created)
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
