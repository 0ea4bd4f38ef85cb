"""Parse TOML and turn syntax errors into messages with a line number."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from alchemy.config.line_numbers import LONG_KEY, Lines, Scan, scan_toml
from alchemy.config.values import Parsed
from alchemy.errors import ConfigError, Problem


def parse_toml(text: str, name: str) -> Parsed:
    """Parse TOML 1.0 with the inline tables of TOML 1.1."""
    import tomllib

    with suppress(ValueError, RecursionError):  # TOML 1.1 or a syntax error: scan it
        if not LONG_KEY.search(text):  # tomllib takes quadratic time for such a key
            return Parsed(tomllib.loads(text), Lines(text), text)
    layout = scan_toml(text, name)
    try:
        return Parsed(tomllib.loads(layout.text), layout.lines, text)
    except ValueError as error:
        raise ConfigError([_improve_hint(_problem(str(error), layout, name), text)]) from None


_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

_LINE = "a line must be 'key = value', '[table]' or '# comment'"

_ESCAPE = ("a backslash in double quotes starts an escape sequence", "use 'single quotes', or write \\\\")

# start of tomllib's message -> our message and hint
_MESSAGES = [
    ("Expected '=' after a key", _LINE, ""),
    ("Invalid statement", _LINE, ""),
    ("Invalid initial character for a key", "a key is missing or contains a character that must be quoted", ""),
    ("Unclosed array", "the list that starts here is never closed", "add the missing ']' or comma"),
    ("Unclosed inline table", "the table that starts here is never closed", "add the missing '}' or comma"),
    ("Expected newline or end", "unexpected text after the value: {rest}", "write one setting per line"),
    ("Invalid hex value", *_ESCAPE),
    ("Unescaped '\\'", *_ESCAPE),
    ("Expected ']", "the table header is not closed", "write [name], or [[name]] for a list of tables"),
    ("Expected", "the string that starts here is never closed", "add the closing quotes"),
    ("Unterminated string", "the string that starts here is never closed", "add the closing quotes"),
    ("Illegal character '\\n'", "the string does not end on this line", "add the closing quote, or use triple quotes"),
    ("Cannot declare", "the table is already defined in a different form", "define it in one place"),
    ("Cannot mutate immutable", "an inline table cannot be extended elsewhere", "put all its keys in one place"),
]


def _problem(message: str, layout: Scan, name: str) -> Problem:
    place = _PLACE.search(message)
    message = _PLACE.sub("", message)
    offset = len(layout.text)
    if place and place[1]:
        before = layout.text.split("\n")[: int(place[1]) - 1]
        offset = sum(len(line) + 1 for line in before) + int(place[2]) - 1
    line = layout.line_at(offset)  # blanking joins lines but keeps lengths: this is the line in the user's text
    if offset >= len(layout.text) or message.startswith("Unclosed"):
        line = layout.statement
    where, rest = f"{name}:{line}", layout.text[offset:].split("\n")[0].strip()
    if message.startswith("Invalid value"):
        return _bad_value(rest, where)
    for start, template, hint in _MESSAGES:
        if message.startswith(start):
            return Problem(template.format(rest=repr(rest[:40])), where, hint=hint)
    return Problem(f"invalid TOML: {message[:1].lower()}{message[1:]}", where)


_FIXES = {
    "True": "write true",
    "False": "write false",
    "None": "write { none = true }",
    "null": "write { none = true }",
}


# characters produced by input methods and word processors -> TOML
_LOOK_ALIKE = {
    "＝": "=", "：": "=", "，": ",", "、": ",", "；": ",", "．": ".", "＃": "#", "［": "[", "］": "]",
    "【": "[", "】": "]", "｛": "{", "｝": "}", "“": '"', "”": '"', "„": '"', "＂": '"', "‘": "'", "’": "'",
    "−": "-", "–": "-", "—": "-", "‑": "-", "－": "-", "　": " ", "\u00a0": " ",
}  # fmt: skip
_COLON = re.compile(r"""\s*([\w.-]+)\s*:\s*(\S.*)""")
_MISTAKES = [  # common mistakes in a line, and how to fix them
    (re.compile(r"\s*(?://|--|%|;)"), "comments start with #"),
    (re.compile(r"[^#\"']*\s//"), "comments start with #"),
    (re.compile(r"[^=]*=\s*-?\d+,\d+\s*$"), "use a decimal point: 0.001"),
    (re.compile(r"[^=]*=\s*-?\.\d"), "add a zero before the dot: 0.001"),
    (re.compile(r"[^=]*=\s*-?\d+\.\s*(?:#|$)"), "add a zero after the dot: 1.0"),
]


def _improve_hint(problem: Problem, text: str) -> Problem:
    """Replace the hint of a problem if its line contains a common mistake."""
    number = problem.where.rpartition(":")[2]
    line = text.split("\n")[int(number) - 1]
    odd = next((char for char in line if char in _LOOK_ALIKE), "")
    if odd:
        return replace(problem, hint=f"replace {odd!r} with {_LOOK_ALIKE[odd]!r}")
    colon = _COLON.match(line)
    if colon and problem.message == _LINE:
        return replace(problem, hint=f"write {colon[1]} = {colon[2]}")
    return replace(problem, hint=next((hint for pattern, hint in _MISTAKES if pattern.match(line)), problem.hint))


def _bad_value(text: str, where: str) -> Problem:
    """Report text that is not a TOML value."""
    word = re.split(r"[,\]}#]", text)[0].strip()[:60]
    if text.startswith(("[", "{")):
        return Problem("the list or table is not closed, or a comma is missing", where)
    if not word:
        return Problem("a value is missing", where, hint='an empty string is ""')
    return Problem(f"{word!r} is not a valid value", where, hint=_FIXES.get(word, f'put strings in quotes: "{word}"'))
