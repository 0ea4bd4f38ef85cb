"""Convert an argparse parser to a config: one key per option, with the option's help text as a comment."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from alchemy.config.toml_writer import format_inline
from alchemy.config.tree import COMMAND_LINE, Document, Origin
from alchemy.config.values import decode, quote_key


def from_parser(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> Document:
    """Parse `argv` (default: `sys.argv`) and return the result as a document.

    A command-line error exits the program, as in any argparse program.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    >>> from_parser(parser, ["--lr", "0.5"])["lr"]
    0.5
    """
    values = decode(vars(parser.parse_args(argv)), parser.prog)
    with _suppress_defaults(parser):
        given = vars(parser.parse_args(argv))
    doc = Document(path=parser.prog)
    for key, value in values.items():
        doc.put(key, value, COMMAND_LINE if key in given else Origin(kind="default"))
    doc.source = _render(parser, values)
    return doc


@contextmanager
def _suppress_defaults(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Suppress all defaults, so that the parsed namespace contains only the options that were given."""
    kept = [(action, action.default) for action in _actions(parser)]
    parsers = [(one, dict(one._defaults)) for one in _parsers(parser)]
    try:
        for action, _ in kept:
            action.default = argparse.SUPPRESS
        for one, _ in parsers:
            one._defaults.clear()
        yield
    finally:
        for action, default in kept:
            action.default = default
        for one, defaults in parsers:
            one._defaults.update(defaults)


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(one for choices in below for child in choices.values() for one in _parsers(child))]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for one in _parsers(parser) for action in one._actions]


def _render(parser: argparse.ArgumentParser, values: dict[str, Any]) -> str:
    """Render the values as TOML, with the help text of each option as a comment above it."""
    helps = {action.dest: action.help or "" for action in _actions(parser) if action.help != argparse.SUPPRESS}
    lines = []
    for key, value in values.items():
        lines += [f"# {line.strip()}" for line in helps.get(key, "").splitlines()]
        lines.append(f"{quote_key(key)} = {format_inline(value)}")
    return "\n".join([*lines, ""])
