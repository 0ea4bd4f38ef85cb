"""Load Python files as configs: execute them and use their `cfg`, or the plain values they define."""

from __future__ import annotations

import ast
import types
from typing import Any

from alchemy.config.line_numbers import Path
from alchemy.config.values import Parsed, fail


def parse_code(text: str, name: str) -> Parsed:
    """Execute `text`; the config is the mapping `cfg` if defined, otherwise all public names that are not code."""
    try:
        tree = ast.parse(text, name)
    except (SyntaxError, ValueError) as error:
        line, text = (error.lineno or 1, error.msg) if isinstance(error, SyntaxError) else (1, str(error))
        fail(f"invalid Python: {text}", where=f"{name}:{line}")
    values = _execute(tree, name)
    lines = _lines(tree)
    if "cfg" not in values:
        data = {key: value for key, value in values.items() if not key.startswith("_") and not _is_code(value)}
        return Parsed(data, lines)
    cfg = values["cfg"]
    if not isinstance(cfg, dict):
        where = f"{name}:{lines.get(('cfg',), 1)}"
        fail(f"cfg must be a dict, not {type(cfg).__name__}", where=where, hint="write cfg = { ... }")
    return Parsed(cfg, {path[1:]: line for path, line in lines.items() if path[0] == "cfg"})


def _execute(tree: ast.Module, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {"__name__": "alchemy_config", "__file__": name}
    try:
        exec(compile(tree, name, "exec"), values)  # the user has passed --allow-code
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a config is a config error too
        line, frame = 0, error.__traceback__
        while frame is not None:
            line = frame.tb_lineno if frame.tb_frame.f_code.co_filename == name else line
            frame = frame.tb_next
        fail(f"the code raised {type(error).__name__}: {error}", where=f"{name}:{line}" if line else name)
    return values


def _is_code(value: object) -> bool:
    """Return whether a value is code that builds the config (a module, function or class) and not a part of it."""
    return isinstance(value, types.ModuleType) or callable(value) or type(value).__module__ == "__future__"


def _lines(tree: ast.Module) -> dict[Path, int]:
    lines: dict[Path, int] = {}

    def visit(node: ast.expr | None, path: Path) -> None:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    lines[(*path, key.value)] = key.lineno
                    visit(value, (*path, key.value))
        elif isinstance(node, ast.List | ast.Tuple):
            for index, item in enumerate(node.elts):
                lines[(*path, index)] = item.lineno
                visit(item, (*path, index))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            for keyword in node.keywords:
                if keyword.arg:
                    lines[(*path, keyword.arg)] = keyword.lineno
                    visit(keyword.value, (*path, keyword.arg))

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    lines[(target.id,)] = node.lineno
                    visit(node.value, (target.id,))
    return lines
