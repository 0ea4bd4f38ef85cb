"""Rules for the tests: helpers live in helper modules, files are short, every `raises` has a message."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = [path for path in sorted(HERE.rglob("test_*.py")) if "ner" not in path.parts]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(HERE).as_posix())
def test_a_file_keeps_to_the_rules(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            assert not any(name.startswith("test_") for name in (node.module or "").split(".")), node.module
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.raises", "pytest.warns"):
            assert "match" in {keyword.arg for keyword in node.keywords}, f"line {node.lineno}: no match="
