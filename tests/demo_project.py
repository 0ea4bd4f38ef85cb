"""The project of `alchemy new`, as a folder for a test."""

from pathlib import Path

import pytest

from alchemy.cli.new import project


def open_demo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the project to a folder, and make it the working directory."""
    for name, text in project("demo").items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder
