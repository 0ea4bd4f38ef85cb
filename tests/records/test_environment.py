"""The list of installed packages follows the folders on the import path."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from alchemy.records.environment import installed_packages


def install(folder: Path, name: str, number: str) -> None:
    home = folder / f"{name}-{number}.dist-info"
    home.mkdir()
    (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n\nName: of the text\n")


def test_a_package_installed_meanwhile_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / "missing")])
    before = installed_packages()
    assert before["torch"] == version("torch")
    install(tmp_path, "Aaa", "1.0")
    assert installed_packages() == {**before, "Aaa": "1.0"}
    install(tmp_path, "zzz", "2.0")
    assert list(installed_packages())[-1] == "zzz"
