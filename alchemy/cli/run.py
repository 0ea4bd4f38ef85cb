"""`alchemy run`: check configs and run them."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from alchemy.cli.cluster import add_cluster
from alchemy.cli.options import Command, add_configs, add_launch, parse_integers
from alchemy.errors import AlchemyError, Problem

if TYPE_CHECKING:
    from alchemy.cli.run_several import Outcome
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

EXAMPLES = """examples:
  alchemy run train.toml --desc "does warm-up help?"
  alchemy run train.toml#small train.toml#large --device 0 --device 1
  alchemy run train.toml --seeds 1,2,3 --set optim.lr=1e-3 --queue
  alchemy run train.toml --test --predict                  # train, then test and predict with the best weights
  alchemy run train.toml --processes 4                     # train one model on four GPUs
  alchemy run train.toml --fast-dev-run 2                  # smoke test, writes no record"""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    add_configs(parser)
    add = parser.add_argument
    add(
        "--seeds",
        type=parse_integers,
        default=[],
        metavar="1,2,3",
        help="run every config once per seed",
    )
    add("--all", action="store_true", help="run all variants of each file")
    add_launch(parser)
    add("--force-mp", action="store_true", help="start a separate process even for a single run")
    add("--task-per-device", type=int, default=1, metavar="N", help="number of runs that share a device (default: 1)")
    add("--processes", type=int, default=1, metavar="N", help="train one model with N processes, one GPU each")
    add(
        "--fast-dev-run", type=int, default=0, metavar="N", help="smoke test: run N batches per split and write nothing"
    )
    add("--overfit", type=int, default=0, metavar="N", help="sanity check: train on the same N batches")
    text = "resume a record, or with 'auto' the latest unfinished one of the same config, if any"
    add("--resume", metavar="auto|RECORD", help=text)
    add("--test", action="store_true", help="after training, evaluate the best weights on the test split")
    add("--predict", action="store_true", help="after training, write the predictions of the best weights")
    add("--background", action="store_true", help="detach from the terminal and log to a file")
    add("--queue", action="store_true", help="add the runs to the queue instead: see 'alchemy queue'")
    add("--print-command", action="store_true", help="check the config and print the command that runs it")
    add_cluster(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import print_problems
    from alchemy.cli.run_several import RESULT_FILE, run_several, write_results
    from alchemy.cli.summary import suggest_next, summarize
    from alchemy.launch.ranks import start_ranks

    file = os.environ.pop(RESULT_FILE, None)
    documents, problems = prepare_runs(args)
    if args.queue or args.on or args.slurm or args.ray:
        return _add_to_queue(documents, args)
    if args.print_command:
        print(_format_command(args))
        return 0
    if args.background:
        _check_devices(args.device)
        print_problems(problems, sys.stderr)
        return _detach(args)
    start_ranks(args.processes, "-m", "alchemy", "run", *args.words)
    outcome = run_several(documents, args) if len(documents) > 1 or args.force_mp else _run_one(documents[0], args)
    if file is not None:
        return write_results(file, outcome)
    code = summarize(documents if outcome.results else [], outcome.results, outcome.tests)
    for result in outcome.results:
        if len(documents) == 1 or result.signal:
            suggest_next(result, documents[0], tested=args.test)
    return max(code, outcome.exit_code)


def _run_one(document: Document, args: argparse.Namespace) -> Outcome:
    """Run a config in this process, then test and predict if that was asked for."""
    from alchemy.cli.after_training import run_after_training
    from alchemy.cli.launch import start_runs
    from alchemy.cli.run_several import Outcome
    from alchemy.cli.summary import exit_code

    verbs = _verbs(args)
    results = _resume_latest(document, args) if args.resume else None
    if results is None:
        results = start_runs([document], args, fast_dev_run=args.fast_dev_run, overfit=args.overfit)
    if verbs and any(result.signal for result in results):
        print(f"training was interrupted, skipping: {', '.join(verbs)}", file=sys.stderr)
        verbs = []
    later = {verb: run_after_training(verb, results, args) for verb in verbs}
    predicted = later.get("predict", {}).values()
    return Outcome(results, later.get("test", {}), max(map(exit_code, predicted), default=0))


def prepare_runs(args: argparse.Namespace) -> tuple[list[Document], list[Problem]]:
    """Return the config of each run, and warnings; raise all errors before anything is started."""
    from alchemy.cli.after_training import check_after_training
    from alchemy.cli.launch import check_documents, check_secrets, raise_on_errors
    from alchemy.config.load import expand
    from alchemy.launch.project_imports import add_to_path
    from alchemy.launch.ranks import get_rank_info

    _check_options(args)
    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    documents = expand(args.cfgs, all_variants=args.all, seeds=args.seeds, **options)
    add_to_path(args.user_dir)
    check_secrets(documents)
    problems = check_documents(documents, args)
    raise_on_errors(problems)
    check_after_training(_verbs(args), documents)
    if args.resume and len(documents) != 1:
        hint = "pass one config, one variant and one seed"
        raise AlchemyError(f"--resume {args.resume} supports only one experiment at a time", hint=hint)
    if (args.processes > 1 or get_rank_info().size > 1) and (len(documents) != 1 or args.force_mp):
        hint = "pass one config, one variant and one seed, without --force-mp"
        name = "--processes" if args.processes > 1 else "torchrun"
        raise AlchemyError(f"{name} supports only one experiment at a time", hint=hint)
    return documents, problems


def _verbs(args: argparse.Namespace) -> list[str]:
    """Return what follows the training."""
    return ["test"] * args.test + ["predict"] * args.predict


def _format_command(args: argparse.Namespace) -> str:
    """Return the command that starts the processes of a run on one machine, for a cluster or a container."""
    kept = iter(args.words)
    words = []
    for word in kept:
        if word == "--processes":
            next(kept)
        elif word != "--print-command" and not word.startswith("--processes="):
            words.append(word)
    several = ["torchrun", "--standalone", "--nproc-per-node", str(args.processes)]
    return shlex.join([*(several if args.processes > 1 else ["python"]), "-m", "alchemy", "run", *words])


def _add_to_queue(documents: list[Document], args: argparse.Namespace) -> int:
    from alchemy.cli.cluster import choose_cluster, run_on_cluster
    from alchemy.cli.queue_entries import add_entries, list_runs
    from alchemy.queue import Needs, NewEntry, Queue

    needs = Needs(devices=0 if args.device == [-1] else args.processes)
    commands, cluster = list_runs(documents, args), choose_cluster(args)
    if not args.queue:
        return run_on_cluster(commands, needs, cluster)
    return add_entries(
        Queue(), [NewEntry(argv=argv, needs=needs, on=cluster.on, options=cluster.options) for argv in commands]
    )


def _resume_latest(document: Document, args: argparse.Namespace) -> list[RunResult] | None:
    """Resume a record and return its result, or None if there is no unfinished record of the config.

    If a given record has finished, there may be evaluations left to do.
    """
    from alchemy.cli.record_names import find_record
    from alchemy.launch.ranks import get_rank_info
    from alchemy.records.status import status_of
    from alchemy.result import RunResult
    from alchemy.resuming import find_unfinished, resume

    record = find_unfinished(document) if args.resume == "auto" else find_record(args.resume)
    if record is not None and args.resume != "auto" and status_of(record) == "finished" and _verbs(args):
        result = RunResult()
        result.record_dir, result.cfg = record, document
        return [result]
    if get_rank_info().rank == 0:  # only the main process prints it
        none = "no unfinished record of this config: starting a new run"
        print(f"resuming {record}" if record else none, file=sys.stderr)
    if record is None:
        return None
    options = {"device": args.device, "user_dir": args.user_dir, "debug": args.debug}
    result = resume(record, raise_errors=args.raise_errors, strict=args.strict, **options)
    return [result]


def _check_options(args: argparse.Namespace) -> None:
    numbers = [word for word in args.cfgs if word.isdecimal() and not os.path.exists(word)]
    if args.seeds and numbers:
        seeds = ",".join([*map(str, args.seeds), *numbers])
        raise AlchemyError("separate seeds with commas", hint=f"write '--seeds {seeds}'")
    for name, count in (("--fast-dev-run", args.fast_dev_run), ("--overfit", args.overfit)):
        if count < 0:
            raise AlchemyError(f"{name} must not be negative", hint="0 disables it")
    if args.task_per_device < 1:
        raise AlchemyError("--task-per-device must be at least 1")
    if args.processes < 1:
        raise AlchemyError("--processes must be at least 1")
    if args.pdb and (args.processes > 1 or args.force_mp or len(args.cfgs) > 1 or len(args.seeds) > 1 or args.all):
        raise AlchemyError("--pdb supports only one experiment at a time, in this process")
    if (args.test or args.predict) and (args.fast_dev_run or not args.file):
        raise AlchemyError(
            "--test and --predict need the weights of a record", hint="leave out --no-file and --fast-dev-run"
        )
    if args.resume and (args.fast_dev_run or args.overfit or not args.file):
        raise AlchemyError(
            f"--resume {args.resume} needs a record", hint="leave out --no-file, --fast-dev-run and --overfit"
        )
    if args.background and args.pdb:
        raise AlchemyError("--pdb needs a terminal and cannot be combined with --background")


def _check_devices(devices: list[int] | None) -> None:
    """Raise an error if a device is missing, before the run is detached."""
    from alchemy.launch.device import alloc1

    for number in devices or ():
        if number >= 0:
            alloc1(number)


def _detach(args: argparse.Namespace) -> int:
    """Start the checked command in the background."""
    from alchemy.cli import background

    words = [word for word in args.words if word != "--background"]
    info = background.launch_detached(["run", *words], folder=None if args.file else background.scratch_folder())
    print(f"running in the background with pid {info['pid']}")
    print(f"log:  {info['log']}")
    print(f"stop: {'alchemy stop' if args.file else 'kill'} {info['pid']}")
    return 0


COMMAND = Command(add_run_options, _main, EXAMPLES)
