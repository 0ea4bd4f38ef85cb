"""Select the names of the API reference, and write its Markdown pages for mkdocstrings.

Names are read from source, without importing torch: the parts that `alchemy parts` lists, their base classes, and the
names that packages export.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from alchemy.config.part_source import KINDS, parts

ROOT = Path(__file__).resolve().parents[2]
# documented completely, although they contain no part and no package exports their names
WHOLE_MODULES = (
    "alchemy.analysis.record_set", "alchemy.analysis.record_table",
    "alchemy.errors", "alchemy.metrics.scores", "alchemy.metrics.metric_stack", "alchemy.predictor",
    "alchemy.verify.reproducibility",
    "alchemy.verify.replay",
)  # fmt: skip
NAMES = ("alchemy.registry.Registrable",)
CALLABLE_MODULES = {"alchemy.records": "alchemy.analysis.record_set.records"}  # with the function that is called
TYPES = "alchemy.constraints"  # its type aliases, which signatures use
# not for new code: the command line, and the import paths that old projects use
PRIVATE = ("alchemy.cli", "alchemy.util", "alchemy.scheduler", "alchemy.backward")


class Name(NamedTuple):
    """A documented class or function: its page, the path mkdocstrings renders, and the path a config writes."""

    page: str
    path: str
    summary: str
    config: str = ""


@cache
def names() -> dict[str, list[Name]]:
    """Return every documented name, by page. The page of `alchemy` itself only links to the others.

    >>> pages = names()
    >>> [name.path for name in pages["alchemy.stop"]][:2]
    ['alchemy.stop.StopRule', 'alchemy.stop.Divergence']
    """
    found: dict[str, Name] = {}  # by the module and the name of the definition
    for shown, config in [*part_paths(), *((path, "") for path in (*_exports(), *_contracts(), *NAMES))]:
        home = resolve(shown)
        summary = _summary(home) if home else ""
        if home and summary and home not in found and not shown.startswith(PRIVATE):
            found[home] = Name(shown.rpartition(".")[0], shown, summary, config)
    found |= {row.path: row for row in _type_aliases()}
    pages: dict[str, list[Name]] = {}
    first = {resolve(path) for path in _contracts()}
    for name in sorted(found.values(), key=lambda name: (name.page, resolve(name.path) not in first)):
        pages.setdefault(name.page, []).append(name)
    top = [found[home] for name in exports("alchemy") if (home := resolve(f"alchemy.{name}")) in found]
    return {"alchemy": top, **dict(sorted(pages.items()))}


def markdown(page: str, rows: list[Name]) -> str:
    """Return the source of a page: the docstring of the module, a table of its names, and each name in full."""
    table = [f"| [`{row.path.removeprefix(page + '.')}`][{row.path}] | {row.summary} |" for row in rows]
    # rank guides above the reference in search results
    lines = ["---", "search:", "  boost: 0.3", "---", "", f"# {page}", ""]
    lines += [ast.get_docstring(_tree(page) or ast.Module([], [])) or "", ""]
    lines += ["| name | summary |", "|---|---|", *table, ""]
    for row in rows if page != "alchemy" else ():
        lines += [f"::: {row.path}", ""]
        if row.config and row.config != row.path:
            lines += [f'In a config: `type = "{row.config}"`.', ""]
    return "\n".join(lines)


def overview(pages: dict[str, list[Name]]) -> str:
    """Return the source of the page that lists all others."""
    lines = ["---", "search:", "  exclude: true", "---", ""]
    lines += ["# API reference", "", "Public classes and functions, generated from their docstrings.", ""]
    lines += ["| module | contents |", "|---|---|"]
    for page, rows in pages.items():
        listed = ", ".join(f"[`{row.path.rpartition('.')[2]}`][{row.path}]" for row in rows)
        lines.append(f"| [`{page}`]({page}.md) | {listed} |")
    return "\n".join([*lines, ""])


def exports(package: str) -> list[str]:
    """Return the public names of a module: its `__all__`, or the names that it imports lazily."""
    tree = _tree(package)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return list(_lazy(tree)) if tree else []


@cache
def resolve(path: str) -> str:
    """Return the path where a class or function is defined, or "" if there is none.

    >>> resolve("alchemy.AlchemyOptimizer")
    'alchemy.optim.base.AlchemyOptimizer'
    """
    if path in CALLABLE_MODULES:
        return CALLABLE_MODULES[path]
    module, _, name = path.rpartition(".")
    tree = _tree(module)
    if tree is None:
        return ""
    if _definition(tree, name) is not None:
        return path
    if name in (homes := _lazy(tree)):
        return resolve(f"{module}.{homes[name]}.{name}")
    source = _imports(tree).get(name, "")
    return resolve(source) if source.startswith("alchemy.") else ""


@cache
def part_paths() -> list[tuple[str, str]]:
    """Return the path of every part and its name in a config, such as `alchemy.runner.Trainer` for AlchemyTrainer."""
    return [(p.path if resolve(p.path) else f"{p.module}.{p.name}", p.path) for p in parts()]


@cache
def _contracts() -> list[str]:
    return [path for paths in KINDS.values() for path in paths]


def _exports() -> Iterator[str]:
    """Yield the exports of packages, and of modules that define a part or a base class."""
    used = {path.rpartition(".")[0] for path in (*(path for path, _ in part_paths()), *_contracts())}
    packages = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "alchemy").rglob("__init__.py")}
    packages -= {"alchemy"}  # its names are defined in modules
    top = {resolve(f"alchemy.{name}") for name in exports("alchemy")}
    for module in sorted(used | packages | set(WHOLE_MODULES)):
        listed = exports(module) or (_public(module) if module in WHOLE_MODULES else [])
        yield from (path for name in listed if _binds(path := f"{module}.{name}") or (path := resolve(path)))
    yield from top


def _binds(path: str) -> bool:
    """Return whether static analysis finds the name in the module: it does not follow lazy imports."""
    module, _, name = path.rpartition(".")
    tree = _tree(module)
    return tree is not None and (name in _imports(tree) or _definition(tree, name) is not None)


@cache
def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the names that a module imports, including those under `if TYPE_CHECKING:`."""
    blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    nodes = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {item.asname or item.name: f"{node.module}.{item.name}" for node in nodes for item in node.names}


def _public(module: str) -> list[str]:
    tree = _tree(module)
    if tree is None:
        raise SystemExit(f"tools/docsite/reference.py: module not found: {module}")
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"]


def _type_aliases() -> Iterator[Name]:
    tree = _tree(TYPES)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and (value := ast.unparse(node.value)).startswith(("Annotated[", "Literal[")):
            yield Name(TYPES, f"{TYPES}.{ast.unparse(node.targets[0])}", f"`{value}`")


def _summary(home: str) -> str:
    module, _, name = home.rpartition(".")
    tree = _tree(module)
    node = _definition(tree, name) if tree else None
    paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0] if node is not None else ""
    return " ".join(paragraph.split())


def _definition(tree: ast.Module, name: str) -> ast.ClassDef | ast.FunctionDef | None:
    found = (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name)
    return next(found, None)


def _lazy(tree: ast.Module) -> dict[str, str]:
    """Return the names that a package imports lazily, with the module of each: the argument of `lazy`."""
    values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    for node in values.values():
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("lazy(__name__, "):
            homes = node.args[1]
            return dict(ast.literal_eval(values[homes.id] if isinstance(homes, ast.Name) else homes))
    return {}


@cache
def _tree(module: str) -> ast.Module | None:
    place = ROOT.joinpath(*module.split("."))
    for file in (place / "__init__.py", place.with_suffix(".py")):
        if file.is_file():
            return ast.parse(file.read_text("utf-8"))
    return None
