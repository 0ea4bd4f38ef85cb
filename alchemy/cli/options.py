"""Shared command-line options and an argument parser with helpful errors."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from alchemy.cli import COMMANDS
from alchemy.cli.record_names import RECORD
from alchemy.errors import AlchemyError, did_you_mean, printable
from alchemy.synonyms import option_for


class Parser(argparse.ArgumentParser):
    """An argument parser that raises AlchemyError with a hint. Options cannot be abbreviated."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **kwargs)
        # no option starts with a digit: `--since -1d` passes an age, just as `--device -1` passes a number
        self._negative_number_matcher = re.compile(r"-\d")

    def error(self, message: str) -> NoReturn:
        raise AlchemyError(f"{self.prog}: {message}", hint=f"see '{self.prog} --help'")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = list(action.choices or ())
        if choices and value not in choices:
            hint = did_you_mean(str(value), map(str, choices)) or f"one of {', '.join(map(str, choices))}"
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise AlchemyError(f"{self.prog}: {value!r} is not a valid {name}", hint=hint)

    def actions(self) -> list[argparse.Action]:
        return list(self._actions)

    def options(self) -> list[str]:
        """Return the options that the help lists."""
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return [option for action in shown for option in action.option_strings]

    def nested(self) -> dict[str, Parser]:
        """Return the parsers of the subcommands, if any."""
        return next((action.choices for action in self._actions if isinstance(action.choices, dict)), {})

    def argument_after(self, words: Sequence[str]) -> argparse.Action | None:
        """Return the argument that the next word belongs to: the value of an option, or a positional argument."""
        positional = [action for action in self._actions if not action.option_strings]
        option, place = None, 0
        for word in words:
            if option is not None:
                option = None
            elif word.startswith("-"):
                known = next((action for action in self._actions if word in action.option_strings), None)
                option = known if known is not None and known.nargs != 0 else None
            elif place < len(positional) and positional[place].nargs not in ("*", "+"):
                place += 1
        return option or (positional[place] if place < len(positional) else None)


class Command(NamedTuple):
    """A command: a function that adds its arguments, its main function, and the examples in its help.

    `default` is the subcommand that may be left out, as in `alchemy sweep train.toml`.
    """

    arguments: Callable[[Parser], None]
    main: Callable[[argparse.Namespace], int]
    examples: str
    default: str = ""


def load_command(name: str) -> Command:
    module = {"import": "import_records"}.get(name, name.replace("-", "_"))  # `import` is a keyword
    command: Command = importlib.import_module(f"alchemy.cli.{module}").COMMAND
    return command


def build_parser(name: str) -> Parser:
    purpose, command = COMMANDS[name], load_command(name)
    parser = Parser(prog=f"alchemy {name}", description=purpose[0].upper() + purpose[1:] + ".", epilog=command.examples)
    command.arguments(parser)
    return parser


def parse_command(name: str, words: Sequence[str]) -> argparse.Namespace:
    parser, default = build_parser(name), load_command(name).default
    nested = parser.nested()
    if default and words and words[0] not in (*nested, "-h", "--help"):
        words = [default, *words]
    # intermixed, so that `run a.toml --device 0 b.toml` works
    args, extra = parser.parse_known_args(words) if nested else parser.parse_known_intermixed_args(words)
    if extra:
        inner = nested.get(words[0], parser)
        unknown = next((word for word in extra if word.startswith("-")), extra[0])
        is_option = unknown.startswith("-")
        hint = _suggest_option(unknown, words, inner.options()) if is_option else ""
        if not is_option and "--filter" in inner.options():
            hint = f"write --filter {shlex.quote(unknown)}"
        refuses = "has no option" if is_option else "does not accept"
        raise AlchemyError(f"{inner.prog} {refuses} {unknown!r}", hint=hint or f"see '{inner.prog} --help'")
    return args


def _suggest_option(unknown: str, words: Sequence[str], options: Sequence[str]) -> str:
    """Return a hint for an unknown option: a similar option, or the equivalent of another tool's option."""
    name, _, value = unknown.partition("=")
    after = words[words.index(unknown) + 1 :] if not value and unknown in words else []
    if after and not after[0].startswith("--"):
        value = after[0]
    meant = option_for(name, value)
    # a hint with --set only helps commands that have this option
    usable = meant and (not meant.startswith("write '") or meant.split()[1].strip("'") in options)
    return meant if usable else did_you_mean(name, options)


def add_configs(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """Add CFG and the options that override its values."""
    text = "a config file, or FILE#VARIANT"
    if many:
        parser.add_argument("cfgs", nargs="+", metavar="CFG", help=text)
    else:
        parser.add_argument("cfg", metavar="CFG", help=text)
    add_overrides(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="CFG|RECORD", help=f"{RECORD}, or a config file")
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="checkpoint of the record to use (default: best, else last)"
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a config value, for example optim.lr=1e-3; may be repeated",
    )
    parser.add_argument("--allow-code", action="store_true", help="allow configs written in Python, which are executed")


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add the options of a single run, which are not part of the config."""
    add = parser.add_argument
    add_devices(parser, "; may be repeated")
    add_user_dir(parser)
    add("--desc", default="", metavar="TEXT", help="description of the run, stored in its record")
    add(
        "--debug",
        action="store_true",
        help="enable debug messages, anomaly detection and exact locations of CUDA errors",
    )
    add(
        "--file", action=argparse.BooleanOptionalAction, default=True, help="write a record (default), or write nothing"
    )
    add("--strict", action="store_true", help="treat warnings about unknown keys as errors")
    add("--raise", dest="raise_errors", action="store_true", help="exit with the traceback of the first run that fails")
    add("--pdb", action="store_true", help="open the debugger when a run fails")


def add_devices(parser: argparse.ArgumentParser, more: str = "") -> None:
    text = f"device to use, -1 is the CPU{more}"
    parser.add_argument("--device", action="append", type=_parse_device, metavar="N", help=text)


def add_trial(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that build the parts of a config for a short trial."""
    text = "device to use, -1 is the CPU (default)"
    parser.add_argument("--device", type=_parse_device, default=-1, metavar="N", help=text)
    add_user_dir(parser)
    parser.add_argument("--strict", action="store_true", help="treat warnings about unknown keys as errors")


def add_user_dir(parser: argparse.ArgumentParser, text: str = "package that contains your own parts") -> None:
    parser.add_argument("--user-dir", action=_Folder, default="src", metavar="DIR", help=f"{text} (default: src)")


class _Folder(argparse.Action):
    """An argparse action for a folder that must exist unless it is the default."""

    def __call__(
        self, parser: argparse.ArgumentParser, args: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        if not os.path.isdir(value):
            what = "is not a folder" if os.path.exists(value) else "does not exist"
            raise argparse.ArgumentError(self, f"{value!r} {what}")
        setattr(args, self.dest, value)


def _parse_device(text: str) -> int:
    """Parse a device number. Numbers below -1 are rejected, since they would silently select the CPU."""
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise argparse.ArgumentTypeError(f"invalid device {text!r}: -1 is the CPU, 0 the first GPU")
    return number


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_roots(parser: argparse.ArgumentParser) -> None:
    text = "look for records in DIR instead; may be repeated"
    parser.add_argument("--in", dest="roots", action="append", default=[], metavar="DIR", help=text)


def add_limit(parser: argparse.ArgumentParser, count: int, noun: str) -> None:
    """Add the option `-n`; its value is None if everything is to be shown."""
    text = f"show at most N {noun} (default: {count}); 0 shows all"
    parser.add_argument("-n", dest="limit", type=_parse_limit, default=count, metavar="N", help=text)


def _parse_limit(text: str) -> int | None:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of lines, or 0 to show all, got {text!r}")
    return int(text) or None


def parse_integers(text: str) -> list[int]:
    """Parse a list such as `1,2,3`."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected integers such as 1,2,3, got {text!r}") from None


def check_record_name(text: str) -> str:
    """Return the name of a record; raise an error with a hint if it is empty or a file."""
    if not text:
        raise AlchemyError("RECORD is empty", hint="pass a record folder, its name, or 'latest'")
    if os.path.isfile(text) and text != "latest" and not text.isdecimal():  # 'latest' and pids are valid too
        folder = os.path.dirname(text)
        inside = os.path.isfile(os.path.join(folder, "record.json"))
        config = text.endswith((".toml", ".json", ".ini", ".py"))
        auto = f"`alchemy run {text} --resume auto` resumes the latest record of a config"
        hint = f"pass {folder or '.'}" if inside else auto if config else "pass the path of a record folder"
        raise AlchemyError(f"{text} is a file, expected a record folder", hint=hint)
    return text


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity, which JSON does not have, are null."""
    import json

    value = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
    # other encodings lack characters, and their escapes must be those of JSON
    is_unicode = (sys.stdout.encoding or "utf-8").lower() == "utf-8"
    print(printable(json.dumps(value, ensure_ascii=not is_unicode, indent=1)))
