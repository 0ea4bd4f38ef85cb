"""The arguments that commands share, and a parser that explains a misspelt one."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from alchemy.cli import COMMANDS
from alchemy.errors import AlchemyError, did_you_mean, printable
from alchemy.synonyms import option_for


class Parser(argparse.ArgumentParser):
    """argparse whose errors are AlchemyErrors with a hint. Abbreviated options are refused, as typos are."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise AlchemyError(f"{self.prog}: {message}", hint=f"see '{self.prog} --help'")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = list(action.choices or ())
        if choices and value not in choices:
            hint = did_you_mean(str(value), map(str, choices)) or f"one of {', '.join(map(str, choices))}"
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise AlchemyError(f"{self.prog}: {value!r} is not a valid {name}", hint=hint)

    def options(self) -> list[str]:
        return [option for action in self._actions for option in action.option_strings]

    def nested(self) -> dict[str, Parser]:
        """The parsers of second-level commands, where there are any."""
        return next((action.choices for action in self._actions if isinstance(action.choices, dict)), {})

    def choices_after(self, word: str) -> list[str]:
        """What may come behind an option, or as an argument; nothing where that is free."""
        for action in self._actions:
            due = word in action.option_strings if action.option_strings else not word.startswith("-")
            if due and action.choices:
                return [str(choice) for choice in action.choices]
        return []


class Command(NamedTuple):
    """What the module of a command has as COMMAND: the arguments, what is done with them, and the end of the help."""

    arguments: Callable[[Parser], None]
    main: Callable[[argparse.Namespace], int]
    examples: str


def load_command(name: str) -> Command:
    found: Command = importlib.import_module(f"alchemy.cli.{name}").COMMAND
    return found


def build_parser(name: str) -> Parser:
    purpose, found = COMMANDS[name], load_command(name)
    parser = Parser(prog=f"alchemy {name}", description=purpose[0].upper() + purpose[1:] + ".", epilog=found.examples)
    found.arguments(parser)
    return parser


def parse_command(name: str, words: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(name)
    nested = parser.nested()
    # intermixed: `run a.toml --device 0 b.toml` means what it says
    args, extra = parser.parse_known_args(words) if nested else parser.parse_known_intermixed_args(words)
    if extra:
        inner = nested.get(words[0], parser)
        unknown = next((word for word in extra if word.startswith("-")), extra[0])
        hint = _meant_option(unknown, words, inner.options()) if unknown.startswith("-") else ""
        raise AlchemyError(f"{inner.prog} takes no {unknown!r}", hint=hint or f"see '{inner.prog} --help'")
    return args


def _meant_option(unknown: str, words: Sequence[str], options: Sequence[str]) -> str:
    """The option that was meant: a misspelt one, or what other programs call by this name."""
    name, _, value = unknown.partition("=")
    after = words[words.index(unknown) + 1 :] if not value and unknown in words else []
    if after and not after[0].startswith("--"):
        value = after[0]
    meant = option_for(name, value)
    # what is written in a config can be said here too, wherever configs can be changed
    there = meant and (not meant.startswith("write '") or meant.split()[1].strip("'") in options)
    return meant if there else did_you_mean(name, options)


def add_configs(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """CFG, and the options that change what a config says."""
    text = "a config file, or FILE#VARIANT"
    if many:
        parser.add_argument("cfgs", nargs="+", metavar="CFG", help=text)
    else:
        parser.add_argument("cfg", metavar="CFG", help=text)
    add_overrides(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="CFG|RECORD", help="a record folder, its name, 'latest', or a config file")
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="which weights of the record to use (default: best, else last)"
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value: optim.lr=1e-3",
    )
    parser.add_argument("--allow-code", action="store_true", help="allow configs written in Python, which are executed")


def add_launch(parser: argparse.ArgumentParser) -> None:
    """The settings of a single run, which belong on the command line and not in a config."""
    add = parser.add_argument
    add_devices(parser, "; repeat it for several")
    add_user_dir(parser)
    add("--desc", default="", metavar="TEXT", help="what this run is for, kept in its record")
    add("--debug", action="store_true", help="debug messages, anomaly detection, exact places of CUDA errors")
    add("--file", action=argparse.BooleanOptionalAction, default=True, help="write a record (default), or nothing")
    add("--strict", action="store_true", help="take unknown keys as errors, also in old-style parts")
    add("--raise", dest="raise_errors", action="store_true", help="end with the traceback of the first run that fails")
    add("--pdb", action="store_true", help="open the debugger where a run fails")


def add_devices(parser: argparse.ArgumentParser, more: str = "") -> None:
    text = f"device to use, -1 is the CPU{more}"
    parser.add_argument("--device", action="append", type=_device, metavar="N", help=text)


def add_trial(parser: argparse.ArgumentParser) -> None:
    """What a command needs that builds the parts of a config for a moment."""
    text = "device to use, -1 is the CPU (default)"
    parser.add_argument("--device", type=_device, default=-1, metavar="N", help=text)
    add_user_dir(parser)
    parser.add_argument("--strict", action="store_true", help="take unknown keys as errors, also in old-style parts")


def add_user_dir(parser: argparse.ArgumentParser, text: str = "the package of your own parts") -> None:
    parser.add_argument("--user-dir", action=_Folder, default="src", metavar="DIR", help=f"{text} (default: src)")


class _Folder(argparse.Action):
    """An option that names a folder. One that is given must be there; the default may be absent."""

    def __call__(
        self, parser: argparse.ArgumentParser, args: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        if not os.path.isdir(value):
            what = "is not a folder" if os.path.exists(value) else "is not there"
            raise argparse.ArgumentError(self, f"{value!r} {what}")
        setattr(args, self.dest, value)


def _device(text: str) -> int:
    """The number of a device; other numbers below 0 would be taken for the CPU as well."""
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise argparse.ArgumentTypeError(f"there is no device {text!r}: -1 is the CPU, 0 the first GPU")
    return number


def parse_integers(text: str) -> list[int]:
    """`1,2,3` as numbers."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,2,3") from None


def check_record_name(text: str) -> str:
    """The name of a record, which is a folder; what else is often given in its place is met with the way on."""
    if not text:
        raise AlchemyError("RECORD is empty", hint="give a record folder, its name, or 'latest'")
    if os.path.isfile(text) and text != "latest" and not text.isdecimal():  # words of their own, and pids
        folder = os.path.dirname(text)
        inside = os.path.isfile(os.path.join(folder, "record.json"))
        config = text.endswith((".toml", ".json", ".ini", ".py"))
        auto = f"`alchemy run {text} --resume auto` goes on with the newest record of a config"
        hint = f"give {folder or '.'}" if inside else auto if config else "give the path of a record folder"
        raise AlchemyError(f"{text} is a file, and a record is a folder", hint=hint)
    return text


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """
    >>> print(format_table([["a", "b"], ["long", "c"]]))
    a     b
    long  c
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(printable(line.rstrip()) for line in lines)


def print_json(value: object) -> None:
    """What a command answers to `--json`."""
    import json

    print(printable(json.dumps(value, ensure_ascii=False, indent=1, default=str)))
