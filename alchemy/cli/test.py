"""`alchemy test`: evaluate the model of a record on its test split."""

from __future__ import annotations

import argparse

from alchemy.cli.options import Command, add_launch, add_overrides, add_target

EXAMPLES = """examples:
  alchemy test records/demo/2026-01-31_12-00-00.000000
  alchemy test latest --checkpoint last
  alchemy test train.toml --set model.model_path=checkpt/best"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--drop", action="append", default=[], metavar="PIPE", help="eval pipe to leave out; may be repeated"
    )
    add_overrides(parser)
    add_launch(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.derived_config import derive_test
    from alchemy.cli.target import open_target, start_derived

    target = open_target(args)
    return start_derived(target, derive_test(target.document, target.model_path, args.drop), args, "test")


COMMAND = Command(_arguments, _main, EXAMPLES)
