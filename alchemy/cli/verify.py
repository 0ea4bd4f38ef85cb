"""`alchemy verify`: check that alchemy's guarantees hold for your own records and configs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from alchemy.cli.options import (
    Command,
    Parser,
    add_configs,
    add_json,
    add_trial,
    check_record_name,
    parse_integers,
    print_json,
)
from alchemy.cli.record_names import RECORD, find_record
from alchemy.errors import printable

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.verify.gradient_cuts import CutReport
    from alchemy.verify.reproducibility import TrialReport

EXAMPLES = """examples:
  alchemy verify resume train.toml                    # is a killed and resumed run bit-identical?
  alchemy verify resume train.toml --updates 30 --kill-at 17 --workers 0,2
  alchemy verify determinism train.toml               # are two runs with the same seed bit-identical?
  alchemy verify parallel train.toml --ranks 2        # does the gradient depend on how a batch is split?
  alchemy verify ledger RECORD                        # was every sample seen exactly once?
  alchemy verify ledger RECORD OTHER --json           # did two runs see the same samples?"""

LEDGER = "check that every sample was seen exactly once, or that two runs saw the same samples"
ACTIONS = {
    "resume": "check that a killed and resumed run is bit-identical to an uninterrupted one",
    "parallel": "check that the gradient does not depend on how a batch is split or on the number of processes",
    "determinism": "check that two runs with the same seed are bit-identical",
}


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    parsers = {name: actions.add_parser(name, help=text, epilog=EXAMPLES) for name, text in ACTIONS.items()}
    ledger = actions.add_parser("ledger", help=LEDGER, epilog=EXAMPLES)
    ledger.add_argument("record", type=check_record_name, metavar="RECORD", help=RECORD)
    ledger.add_argument(
        "other", type=check_record_name, nargs="?", metavar="OTHER", help="another record to compare with"
    )
    for inner in parsers.values():
        add_configs(inner, many=False)
    for name in ("resume", "determinism"):
        text = "number of updates (default: slightly more than one epoch, at most 20)"
        parsers[name].add_argument("--updates", type=int, metavar="K", help=text)
    add = parsers["resume"].add_argument
    add("--kill-at", type=int, metavar="N", help="update at which to kill the run (default: in the middle)")
    text = "numbers of loader workers to test (default: the value in the config)"
    add("--workers", type=parse_integers, default=[None], metavar="N,..", help=text)
    text = "number of processes that share a batch; 1 skips this check (default: 2)"
    parsers["parallel"].add_argument("--ranks", type=int, default=2, metavar="N", help=text)
    for inner in parsers.values():
        add_trial(inner)
    for inner in (*parsers.values(), ledger):
        add_json(inner)


def _main(args: argparse.Namespace) -> int:
    return _ledger(args) if args.action == "ledger" else _verify(args)


def _verify(args: argparse.Namespace) -> int:
    """Run short trials of a config and print the report; the exit code is 1 if the guarantee does not hold."""
    found = _check(load_checked_config(args), args)
    print_report(found.plain() if args.json else found)
    return int(found.equal is False)


def load_checked_config(args: argparse.Namespace) -> Document:
    """Load and check the config; raise an error if the check fails."""
    from alchemy.cli.launch import check_documents, raise_on_errors
    from alchemy.config.load import prepare_cfg
    from alchemy.launch.project_imports import add_to_path

    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    document = prepare_cfg(args.cfg, **options)
    add_to_path(args.user_dir)
    raise_on_errors(check_documents([document], args))
    return document


def _check(document: Document, args: argparse.Namespace) -> TrialReport | CutReport:
    common = {"device": args.device, "user_dir": args.user_dir, "tell": print_progress}
    if args.action == "parallel":
        from alchemy.verify.gradient_check import verify_parallel

        return verify_parallel(document, ranks=args.ranks, **common)
    from alchemy.verify.reproducibility import verify_determinism, verify_resume

    if args.action == "determinism":
        return verify_determinism(document, updates=args.updates, **common)
    return verify_resume(document, updates=args.updates, kill_at=args.kill_at, workers=args.workers, **common)


def print_progress(text: str) -> None:
    """Print the current step to standard error."""
    print(f"{text} ..", file=sys.stderr, flush=True)


def _ledger(args: argparse.Namespace) -> int:
    from alchemy.verify.ledger import compare_ledgers, verify_ledger

    records = [find_record(name) for name in (args.record, args.other) if name]
    reports = [verify_ledger(record) for record in records]
    found = compare_ledgers(*records) if args.other else None
    if found is None:
        print_report(reports[0].plain() if args.json else reports[0])
        return int(not reports[0].holds)
    broken = [report.broken for report in reports if report.broken]
    plain = vars(found) | {"records": [report.plain() for report in reports]}
    print_report(plain if args.json else "\n".join([found.text, *broken]))
    return int(not found.equal or bool(broken))


def print_report(found: object) -> None:
    """Print a report, or its data as JSON."""
    if isinstance(found, dict):
        print_json(found)
    else:
        print(printable(str(found)))  # the report may quote untrusted text from a record


COMMAND = Command(_arguments, _main, EXAMPLES)
