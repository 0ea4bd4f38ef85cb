"""What `run`, `test` and `predict` share: configs are checked and runs are started."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alchemy.errors import ConfigError, Problem

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult


def check_documents(documents: Sequence[Document], args: argparse.Namespace) -> list[Problem]:
    """What loading and the shallow check have to say about the configs."""
    from alchemy.config.check import check_all
    from alchemy.launch.project_imports import import_roots
    from alchemy.preview import preview_files

    return check_all(documents, strict=args.strict, roots=import_roots(args.user_dir), more=[preview_files])


def raise_on_errors(problems: Sequence[Problem]) -> None:
    """Any error ends here, together with all other problems; warnings alone are told by the run itself."""
    if any(problem.error for problem in problems):
        raise ConfigError(list(problems))


def start_runs(documents: Sequence[Document], args: argparse.Namespace, **more: Any) -> list[RunResult]:
    """Runs the documents and returns their results; none if one has failed and its traceback was asked for."""
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
        _show(error, debugger=args.pdb)
        return []


def _show(error: BaseException, *, debugger: bool) -> None:
    """Whoever asks for the traceback gets it whole, also of errors that are told in one line elsewhere."""
    import traceback

    from alchemy.config.secrets import hide

    print(hide("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if debugger:
        import pdb

        pdb.post_mortem(error.__traceback__)
