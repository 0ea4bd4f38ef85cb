"""`alchemy check`: everything that is wrong with a config, at once, before it costs anything."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, add_configs, add_trial, print_json
from alchemy.errors import ConfigError, Problem

if TYPE_CHECKING:
    from alchemy.config.tree import Document

EXAMPLES = """examples:
  alchemy check train.toml                   # reads the file and the source of its parts
  alchemy check train.toml#large --deep      # also builds the parts and pushes one batch through
  alchemy check configs/*.toml --strict --json"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_configs(parser)
    add = parser.add_argument
    add("--deep", action="store_true", help="build the parts, push one batch through, estimate the memory")
    add_trial(parser)
    add("--json", action="store_true", help="print JSON")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import as_data, clean, errors, report

    problems: list[Problem] = []
    notes: list[str] = []  # what the deep check has measured
    for source in args.cfgs:
        problems += _examine(source, args, notes)
    if args.json:
        print_json({**as_data(problems), "notes": notes})
    else:
        print("".join(f"{note}\n" for note in notes), end="")
        report(problems, sys.stdout)
        if clean(problems):
            print("ok")
    return 2 if errors(problems) else 0


def _examine(source: str, args: argparse.Namespace, notes: list[str]) -> list[Problem]:
    """The problems of one file: of its body and of each of its variants, or of the variant that is named."""
    from alchemy.cli.launch import vet
    from alchemy.config.load import load_family
    from alchemy.launch.project_imports import reach

    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    try:
        documents = load_family(source, **options)
    except ConfigError as error:
        return error.problems
    reach(args.user_dir)
    problems = vet(documents, args)
    if args.deep and not any(problem.error for problem in problems):
        problems += [problem for document in documents for problem in _deep(document, args, notes)]
    return problems


def _deep(document: Document, args: argparse.Namespace, notes: list[str]) -> list[Problem]:
    from alchemy.cli.summary import labels
    from alchemy.verify.dry_run import dry_run

    found = dry_run(document, args.device, user_dir=args.user_dir)
    if found.text:
        notes.append(f"{labels([document])[0]}: {found.text}")
    return list(found)


COMMAND = Command(_arguments, _main, EXAMPLES)
