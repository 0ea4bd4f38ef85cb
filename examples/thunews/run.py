"""Text classification with pretrained models: convert flags to an alchemy config; train, evaluate and predict."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from src import former, output, translate
from src.checkpoints import checkpoints
from src.data import labels_of
from src.flags import parse

from alchemy import prepare_cfg, resume, run, run_task
from alchemy.cli.summary import exit_code
from alchemy.config import dumps
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc, cuda_count
from alchemy.launch.process_group import open_group
from alchemy.launch.project_imports import add_to_path
from alchemy.launch.ranks import get_rank_info, is_launched, start_ranks
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.tasks.text_task import check_vocabulary

PARTS = str(Path(__file__).resolve().parent / "src")


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    add_to_path(PARTS)
    try:
        start_ranks(gpus(args), os.path.abspath(__file__), *(sys.argv[1:] if argv is None else argv))
        return work(args)
    except AlchemyError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def gpus(args: argparse.Namespace) -> int:
    """Return the number of GPUs to train on, with one process each."""
    if args.local_rank >= 0 and not is_launched():
        hint = "remove the flag to use all GPUs, or start with torchrun"
        raise AlchemyError(f"--local_rank={args.local_rank} requires the environment of a launcher", hint=hint)
    return 0 if args.no_cuda else cuda_count()


def work(args: argparse.Namespace) -> int:
    """Train, evaluate and predict, depending on the flags; return the exit code."""
    folder = Path(args.output_dir).expanduser()
    with open_group() as group:  # one process decides for all, and reports errors
        decision = group.broadcast(decide(args, folder) if group.is_main else None)
    if isinstance(decision, AlchemyError):
        raise decision if get_rank_info().rank == 0 else SystemExit(decision.exit_code)
    plan, cfg = decision
    document = prepare_cfg(cfg)
    device = [-1] if args.no_cuda else None
    if plan.train:
        try:
            result = train(document, plan.record, device)
        finally:
            if get_rank_info().rank == 0 and former.put_back(folder):
                print(f"training failed before its first update: {folder} is unchanged", file=sys.stderr)
        if isinstance(result.exception, AlchemyError):
            raise result.exception
        if result.signal or isinstance(result, Exception):
            return exit_code(result)
    return score(args, cfg, device) if args.do_eval or args.do_predict else 0


def decide(args: argparse.Namespace, folder: Path) -> tuple[output.Plan, dict[str, Any]] | AlchemyError:
    """Return the plan and the config, or the error that prevents the work."""
    try:
        if output.running(folder) is None:
            former.put_back(folder)  # from a command that was killed at its start
        known = None if args.do_train else output.trained_labels(folder)
        cfg = translate.training(args, labels_of(args.task_name, args.data_dir) if known is None else known)
        document = prepare_cfg(cfg)
        check_data(args, cfg)
        print(dumps(document))
        return output.plan(args, document), cfg
    except AlchemyError as error:
        return error


def check_data(args: argparse.Namespace, cfg: dict[str, Any]) -> None:
    """Check the data before anything is written."""
    used = cfg if args.do_train else translate.scoring(cfg, find_checkpoints(args)[-1])
    tokenizer = tokenizer_of(used["task"]["tokenizer"])
    translate.check_room(args, tokenizer)
    for split in cfg["task"]["datasets"].values():
        source = build_datapipes(split["pipes"])
        check_vocabulary(tokenizer, [sample["text"] for sample in source.samples[:100]])


def train(document: Document, record: Path | None, device: list[int] | None) -> Any:
    if record is None:
        return run([document], device=device, user_dir=PARTS)[0]
    if get_rank_info().rank == 0:
        print(f"resuming {record}")
    try:
        # output.plan has already checked that the relevant flags are the same
        options = {"overrides": [f"log_every={document.get('log_every')}"], "allow": ["config"]}
        return resume(record, device=device, user_dir=PARTS, **options)
    except AlchemyError as error:
        hint = f"{error.problem.hint} of `alchemy resume {record}`, or start over with --overwrite_output_dir"
        raise AlchemyError(error.problem.message, hint=hint) from error


def find_checkpoints(args: argparse.Namespace) -> list[Path]:
    """Return the checkpoints of the output folder; raise an error if there are none."""
    folder = Path(args.output_dir).expanduser().resolve()
    if not (found := checkpoints(folder)):
        raise AlchemyError(f"{folder} has no checkpoint to evaluate", hint="train one with --do_train")
    return found


def score(args: argparse.Namespace, cfg: dict[str, Any], device: list[int] | None) -> int:
    found = find_checkpoints(args)
    chosen = found if args.eval_all_checkpoints and args.do_eval else found[-1:]
    options = {"checkpoints": [str(path) for path in chosen], "output_dir": str(chosen[-1].parent)}
    result = run_task(translate.scoring(cfg, chosen[-1]), alloc(device)[0], user_dir=PARTS, **options)
    if isinstance(result.exception, AlchemyError):
        raise result.exception
    return exit_code(result)


if __name__ == "__main__":
    sys.exit(main())
