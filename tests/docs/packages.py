"""Draw the import graph of the packages in docs/architecture.md: `python -m tests.docs.packages`."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- packages -->\n", "<!-- end of packages -->"
HIDDEN = {"__init__", "__main__", "util", "scheduler", "backward"}  # the entry point, and paths of older projects


def imports(root: Path) -> dict[str, set[str]]:
    """Return the top-level names below `root`, each with the names that its files import."""
    names = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    edges: dict[str, set[str]] = {name: set() for name in names - HIDDEN}
    for path in root.rglob("*.py"):
        owner = path.relative_to(root).with_suffix("").parts[0]
        if owner in edges and "template" not in path.parts:
            for module in _imported(ast.parse(path.read_text(encoding="utf8"))):
                first = module.removeprefix(f"{root.name}.").partition(".")[0]
                if module.startswith(f"{root.name}.") and first in edges and first != owner:
                    edges[owner].add(first)
    return edges


def _imported(tree: ast.AST) -> Iterator[str]:
    """Return the modules that a file imports, also in functions, but not under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imported(node)


def reduce(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Remove the arrows that follow from longer paths."""
    below: dict[str, set[str]] = {}
    for name in graphlib.TopologicalSorter(edges).static_order():
        below[name] = edges[name].union(*(below[other] for other in edges[name]))
    return {
        name: {other for other in others if not any(other in below[between] for between in others - {other})}
        for name, others in edges.items()
    }


def diagram(root: Path = ROOT / "alchemy") -> str:
    """Return the import graph as a Mermaid flow chart; arrows point to the imported package."""
    kept = reduce(imports(root))
    rows = [f"    {name} --> {' & '.join(sorted(others))}" for name, others in sorted(kept.items()) if others]
    return "\n".join(["```mermaid", "flowchart TD", *rows, "```", ""])


def main() -> None:
    """Write the diagram into its page."""
    before, _, rest = PAGE.read_text(encoding="utf8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + diagram() + END + rest.partition(END)[2], encoding="utf8")


if __name__ == "__main__":
    main()
