"""`alchemy version`: which versions are at work, without importing torch."""

from __future__ import annotations

import argparse
import platform

EXAMPLES = """examples:
  alchemy version
  alchemy version --json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    versions = {"alchemy": installed("alchemy"), "python": platform.python_version(), "torch": installed("torch")}
    if args.json:
        import json

        print(json.dumps(versions))
    else:
        print("\n".join(f"{name} {version or 'is not installed'}" for name, version in versions.items()))
    return 0


def installed(package: str) -> str | None:
    """The version of an installed package, read from its metadata and not from the package."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
