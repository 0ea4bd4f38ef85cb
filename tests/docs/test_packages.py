"""The diagram of the packages matches the import graph."""

from __future__ import annotations

from pathlib import Path

from tests.docs.packages import BEGIN, END, PAGE, diagram, imports, reduce


def test_the_diagram_is_that_of_the_import_graph() -> None:
    text = PAGE.read_text(encoding="utf8").partition(BEGIN)[2].partition(END)[0]
    assert text == diagram(), "write it again with: python -m tests.docs.packages"


def test_only_direct_arrows_are_drawn(tmp_path: Path) -> None:
    package = tmp_path / "house"
    for name, text in {"a": "import house.b, house.c", "b": "def f():\n    from house.c import x", "c": ""}.items():
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text(text)
    edges = imports(package)
    assert edges == {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert reduce(edges) == {"a": {"b"}, "b": {"c"}, "c": set()}
