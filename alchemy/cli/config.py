"""`alchemy config`: show, explain and compare resolved configs."""

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
    show.add_argument("--json", action="store_true", help="print JSON instead of TOML")
    show.add_argument("--defaults", action="store_true", help="also list the default values of all parts")
    explain = actions.add_parser("explain", help="show where a value comes from and what it overrides", epilog=EXAMPLES)
    add_configs(explain, many=False)
    explain.add_argument("key", metavar="KEY", help="a dotted key: optim.lr, plugins.1.log_dir, ...")
    diff = actions.add_parser("diff", help="show the differences between two configs", epilog=EXAMPLES)
    diff.add_argument("one", metavar="A", help="a config file, or FILE#VARIANT")
    diff.add_argument("other", metavar="B", help="the config to compare with")
    add_overrides(diff)
    actions.add_parser("schema", help="print the JSON schema of configs, for editors", epilog=EXAMPLES)


def _main(args: argparse.Namespace) -> int:
    return {"show": _show, "explain": _explain, "diff": _diff, "schema": _schema}[args.action](args)


def _read(source: str, args: argparse.Namespace) -> Document:
    """Load a config for display. Nothing is built from it, so the config of an untrusted record is allowed."""
    from alchemy.cli.record_names import find_config
    from alchemy.config.load import prepare_cfg

    return prepare_cfg(find_config(source), overrides=args.overrides, allow_code=args.allow_code, compare=True)


def _show(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import print_problems
    from alchemy.config.references import escape
    from alchemy.config.secrets import hide, mask_secrets

    document = _read(args.cfg, args)
    print_problems(document.notes, sys.stderr)
    shown = mask_secrets(document)
    escape(shown)  # so that the printed text is a valid config with the same values
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
