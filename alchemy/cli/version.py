"""`alchemy version`: print versions without importing torch."""

from __future__ import annotations

import argparse
import os
import sys

import alchemy
from alchemy.cli.options import Command, add_json, print_json

EXAMPLES = """examples:
  alchemy version
  alchemy version --json"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    versions = {"alchemy": alchemy.__version__, "python": sys.version.split()[0], "torch": find_version("torch")}
    if args.json:
        print_json(versions)
    else:
        print("\n".join(f"{name} {version or 'is not installed'}" for name, version in versions.items()))
    return 0


def find_version(package: str) -> str | None:
    """Return the version from the name of the metadata folder; importing importlib.metadata would take 40 ms."""
    start, end = f"{package}-", ".dist-info"
    for folder in filter(os.path.isdir, sys.path):
        for name in os.listdir(folder):
            if name.startswith(start) and name.endswith(end):
                return name[len(start) : -len(end)]
    return None


COMMAND = Command(_arguments, _main, EXAMPLES)
