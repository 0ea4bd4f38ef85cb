"""`alchemy diff`: what differs between two records, or between a record and the files on disk."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, parse_command, print_json
from alchemy.errors import AlchemyError, did_you_mean, printable

if TYPE_CHECKING:
    from alchemy.analysis.diff import Section, Side
    from alchemy.config.tree import Document

EXAMPLES = """examples:
  alchemy diff last~1 last
  alchemy diff 2026-11-17_21-03 'best(dev/f1)' --only config,metrics
  alchemy diff last .                    # the files on disk: what has changed since the run?
  alchemy diff last~1 last --only code > changes.patch
  alchemy diff last . --only code --exit-code && echo "the code is unchanged"
A config file on disk is read with the options of the run, such as --set.
exit codes: 0; with --exit-code, 1 if there is a difference"""

NAMES = ("config", "code", "environment", "metrics", "ledger")
MOST_NAMES = 8  # of packages in a line


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("a", metavar="A", help="a record: a path, the beginning of its id, 'last', 'last~2', 'best(METRIC)'")
    add("b", metavar="B", help="another record, or a folder to compare with: '.' is the working directory")
    add("--only", metavar="NAME,..", help=f"sections to compare: {', '.join(NAMES)}")
    add("--exit-code", action="store_true", help="exit with 1 if there is a difference")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.diff import OF_FOLDERS, Side, diff_folder, diff_records

    chosen = _parse_sections(args.only)
    if _is_folder(args.a):
        raise AlchemyError(f"{args.a} is not a record", hint=f"put the record first: alchemy diff {args.b} {args.a}")
    with open_index(names=[args.a, args.b]) as index:
        a = Side(index, index.find(args.a))
        if _is_folder(args.b):
            root = Path(args.b)
            for name in chosen if args.only else ():
                if name not in OF_FOLDERS:
                    raise AlchemyError(f"a folder has no {name} to compare with", hint=f"use {', '.join(OF_FOLDERS)}")
            sections = diff_folder(a, root, lambda: _load_config(a, root), chosen)
            other = {"path": os.path.abspath(root)}
        else:
            b = Side(index, index.find(args.b))
            sections = diff_records(a, b, chosen)
            other = _describe(b)
    identical = None if any(section.identical is None for section in sections) else True
    identical = False if any(section.identical is False for section in sections) else identical
    if args.json:
        print_json({"a": _describe(a), "b": other, "identical": identical} | _as_data(sections))
    else:
        _print(sections, [_describe(a), other])
    return int(args.exit_code and not identical)


def _is_folder(path: str) -> bool:
    """Whether a path is a folder that is not a record."""
    from alchemy.index.sync import is_record

    return os.path.isdir(path) and not is_record(os.path.abspath(path))


def _parse_sections(text: str | None) -> tuple[str, ...]:
    if text is None:
        return NAMES
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names or ("",):
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"expected {', '.join(NAMES)}"
            raise AlchemyError(f"--only: no section is called {name!r}", hint=hint)
    return names


def _describe(side: Side) -> dict[str, str]:
    return {"id": side.row.name, "path": str(side.folder), "status": side.row.status}


def _load_config(a: Side, root: Path) -> Document:
    """Load the config file that a record was started from, as it is now, with the options of the command."""
    from alchemy.config.load import prepare_cfg

    command = a.info.get("cmd")
    words = [str(word) for word in command] if isinstance(command, list) else []
    if words[1:2] != ["run"]:
        raise AlchemyError("the record was not started with `alchemy run`, so its config file is not known")
    args = parse_command("run", words[2:])
    variant, tag, seed = (a.info.get(name) for name in ("variant", "tag", "seed"))
    documents = []
    for source in args.cfgs:
        file, _, own = source.partition("#")
        path = root / os.path.expanduser(file)
        if own in (variant, ""):
            if not path.is_file():
                raise AlchemyError(f"the run was started from {path}, which does not exist")
            chosen = seed if args.seeds and type(seed) is int else None
            documents.append(
                prepare_cfg(
                    str(path), variant=str(variant or "") or None, overrides=args.overrides, seed=chosen, compare=True
                )
            )
    fitting = [document for document in documents if document.get("tag") == tag] if len(documents) > 1 else documents
    if len(fitting) != 1:
        raise AlchemyError(f"the command names several configs, and {len(fitting)} of them fit: {' '.join(args.cfgs)}")
    return fitting[0]


def _as_data(sections: list[Section]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section in sections:
        changes = [{"name": name, "a": one, "b": other} for name, one, other in section.changes]
        found[section.name] = {"identical": section.identical, "text": section.text, "changes": changes}
        found[section.name] |= {"files": [vars(file) for file in section.files]} if section.name == "code" else {}
        found[section.name] |= {"update": section.update} if section.name == "ledger" else {}
    return found


def _print(sections: list[Section], sides: list[dict[str, str]]) -> None:
    for label, side in zip("AB", sides, strict=True):
        path = os.path.relpath(side["path"])
        print(
            printable(
                f"{label}  {path} ({side['status']})" if "id" in side else f"{label}  the files in {side['path']}"
            )
        )
    print()
    for section in sections:
        same = f"identical ({section.text})" if section.text else "identical"
        print(printable(f"{section.name}: {same if section.identical else section.text}"))
        if section.name == "metrics" and section.changes:
            _print_metrics(section.changes)
        else:
            for line in _describe_changes(section.changes):
                print(printable(f"  {line}"))
        for file in section.files:
            print(printable(file.diff or f"  {file.file}: {file.change}{f' ({file.note})' if file.note else ''}"))
    different = [section.name for section in sections if section.identical is False]
    unknown = [section.name for section in sections if section.identical is None]
    verdict = f"A and B differ in: {', '.join(different)}" if different else "A and B are identical"
    compared = [section.name for section in sections if section.identical]
    verdict += f" in: {', '.join(compared)}" if not different and len(compared) < len(NAMES) else ""
    print(f"\n{verdict}" + (f"; not compared: {', '.join(unknown)}" if unknown else ""))


def _describe_changes(changes: list[tuple[str, Any, Any]]) -> Iterator[str]:
    """Yield a line for each change; packages that only one side has are listed together."""
    from alchemy.analysis.diff import PACKAGES
    from alchemy.index.value_format import format_count, format_names

    alone: dict[str, list[str]] = {"A": [], "B": []}
    for name, one, other in changes:
        if name.startswith(PACKAGES) and (one is None or other is None):
            alone["A" if other is None else "B"].append(name.removeprefix(PACKAGES))
        else:
            yield f"{name}: {_show(one)} -> {_show(other)}"
    for side, names in alone.items():
        if names:
            yield f"{format_count(len(names), 'package')} only in {side}: {format_names(sorted(names), MOST_NAMES)}"


def _show(value: object) -> str:
    return "absent" if value is None else str(value)


def _print_metrics(changes: list[tuple[str, Any, Any]]) -> None:
    from alchemy.cli.table_format import fit_table
    from alchemy.records.agreement import format_pair

    rows = []
    for name, one, other in changes:
        pairs = [format_pair(*((side or {}).get(key, "") for side in (one, other))) for key in ("last", "best")]
        rows.append([name, *(text.replace("None", "-") for pair in pairs for text in pair)])
    lines, _ = fit_table(["metric", "A last", "B last", "A best", "B best"], rows)
    print("\n".join(f"  {line}" for line in lines))


COMMAND = Command(_arguments, _main, EXAMPLES)
