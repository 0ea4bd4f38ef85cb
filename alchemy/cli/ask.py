"""Ask before something is changed, and open files in the user's editor or pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from alchemy.errors import AlchemyError


def confirm(question: str, yes: bool) -> bool:
    """Return whether the user agrees; without a terminal, `--yes` is required."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise AlchemyError("standard input is not a terminal, so nothing was done", hint="pass --yes to agree")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def edit_file(path: Path) -> None:
    """Open a file in the user's editor and wait until it is closed."""
    _start(_find_program(("VISUAL", "EDITOR"), ("nano", "vi")), path)


def view_file(path: Path) -> None:
    """Open a file in the user's pager."""
    _start(_find_program(("PAGER",), ("less", "more")), path)


def edit_text(text: str, name: str) -> str:
    """Let the user edit a text in a temporary file."""
    with tempfile.TemporaryDirectory(prefix="alchemy-") as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        edit_file(path)
        return path.read_text(encoding="utf-8", errors="replace")


def _find_program(variables: Sequence[str], usual: Sequence[str]) -> list[str]:
    for variable in variables:
        try:
            if words := shlex.split(os.environ.get(variable, "")):
                return words
        except ValueError as error:
            raise AlchemyError(f"invalid ${variable}: {error}") from error
    found = next(filter(shutil.which, usual), None) if sys.stdin.isatty() else None
    if found is None:
        raise AlchemyError(f"no terminal, or none of {', '.join(usual)} is installed", hint=f"set ${variables[-1]}")
    return [found]


def _start(words: Sequence[str], path: Path) -> None:
    try:
        code = subprocess.run([*words, str(path)], check=False).returncode
    except OSError as error:
        raise AlchemyError(f"cannot start {words[0]}: {error.strerror or error}") from error
    if code:
        raise AlchemyError(f"{words[0]} ended with exit code {code}, so nothing was changed")
