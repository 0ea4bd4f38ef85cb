"""`alchemy rerun`: repeat a run from its record and compare the results."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, add_devices, check_record_name
from alchemy.cli.record_names import add_record, find_record
from alchemy.errors import printable

if TYPE_CHECKING:
    from alchemy.rerunning import Rerun
    from alchemy.result import RunResult

EXAMPLES = """examples:
  alchemy rerun last                                 # with its own config and code: are the numbers the same?
  alchemy rerun RECORD --seed 2
  alchemy rerun 'best(dev/f1)' --set sched.epochs=20 --desc "train the best run longer"
without --set and --seed, the exit code is 1 if the metrics or the samples differ"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_record(parser)
    text = "override a config value, or pass a secret (records do not contain secrets); may be repeated"
    add("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help=text)
    add("--seed", type=int, metavar="N", help="use another seed")
    add_devices(parser, " (default: the device of the run)")
    add("--desc", default="", metavar="TEXT", help="description of the run, stored in its record")
    text = "enable debug messages, anomaly detection and exact locations of CUDA errors"
    add("--debug", action="store_true", help=text)
    add("--raise", dest="raise_errors", action="store_true", help="exit with the traceback if the run fails")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.launch import check_documents, check_secrets, raise_on_errors, start_runs
    from alchemy.cli.summary import summarize
    from alchemy.launch.ranks import is_launched, start_ranks
    from alchemy.rerunning import prepare_rerun

    record = find_record(check_record_name(args.record)).absolute()
    plan = prepare_rerun(record, overrides=args.overrides, seed=args.seed, device=args.device)
    if not is_launched():
        _tell(record, plan)
    # the name may stand for another record once this run has started
    words = [str(record) if word == args.record else word for word in args.words]
    options = {"device": plan.device, "user_dir": plan.user_dir, "file": True, "strict": False, "pdb": False}
    args = argparse.Namespace(**{**vars(args), **options, "desc": args.desc or f"rerun of {record.name}"})
    with contextlib.chdir(plan.folder):
        check_secrets([plan.document])
        raise_on_errors(check_documents([plan.document], args))
    start_ranks(plan.processes, "-m", "alchemy", "rerun", *words)
    with contextlib.chdir(plan.folder), _use_threads(plan.threads):
        results = start_runs([plan.document], args)
    for result in results:
        if result.record_dir is not None:
            result.record_dir = plan.folder / result.record_dir
    code = summarize([plan.document], results)
    is_changed = bool(args.overrides) or args.seed is not None
    same = all(_compare(record, result) for result in results)
    return code or int(not same and not is_changed)


def _tell(record: Path, plan: Rerun) -> None:
    """Print what is repeated, and what may lead to other results."""
    print(printable(f"rerunning {record} in {plan.folder}, with the code in {plan.user_dir}"), file=sys.stderr)
    for text in plan.warnings:
        print(printable(f"warning: since the run: {text}"), file=sys.stderr)


@contextlib.contextmanager
def _use_threads(count: int | None) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)  # affects how sums are split
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _compare(record: Path, result: RunResult) -> bool:
    """Print how the results compare with those of the record; return whether they are identical."""
    from alchemy.analysis.repetition import compare_repetition
    from alchemy.records.status import status_of

    status = status_of(record) or "finished"
    # another process writes the record, or the rerun has ended early: there is nothing to compare
    if result.record_dir is None or result.status not in ("finished", status):
        return result.status == "finished"
    found = compare_repetition(record, result.record_dir, status)
    print(printable(f"\ncompared with {record.name}:\n{found.text}"))
    if not found.identical:
        print(f"for details: {shlex.join(['alchemy', 'diff', str(record), str(result.record_dir)])}", file=sys.stderr)
    return found.identical


COMMAND = Command(_arguments, _main, EXAMPLES)
