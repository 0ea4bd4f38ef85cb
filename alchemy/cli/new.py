"""`alchemy new`: writes a small project that trains at once."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from alchemy.cli.options import Command
from alchemy.errors import AlchemyError

EXAMPLES = """examples:
  alchemy new demo && cd demo && alchemy run train.toml
  alchemy new . --force"""

TEMPLATE = Path(__file__).with_name("template")
# a name that starts with a dot would be left out of some packages
RENAMED = {"gitignore": ".gitignore"}
SPLITS = {"train": 900, "dev": 150, "test": 150}
LABELS = ("red", "green", "blue")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="PROJECT", help="the folder to write into; made where it is not there")
    parser.add_argument("--force", action="store_true", help="overwrite files of the same names; others are left alone")


def _main(args: argparse.Namespace) -> int:
    if not args.project.strip():
        raise AlchemyError(
            "the project has no name", hint="write 'alchemy new demo', or 'alchemy new .' for this folder"
        )
    folder = Path(args.project)
    files = project(folder.resolve().name or "demo")
    there = [name for name in files if (folder / name).exists()]
    if there and not args.force:
        hint = "choose another folder, or overwrite them with --force"
        raise AlchemyError(f"{folder} already has {', '.join(there)}", hint=hint)
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise AlchemyError(f"cannot write {folder / name}: {error.strerror or error}") from error
    print("\n".join(f"wrote {folder / name}" for name in files))
    print(f"next: {'' if args.project == '.' else f'cd {_quoted(args.project)} && '}alchemy run train.toml")
    return 0


def project(name: str) -> dict[str, str]:
    """The files of a new project and their text."""
    files = {}
    for path in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        place = path.relative_to(TEMPLATE)
        text = path.read_text(encoding="utf-8")
        # a JSON string is a TOML string too
        text = text.replace('"{{name}}"', json.dumps(name, ensure_ascii=False)).replace("{{name}}", name)
        files[place.with_name(RENAMED.get(place.name, place.name)).as_posix()] = text
    for split, count in SPLITS.items():
        files[f"data/{split}.csv"] = "x,y,label\n" + "".join(points(split, count))
    return files


def points(split: str, count: int) -> Iterator[str]:
    """Rows of three spiral arms that wind into each other; the same every time."""
    numbers = random.Random(split)
    for _ in range(count):
        arm, radius = numbers.randrange(len(LABELS)), math.sqrt(numbers.uniform(0.01, 1.0))
        angle = 4 * radius + 2 * math.pi * arm / len(LABELS) + numbers.gauss(0, 0.25)
        yield f"{radius * math.cos(angle):.4f},{radius * math.sin(angle):.4f},{LABELS[arm]}\n"


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)


COMMAND = Command(_arguments, _main, EXAMPLES)
