"""`alchemy predict`: writes what a trained model says about data."""

from __future__ import annotations

import argparse
from typing import Any

from alchemy.cli.options import add_launch, add_overrides
from alchemy.cli.test import add_target
from alchemy.errors import AlchemyError

FORMATS = ["jsonl", "csv"]

EXAMPLES = """examples:
  alchemy predict latest --out predictions.jsonl
  alchemy predict records/demo/2026-01-31_12-00-00.000000 --split dev --format csv --out dev.csv
  alchemy predict predict.toml"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--out", default="", metavar="FILE", help="where to write (default: results/ of the new record)")
    add("--format", choices=FORMATS, default=None, help="default: by the ending of FILE, else jsonl")
    add("--split", default=None, metavar="NAME", help="the split to predict (default: inference, else test)")
    add_overrides(parser)
    add_launch(parser)


def main(args: argparse.Namespace) -> int:
    from alchemy.cli.derive import for_prediction
    from alchemy.cli.target import open_target, start_derived
    from alchemy.launch.project import reach

    suffix = choose_format(args.out, args.format)
    reach(args.user_dir)
    target = open_target(args)
    derived = for_prediction(target.document, target.model_path, args.split)

    def job(*words: Any, **options: Any) -> Any:
        from alchemy.runner import run_task  # here: a wrong config is told before torch is imported

        # the runner finds them among its symbols
        return run_task(*words, predict_out=args.out, predict_format=suffix, **options)

    return start_derived(target, derived, args, "predictions", run_task_fn=job)


def choose_format(out: str, asked: str | None) -> str:
    """The format of the file; its name and `--format` must agree.

    >>> choose_format("a.csv", None), choose_format("", None)
    ('csv', 'jsonl')
    """
    ending = out.rpartition(".")[2] if "." in out else ""
    if out and (ending not in FORMATS or asked not in (None, ending)):
        raise AlchemyError(f"{out} does not end in .{asked or 'jsonl or .csv'}", hint="its ending tells the format")
    return asked or ending or "jsonl"
