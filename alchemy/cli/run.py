"""`alchemy run`: checks configs and runs them."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, add_configs, add_launch, integers
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

EXAMPLES = """examples:
  alchemy run train.toml --desc "does warm-up help?"
  alchemy run train.toml#small train.toml#large --device 0 --device 1
  alchemy run train.toml --seeds 1,2,3 --set optim.lr=1e-3 --background
  alchemy run train.toml --test --predict                  # train, test the best weights, write predictions
  alchemy run train.toml --processes 4                     # one model, trained on four GPUs
  alchemy run train.toml --fast-dev-run 2                  # a quick try, without a record"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_configs(parser)
    add = parser.add_argument
    add("--seeds", type=integers, default=[], metavar="1,2,3", help="run every config once with each of these seeds")
    add("--all", action="store_true", help="run all variants of each file")
    add_launch(parser)
    add("--force-mp", action="store_true", help="a process of its own for a single run too")
    add("--task-per-device", type=int, default=1, metavar="N", help="how many runs share a device (default: 1)")
    add("--processes", type=int, default=1, metavar="N", help="N processes train one model, each on a GPU of its own")
    add("--fast-dev-run", type=int, default=0, metavar="N", help="only N batches of each split: does it work at all?")
    add("--overfit", type=int, default=0, metavar="N", help="train on the same N batches: can the model learn?")
    add(
        "--resume", choices=["auto"], help="go on with the newest unfinished record of the same config, if there is one"
    )
    add("--test", action="store_true", help="then evaluate the best weights of each run on its test split")
    add("--predict", action="store_true", help="then write what the best weights of each run predict")
    add("--background", action="store_true", help="detach from the terminal and write to a log file")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.after_training import follow, refuse_if_impossible
    from alchemy.cli.launch import refuse_if_wrong, start, vet
    from alchemy.cli.problems import report
    from alchemy.cli.summary import exit_code, suggest, summarize
    from alchemy.config.load import expand
    from alchemy.launch.project_imports import reach
    from alchemy.launch.ranks import start_ranks

    _refuse_nonsense(args)
    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    documents = expand(args.cfgs, all_variants=args.all, seeds=args.seeds, **options)
    reach(args.user_dir)
    _refuse_other_secrets(documents)
    problems = vet(documents, args)
    refuse_if_wrong(problems)
    verbs = ["test"] * args.test + ["predict"] * args.predict
    refuse_if_impossible(verbs, documents)
    if args.resume and len(documents) != 1:
        hint = "name one config, one variant, one seed"
        raise AlchemyError("--resume auto takes one experiment at a time", hint=hint)
    if args.processes > 1 and (len(documents) != 1 or args.force_mp):
        hint = "name one config, one variant, one seed, and no --force-mp"
        raise AlchemyError("--processes takes one experiment at a time", hint=hint)
    if args.background:
        _refuse_missing(args.device)
        report(problems, sys.stderr)
        return _detach(args)
    start_ranks(args.processes, "-m", "alchemy", "run", *args.words)
    more = {"force_mp": args.force_mp, "task_per_device": args.task_per_device}
    results = _go_on(documents[0], args) if args.resume else None
    if results is None:
        results = start(documents, args, fast_dev_run=args.fast_dev_run, overfit=args.overfit, **more)
    if verbs and any(result.signal for result in results):
        print(f"not started, since a signal ended the training: {', '.join(verbs)}", file=sys.stderr)
        verbs = []
    followed = {verb: follow(verb, results, args, **more) for verb in verbs}
    code = summarize(documents if results else [], results, followed.get("test", {}))
    if len(results) == 1:
        suggest(results[0], documents[0], tested=args.test)
    return max([code, *(exit_code(result) for result in followed.get("predict", {}).values())])


def _go_on(document: Document, args: argparse.Namespace) -> list[RunResult] | None:
    """The result of the run that was taken up; None where none is unfinished: a new one begins."""
    from alchemy.launch.process_group import place
    from alchemy.resuming import find_unfinished, resume

    record = find_unfinished(document)
    if place().rank == 0:  # of several processes the first says it for all
        begins = "no unfinished record of this config: a new one begins"
        print(f"going on with {record}" if record else begins, file=sys.stderr)
    if record is None:
        return None
    options = {"device": args.device, "user_dir": args.user_dir, "debug": args.debug}
    result = resume(record, raise_errors=args.raise_errors, strict=args.strict, **options)
    return [result]


def _refuse_nonsense(args: argparse.Namespace) -> None:
    numbers = [word for word in args.cfgs if word.isdecimal() and not os.path.exists(word)]
    if args.seeds and numbers:
        seeds = ",".join([*map(str, args.seeds), *numbers])
        raise AlchemyError("several seeds are written with commas", hint=f"write '--seeds {seeds}'")
    for name, count in (("--fast-dev-run", args.fast_dev_run), ("--overfit", args.overfit)):
        if count < 0:
            raise AlchemyError(f"{name} must not be negative", hint="0 is off")
    if args.task_per_device < 1:
        raise AlchemyError("--task-per-device must be at least 1")
    if args.processes < 1:
        raise AlchemyError("--processes must be at least 1")
    if args.pdb and (args.processes > 1 or args.force_mp or len(args.cfgs) > 1 or len(args.seeds) > 1 or args.all):
        raise AlchemyError("--pdb takes one experiment at a time, in this process")
    if (args.test or args.predict) and (args.fast_dev_run or not args.file):
        raise AlchemyError(
            "--test and --predict need the weights that a record keeps", hint="leave out --no-file and --fast-dev-run"
        )
    if args.resume and (args.fast_dev_run or args.overfit or not args.file):
        raise AlchemyError(
            "--resume auto goes on with a record", hint="leave out --no-file, --fast-dev-run and --overfit"
        )
    if args.background and args.pdb:
        raise AlchemyError("--pdb needs a terminal, which --background leaves")


def _refuse_other_secrets(documents: list[Document]) -> None:
    """A config out of a record has masked secrets: a run with other values would not repeat that of the record."""
    from alchemy.config.secrets import changed_secrets

    for document in documents:
        for key in changed_secrets(document):
            hint = f"give the value that the run had, or set {key} in a copy of the config"
            raise AlchemyError(f"{key} differs from the secret masked in {document.path}", hint=hint)


def _refuse_missing(devices: list[int] | None) -> None:
    """A device that is not there, told while somebody still looks."""
    from alchemy.launch.device import alloc1

    for number in devices or ():
        if number >= 0:
            alloc1(number)


def _detach(args: argparse.Namespace) -> int:
    """The check is done: a typo has been told before the terminal is left."""
    from alchemy.cli import background

    words = [word for word in args.words if word != "--background"]
    info = background.launch_detached(["run", *words], folder=None if args.file else background.scratch())
    print(f"running in the background with pid {info['pid']}")
    print(f"log:  {info['log']}")
    print(f"stop: {'alchemy stop' if args.file else 'kill'} {info['pid']}")
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
