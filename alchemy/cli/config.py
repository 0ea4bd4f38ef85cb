"""`alchemy config`: what a config says in the end, and why."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from alchemy.cli.options import Command, Parser, add_configs, add_overrides, print_json

if TYPE_CHECKING:
    from alchemy.config.tree import Document

EXAMPLES = """examples:
  alchemy config show train.toml#large --set optim.lr=1e-3
  alchemy config explain train.toml optim.lr
  alchemy config diff train.toml train.toml#large"""


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print the resolved config", epilog=EXAMPLES)
    add_configs(show, many=False)
    show.add_argument("--json", action="store_true", help="print JSON in place of TOML")
    show.add_argument("--defaults", action="store_true", help="also list what the parts get by default")
    explain = actions.add_parser("explain", help="where a value comes from and what it overrode", epilog=EXAMPLES)
    add_configs(explain, many=False)
    explain.add_argument("key", metavar="KEY", help="optim.lr, plugins.1.log_dir, ...")
    diff = actions.add_parser("diff", help="what two configs do not have in common", epilog=EXAMPLES)
    diff.add_argument("one", metavar="A", help="a config file, or FILE#VARIANT")
    diff.add_argument("other", metavar="B", help="the one to compare with")
    add_overrides(diff)
    actions.add_parser("schema", help="print the JSON schema of configs, for editors", epilog=EXAMPLES)


def _main(args: argparse.Namespace) -> int:
    return {"show": _show, "explain": _explain, "diff": _diff, "schema": _schema}[args.action](args)


def _read(source: str, args: argparse.Namespace) -> Document:
    """A config to look at: nothing is built from it, so that it may be a record's that is not trusted."""
    from alchemy.config.load import prepare_cfg

    return prepare_cfg(source, overrides=args.overrides, allow_code=args.allow_code, compare=True)


def _show(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import print_problems
    from alchemy.config.references import escape
    from alchemy.config.secrets import hide, mask_secrets

    document = _read(args.cfg, args)
    print_problems(document.notes, sys.stderr)
    shown = mask_secrets(document)
    escape(shown)  # so that what is printed is a config with these values
    if args.json:
        print_json(shown.plain())
    else:
        from alchemy.config.toml_writer import dumps

        print(hide(dumps(shown).rstrip("\n")))
    if args.defaults:
        from alchemy.config.defaults import render_defaults

        print("\n# defaults in effect")
        print("\n".join(f"# {line}" for line in render_defaults(document).splitlines()))
    return 0


def _explain(args: argparse.Namespace) -> int:
    from alchemy.config.load import explain
    from alchemy.config.secrets import hide

    print(hide(explain(_read(args.cfg, args), args.key)))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from alchemy.config.load import diff

    one, other = (_read(source, args) for source in (args.one, args.other))
    print(diff(one, other))
    return 0


def _schema(args: argparse.Namespace) -> int:
    from alchemy.config.schema import schema

    print_json(schema())
    return 0


COMMAND = Command(_arguments, _main, EXAMPLES)
