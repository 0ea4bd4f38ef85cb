"""Check configs and start runs: shared by `run`, `rerun`, `test` and `predict`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alchemy.errors import AlchemyError, ConfigError, Problem

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult


def check_documents(documents: Sequence[Document], args: argparse.Namespace) -> list[Problem]:
    """Return the problems found while loading and statically checking the configs."""
    from alchemy.config.check import check_all
    from alchemy.launch.project_imports import import_roots
    from alchemy.preview import preview_files

    return check_all(documents, strict=args.strict, roots=import_roots(args.user_dir), more=[preview_files])


def raise_on_errors(problems: Sequence[Problem]) -> None:
    """Raise all problems if any of them is an error. The run itself reports warnings."""
    if any(problem.error for problem in problems):
        raise ConfigError(list(problems))


def check_secrets(documents: Sequence[Document]) -> None:
    """Raise an error if a secret differs from the original value, which is masked in the record's config."""
    from alchemy.config.secrets import changed_secrets

    for document in documents:
        for key in changed_secrets(document):
            hint = f"use the value of the original run, or set {key} in a copy of the config"
            raise AlchemyError(f"{key} differs from the secret masked in {document.path}", hint=hint)


def start_runs(documents: Sequence[Document], args: argparse.Namespace, **more: Any) -> list[RunResult]:
    """Run the documents and return their results, or an empty list if one fails with --raise or --pdb."""
    from alchemy.runner import run

    try:
        return run(
            list(documents),
            device=args.device,
            user_dir=args.user_dir,
            desc=args.desc,
            debug=args.debug,
            no_file=not args.file,
            strict=args.strict,
            raise_errors=args.raise_errors or args.pdb,
            **more,
        )
    except Exception as error:
        if not (args.raise_errors or args.pdb):
            raise
        _print_traceback(error, debugger=args.pdb)
        return []


def _print_traceback(error: BaseException, *, debugger: bool) -> None:
    """Print the full traceback, even for errors that are otherwise reported on one line."""
    import traceback

    from alchemy.config.secrets import hide

    print(hide("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if debugger:
        import pdb

        pdb.post_mortem(error.__traceback__)
