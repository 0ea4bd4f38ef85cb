"""`alchemy parts`: list the parts that a config can select with `type`, read from source code."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, add_json, add_user_dir, print_json
from alchemy.errors import AlchemyError, did_you_mean

if TYPE_CHECKING:
    from alchemy.config.module_files import Module
    from alchemy.config.part_source import Part
    from alchemy.config.signature import Param

EXAMPLES = """examples:
  alchemy parts                 # all parts
  alchemy parts sched           # learning-rate schedulers
  alchemy parts data-pipe --json"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", nargs="?", default="", metavar="KIND", help="runner, plugin, task, model, sched, ... (default: all)"
    )
    add_user_dir(parser, "package that contains your own parts, which are listed too")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.config.part_source import KINDS, parts

    kind = _parse_kind(args.kind, list(KINDS))
    found = [*_user_parts(args.user_dir, kind), *parts(kind)]
    if args.json:
        print_json([_to_dict(part) for part in found])
        return 0
    for heading in [kind] if kind else KINDS:
        rows = [part for part in found if heading in _kinds(part)]
        if rows:
            print(f"{heading}\n" + "\n".join(_render(part) for part in rows) + "\n")
    return 0


def _user_parts(user_dir: str, kind: str) -> list[Part]:
    """Return the parts defined in the project's source code, under the names used in configs."""
    from alchemy.config.module_files import locate, read_module
    from alchemy.config.part_source import Part, look
    from alchemy.launch.project_imports import import_roots

    folder, where = Path(user_dir), import_roots(user_dir)
    found = []
    for file in sorted(folder.rglob("*.py")):
        pieces = [folder.resolve().name, *file.relative_to(folder).with_suffix("").parts]
        name = ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)
        place = locate(name, where)
        module = read_module(name, place) if place else None
        for key in _config_names(module) if module else ():
            part = look(f"{name}.{key}", where)
            if isinstance(part, Part) and _kinds(part) and (not kind or kind in _kinds(part)):
                found.append(part)
    return found


def _kinds(part: Part) -> frozenset[str]:
    """Return the kinds of a part; a plain nn.Module is considered a model."""
    return part.kinds or frozenset({"model"} if part.complete and part.is_plain_model else ())


def _config_names(module: Module) -> list[str]:
    """Return the names by which configs refer to the classes of a module: the alias, if any, or the class name."""
    aliased = {class_name for rows in module.aliases.values() for _, class_name in rows}
    classes = [key for key, node in module.names.items() if isinstance(node, ast.ClassDef) and key not in aliased]
    return list(dict.fromkeys([*module.aliases, *classes]))


def _parse_kind(word: str, kinds: list[str]) -> str:
    """Normalize a kind: `data-pipe`, `DataPipe` and `data_pipes` all mean "data pipe"."""
    plain = {_letters(kind): kind for kind in kinds}
    found = plain.get(_letters(word)) or plain.get(_letters(word).removesuffix("s"))
    if word and not found:
        names = [kind.replace(" ", "-") for kind in kinds]
        hint = did_you_mean(word, names) or f"one of {', '.join(names)}"
        raise AlchemyError(f"unknown kind of part {word!r}", hint=hint)
    return found or ""


def _letters(word: str) -> str:
    return "".join(filter(str.isalpha, word.lower()))


def _render(part: Part) -> str:
    params = [*map(str, part.keys), *(["..."] if part.takes_kwargs else [])]
    doc = part.doc.strip().partition("\n")[0]
    return "\n".join([f"  {part.path}({', '.join(params)})", *([f"      {doc}"] if doc else [])])


def _to_dict(part: Part) -> dict[str, Any]:
    params = [
        {"name": row.name, "type": row.annotation, "required": row.required, "default": _default(row)}
        for row in part.keys
    ]
    return {
        "type": part.path,
        "kinds": sorted(_kinds(part)),
        "params": params,
        "any_key": part.takes_kwargs,
        "doc": part.doc,
        "where": part.where,
    }


def _default(param: Param) -> str | None:
    return None if param.required else param.default


COMMAND = Command(_arguments, _main, EXAMPLES)
