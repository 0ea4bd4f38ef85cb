"""INI files as configs: sections are dotted tables, values are TOML values, keys before any section are top level."""

from __future__ import annotations

import configparser
import re
from typing import Any

from alchemy.config.scan import Path, scan_toml, split_key
from alchemy.config.toml import bad_value
from alchemy.config.values import Parsed, dotted, literal
from alchemy.errors import ConfigError, Problem

_TOP = "\1"  # configparser wants a section for everything; no file can hold this name


def parse_ini(text: str, name: str) -> Parsed:
    parser = _read(text, name)
    parsed, problems = Parsed({}), []
    lines = _Lines(text)
    for section in parser.sections():
        line = lines.find(rf"\s*\[{re.escape(section)}\]") if section != _TOP else 0
        path = _path("" if section in (_TOP, "DEFAULT") else section)
        if path is None:
            hint = "write it like [task.datasets.train], odd names in quotes"
            problems.append(Problem(f"[{section}] is not a section name", f"{name}:{line}", hint=hint))
            continue
        parsed.lines.setdefault(path, line)
        for key, value in parser.items(section):
            line = lines.find(rf"\s*{re.escape(key)}\s*[=:]")
            problem = _put(parsed, path, key, value, line, f"{name}:{line}")
            problems += [problem] if problem else []
            for inner, number in scan_toml(f"value = {lines.value(line)}").lines.items():
                parsed.lines[(*path, *(_path(key) or ()), *inner[1:])] = line + number - 1
    if problems:
        raise ConfigError(problems)
    return parsed


class _Lines:
    """Finds the line of each key, in the order in which configparser gives them."""

    def __init__(self, text: str) -> None:
        self.lines, self.next = text.split("\n"), 0

    def find(self, pattern: str) -> int:
        for index in range(self.next, len(self.lines)):
            if re.match(pattern, self.lines[index]):
                self.next = index + 1
                return index + 1
        return self.next

    def value(self, line: int) -> str:
        """What the value that starts on `line` looks like in the file, comments and all."""
        end = line
        while end < len(self.lines) and re.match(r"\s|#|;|$", self.lines[end]):
            end += 1
        first = re.split("[=:]", self.lines[line - 1], maxsplit=1)[-1]
        return "\n".join([first, *self.lines[line:end]])


def _read(text: str, name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(default_section="\2", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(f"[{_TOP}]\n{text}", source=name)
    except configparser.DuplicateSectionError as error:
        hint = "put its keys in one place"
        problems = [Problem(f"section [{error.section}] appears twice", f"{name}:{(error.lineno or 1) - 1}", hint=hint)]
    except configparser.DuplicateOptionError as error:
        problems = [Problem(f"{error.option!r} is set twice", f"{name}:{(error.lineno or 1) - 1}")]
    except configparser.ParsingError as error:
        hint = "a line is '[section]' or 'key = value'; indent the lines on which a value goes on"
        problems = [Problem(f"{line} is not INI", f"{name}:{number - 1}", hint=hint) for number, line in error.errors]
    except configparser.Error as error:
        problems = [Problem(f"the file is not INI: {error}", name)]
    else:
        return parser
    raise ConfigError(problems)


def _path(text: str) -> Path | None:
    if not text:
        return ()
    split = split_key(text)
    return tuple(split[0]) if split and not split[1] else None


def _put(parsed: Parsed, section: Path, key: str, text: str, line: int, where: str) -> Problem | None:
    name, keys = dotted(section), _path(key)
    if not keys:
        return Problem(f"{key!r} is not a key", where, name, hint=f'quote it: "{key}" = ..')
    try:
        value = literal(text)
    except ValueError:
        return bad_value(text, where, name)
    table: Any = parsed.data
    path = (*section, *keys)
    for step in path[:-1]:
        table = table.setdefault(step, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict) or path[-1] in table:
        return Problem(f"{dotted(path)} is set twice, or is both a value and a table", where, name)
    table[path[-1]] = value
    for depth in range(1, len(path)):
        parsed.lines.setdefault(path[:depth], line)
    return None
