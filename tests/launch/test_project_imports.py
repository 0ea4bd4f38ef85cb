"""Every project calls its package `src`, and imports its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from alchemy.launch.project_imports import add_to_path, import_roots
from alchemy.registry import Registrable

PART = """
from tests.launch.test_project_imports import Kind

@Kind.register("Mine")
class Part(Kind):
    where = {where!r}
"""


class Kind(Registrable):
    pass


@pytest.fixture
def clean() -> Iterator[None]:
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def test_the_second_project_of_a_process_gets_its_own_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: None
) -> None:
    found = []
    for name in ("a", "b", "a"):
        source = tmp_path / name / "src" / "parts.py"
        source.parent.mkdir(parents=True, exist_ok=True)
        (source.parent / "__init__.py").touch()
        source.write_text(PART.format(where=name))
        monkeypatch.chdir(tmp_path / name)
        importlib.invalidate_caches()
        add_to_path("src")
        assert sys.path[0] == import_roots("src")[0] == str(tmp_path / name)
        found.append(Kind.resolve_registered_module("src.parts.Mine").where)  # type: ignore[attr-defined]
    assert found == ["a", "b", "a"]
