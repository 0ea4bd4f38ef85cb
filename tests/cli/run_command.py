"""Run a command in this process."""

from __future__ import annotations

import pytest

from alchemy.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Run a command, check its exit code, and return what it printed: standard output, then standard error."""
    assert main(list(words)) == code
    out, err = capsys.readouterr()
    return out + err
