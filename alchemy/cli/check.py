"""`alchemy check`: report all problems in a config without running it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, add_configs, add_json, add_trial, print_json
from alchemy.errors import ConfigError, Problem

if TYPE_CHECKING:
    from alchemy.config.tree import Document

EXAMPLES = """examples:
  alchemy check train.toml                   # read the file and the source of its parts
  alchemy check train.toml#large --deep      # also build the parts and run one batch
  alchemy check configs/*.toml --strict --json"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_configs(parser)
    add = parser.add_argument
    add("--deep", action="store_true", help="also build the parts, run one batch and estimate the memory")
    add_trial(parser)
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import find_errors, is_clean, print_problems, to_dict

    problems: list[Problem] = []
    notes: list[str] = []  # measurements of the deep check
    for source in args.cfgs:
        problems += _examine(source, args, notes)
    if args.json:
        print_json({**to_dict(problems), "notes": notes})
    else:
        print("".join(f"{note}\n" for note in notes), end="")
        print_problems(problems, sys.stdout)
        if is_clean(problems):
            print("ok")
    return 2 if find_errors(problems) else 0


def _examine(source: str, args: argparse.Namespace, notes: list[str]) -> list[Problem]:
    """Return the problems in a file and all its variants, or only those in the named variant."""
    from alchemy.cli.launch import check_documents
    from alchemy.config.load import load_family
    from alchemy.launch.project_imports import add_to_path

    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    try:
        documents = load_family(source, **options)
    except ConfigError as error:
        return error.problems
    add_to_path(args.user_dir)
    problems = check_documents(documents, args)
    for document in documents:
        problems += _check_sweep(document, args, problems)
    if args.deep and not any(problem.error for problem in problems):
        problems += [problem for document in documents for problem in _deep(document, args, notes)]
    return problems


def _check_sweep(document: Document, args: argparse.Namespace, known: Sequence[Problem]) -> list[Problem]:
    """Return the mistakes in `[sweep]` as warnings: they have no effect on a run."""
    if not isinstance(document.get("sweep"), dict):
        return []
    from alchemy.cli.sweep import check_sweep

    places = {(problem.where, problem.message) for problem in known}
    found = check_sweep(document, args)[1]
    return [replace(problem, error=False) for problem in found if (problem.where, problem.message) not in places]


def _deep(document: Document, args: argparse.Namespace, notes: list[str]) -> list[Problem]:
    from alchemy.cli.summary import label_runs
    from alchemy.verify.dry_run import dry_run

    found = dry_run(document, args.device, user_dir=args.user_dir)
    if found.text:
        notes.append(f"{label_runs([document])[0]}: {found.text}")
    return list(found)


COMMAND = Command(_arguments, _main, EXAMPLES)
