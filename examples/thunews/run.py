"""Text classification with pretrained models: flags become a config of alchemy, which trains, evaluates, predicts."""

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
from alchemy.launch.process_group import get_rank_info, open_group
from alchemy.launch.project_imports import add_to_path
from alchemy.launch.ranks import is_launched, start_ranks
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
    """How many GPUs there are to train on, each with a process of its own."""
    if args.local_rank >= 0 and not is_launched():
        hint = "leave it out: all GPUs are used; or start with torchrun"
        raise AlchemyError(f"--local_rank={args.local_rank} without the environment of a launcher", hint=hint)
    return 0 if args.no_cuda else cuda_count()


def work(args: argparse.Namespace) -> int:
    """Trains, then scores and predicts, as far as the flags ask for it; returns the exit code."""
    folder = Path(args.output_dir).expanduser()
    with open_group() as group:  # one process decides for all, and tells why not
        found = group.broadcast(decided(args, folder) if group.is_main else None)
    if isinstance(found, AlchemyError):
        raise found if get_rank_info().rank == 0 else SystemExit(found.exit_code)
    plan, cfg = found
    document = prepare_cfg(cfg)
    device = [-1] if args.no_cuda else None
    if plan.train:
        try:
            result = train(document, plan.record, device)
        finally:
            if get_rank_info().rank == 0 and former.put_back(folder):
                print(f"no update was made: {folder} is as it was before", file=sys.stderr)
        if isinstance(result.exception, AlchemyError):
            raise result.exception
        if result.signal or isinstance(result, Exception):
            return exit_code(result)
    return score(args, cfg, device) if args.do_eval or args.do_predict else 0


def decided(args: argparse.Namespace, folder: Path) -> tuple[output.Plan, dict[str, Any]] | AlchemyError:
    """What is to be done, and the config for it; or why nothing can be."""
    try:
        if output.running(folder) is None:
            former.put_back(folder)  # of a command that was killed at its start
        known = None if args.do_train else output.trained_labels(folder)
        cfg = translate.training(args, labels_of(args.task_name, args.data_dir) if known is None else known)
        document = prepare_cfg(cfg)
        check_data(args, cfg)
        print(dumps(document))
        return output.plan(args, document), cfg
    except AlchemyError as error:
        return error


def check_data(args: argparse.Namespace, cfg: dict[str, Any]) -> None:
    """Tells whatever is wrong with the data before anything is written."""
    used = cfg if args.do_train else translate.scoring(cfg, trained(args)[-1])
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
        # that the flags are the same where it matters is known already
        told = {"overrides": [f"log_every={document.get('log_every')}"], "allow": ["config"]}
        return resume(record, device=device, user_dir=PARTS, **told)
    except AlchemyError as error:
        hint = f"{error.problem.hint} of `alchemy resume {record}`, or begin anew with --overwrite_output_dir"
        raise AlchemyError(error.problem.message, hint=hint) from error


def trained(args: argparse.Namespace) -> list[Path]:
    """The checkpoints that are there; at least one."""
    folder = Path(args.output_dir).expanduser().resolve()
    if not (found := checkpoints(folder)):
        raise AlchemyError(f"{folder} has no checkpoint to evaluate", hint="train one with --do_train")
    return found


def score(args: argparse.Namespace, cfg: dict[str, Any], device: list[int] | None) -> int:
    found = trained(args)
    chosen = found if args.eval_all_checkpoints and args.do_eval else found[-1:]
    told = {"checkpoints": [str(path) for path in chosen], "output_dir": str(chosen[-1].parent)}
    result = run_task(translate.scoring(cfg, chosen[-1]), alloc(device)[0], user_dir=PARTS, **told)
    if isinstance(result.exception, AlchemyError):
        raise result.exception
    return exit_code(result)


if __name__ == "__main__":
    sys.exit(main())
