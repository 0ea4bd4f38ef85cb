"""`alchemy data`: inspect data pipes, build corpora and manage cached samples."""

from __future__ import annotations

import argparse
from typing import Any

from alchemy.cli import cache, corpora
from alchemy.cli.options import Command, Parser, add_configs, add_user_dir
from alchemy.errors import AlchemyError, did_you_mean

EXAMPLES = """examples:
  alchemy data peek train.toml
  alchemy data peek train.toml --split dev -n 1"""


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    peek = actions.add_parser("peek", help="print the first samples after each pipe", epilog=EXAMPLES)
    add_configs(peek, many=False)
    peek.add_argument("--split", default="train", metavar="NAME", help="split to read (default: train)")
    peek.add_argument("-n", type=int, default=3, metavar="N", help="number of samples per pipe (default: 3)")
    add_user_dir(peek)
    corpora.add_build(actions)
    corpora.add_info(actions)
    cache.add_cache(actions)


def _main(args: argparse.Namespace) -> int:
    return {"peek": _peek, "build": corpora.build, "info": corpora.info, "cache": cache.run_cache}[args.action](args)


def _peek(args: argparse.Namespace) -> int:
    from alchemy.cli.record_names import find_config
    from alchemy.config.load import prepare_cfg
    from alchemy.config.secrets import hide
    from alchemy.context import Run
    from alchemy.data.loader import get_dataloader
    from alchemy.data.peek import peek, render
    from alchemy.launch.project_imports import add_to_path

    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    source = find_config(args.cfg)
    document = prepare_cfg(source, record=source != args.cfg, **options)
    add_to_path(args.user_dir)
    with Run(document, {"device": "cpu"}) as run:
        dataset, options = _load(run, args.split, args.user_dir)
        # the loader resolves the name in the config to a function
        collate = get_dataloader(dataset, **options).collate_fn if "collate_fn" in options else None
        stages = peek(dataset, args.n, seed=run.seed, collate_fn=collate)
    print(hide(render(stages)))
    return 1 if stages[-1].error else 0


def _load(run: Any, split: str, user_dir: str) -> tuple[Any, dict[str, Any]]:
    """Load one split as a run does, but without plugins."""
    import torch

    from alchemy.task import AlchemyTask, build_task, load_datasets

    run.device = torch.device("cpu")
    for name, value in {"user_dir": user_dir, "desc": "", "debug": False, "no_file": True}.items():
        run.symbols.set_global(name, value)
    splits = list(run.table("task").get("datasets") or {})
    if split not in splits:
        hint = did_you_mean(split, splits) or f"available: {', '.join(splits) or 'none'}"
        raise AlchemyError(f"the config has no split {split!r}", section="task.datasets", hint=hint)
    run.task = build_task(run)
    # only a task that overrides load_dataset may need the model
    if type(run.task).load_dataset is not AlchemyTask.load_dataset:
        from alchemy.plain_model import build_model

        run.model = build_model(run)
    load_datasets(run, splits=[split])
    return run.task.dataset(split)


COMMAND = Command(_arguments, _main, EXAMPLES)
