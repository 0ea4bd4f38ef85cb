"""Errors with hints for users, and suggestions for misspelled names."""

from __future__ import annotations

import difflib
import linecache
import os
import re
import traceback
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from alchemy.synonyms import meanings

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
LINES = 12  # maximum length of an abbreviated error message
# also characters that change the direction of the text after them
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Problem:
    """A problem to report: what is wrong, where, and how to fix it.

    >>> problem = Problem("Noam has no option 'epoch'", "train.toml:41", "sched", hint="did you mean 'epochs'?")
    >>> str(problem)
    "train.toml:41 [sched] Noam has no option 'epoch'; did you mean 'epochs'?"
    """

    message: str
    where: str = ""
    section: str = ""
    hint: str = ""
    error: bool = True
    note: bool = False  # informational, no action needed

    def __str__(self) -> str:
        head = " ".join(part for part in (self.where, f"[{self.section}]" if self.section else "") if part)
        text = f"{head} {self.message}" if head else self.message
        return printable(f"{text}; {self.hint}" if self.hint else text)


class AlchemyError(Exception):
    """Base class for user errors; the message states what is wrong, what was expected and how to fix it."""

    exit_code = 2

    def __init__(self, message: str, *, where: str = "", section: str = "", hint: str = "") -> None:
        self.problem = Problem(message, where=where, section=section, hint=hint)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[object, ...]:
        # by default, pickle would pass `args`, which contains the full text, to the constructor as the message
        return _rebuild, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:  # KeyError, a base class of some subclasses, would print the repr
        return str(self.args[0])


class ConfigError(AlchemyError):
    """Raised for an invalid config; reports all of its problems together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Refused(AlchemyError):
    """Raised if a record cannot be resumed as the same run; the record is left unchanged."""


class RunFailed(AlchemyError):
    """Raised if a run fails for a reason other than its config, such as a lost worker or a missing device."""

    exit_code = 1


class IndexFailed(AlchemyError):
    """The database of the index failed; a `damaged` one was removed, so that repeating the command succeeds."""

    def __init__(self, message: str, *, damaged: bool = False) -> None:
        super().__init__(message)
        self.damaged = damaged


class BadSample(AlchemyError):
    """Raised if a row of a batch is invalid; the caller, which has the sample ids, adds the location with `place`."""

    def __init__(self, message: str, *, row: int, section: str = "", hint: str = "") -> None:
        super().__init__(message, section=section, hint=hint)
        self.row = row

    def place(self, where: str) -> None:
        self.problem = replace(self.problem, where=where)
        self.args = (str(self.problem),)


class MissingKey(AlchemyError, KeyError):
    """Raised if a symbol is not set."""


class MissingField(AlchemyError, KeyError):
    """Raised if a batch, a sample or the model outputs lack a requested field."""


class KeyExists(AlchemyError, KeyError):
    """Raised if a symbol is already set."""


class NoFrame(AlchemyError):
    """Raised if a local symbol is used outside a scope."""


def _rebuild(kind: type[AlchemyError], args: tuple[object, ...], state: dict[str, object]) -> AlchemyError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def printable(text: str) -> str:
    """Escape control characters as in JSON, so that file contents cannot send commands to the terminal.

    >>> printable("red: \\x1b[31m")
    'red: \\\\u001b[31m'
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def display_width(text: str) -> int:
    """Return the number of terminal cells that a text occupies: Chinese characters take two.

    >>> display_width("loss"), display_width("损失")
    (4, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def format_error(error: BaseException, between: str = "; ") -> str:
    """Return an error and its notes on one line: `ValueError: unknown token; in update 3, ..`."""
    return between.join([f"{type(error).__name__}: {error}", *vars(error).get("__notes__", [])])


def explain_failure(error: BaseException) -> str:
    """Summarize a failure, cause first: the error, the project line that raised it, and the notes."""
    ours = isinstance(error, AlchemyError)  # the message already contains the location
    lines = f"{'' if ours else f'{type(error).__name__}: '}{error}".splitlines() or [type(error).__name__]
    lines = lines if len(lines) <= LINES else [*lines[:LINES], f"  .. and {len(lines) - LINES} more lines"]
    frames = [] if ours else [row for row in traceback.extract_tb(error.__traceback__) if not is_library(row.filename)]
    for frame in frames[-1:]:
        lines.append(f"  at {innermost([(frame.filename, frame.lineno or 0)])} in {frame.name}: {frame.line}")
    return "\n".join([*lines, *(f"  {note}" for note in vars(error).get("__notes__", []))])


def origin_of(error: BaseException) -> str:
    """Return `file:line` of the innermost frame in project code."""
    return innermost([(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)])


_TARGET = re.compile(r"Target (-?\d+) is out of bounds")


def recognize(error: BaseException) -> AlchemyError | None:
    """Return an explanation for Python and torch errors caused by common mistakes; None for other errors."""
    where, text = origin_of(error), str(error)
    if type(error) is KeyError and error.args and isinstance(error.args[0], str):
        return _explain_key(error.args[0], error.__traceback__, where)
    if isinstance(error, AttributeError) and "before Module.__init__() call" in text:
        message = "the constructor assigns a layer before super().__init__()"
        return AlchemyError(message, where=where, hint="call it first")
    target = _TARGET.search(text) if isinstance(error, IndexError) else None
    if target is not None:
        hint = "classes are numbered from 0: check the labels and the number of classes of the model"
        return AlchemyError(f"the target {target[1]} is out of range for the logits", where=where, hint=hint)
    return None


def _explain_key(key: str, trace: TracebackType | None, where: str) -> MissingField | None:
    """Explain a KeyError such as `batch["labls"]`, using the variable named in the failing line."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    line, local = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno), trace.tb_frame.f_locals
    for name in re.findall(rf"(\w+)\[[\"']{re.escape(key)}[\"']\]", line):
        fields = local.get(name)
        if isinstance(fields, Mapping) and key not in fields:
            names = [str(field) for field in fields]
            hint = did_you_mean(key, names)
            return MissingField(
                f"{name} has no {key!r}; available: {', '.join(names[:20]) or 'none'}", where=where, hint=hint
            )
    return None


def is_library(file: str) -> bool:
    """Return whether a file belongs to alchemy, Python or an installed package rather than to a project."""
    return file.startswith((_OURS, _PYTHON, "<")) or "site-packages" in file or "dist-packages" in file


def innermost(frames: Sequence[tuple[str, int]]) -> str:
    """Return the last `(file, line)` in project code as `file:line`, or an empty string."""
    for file, line in reversed(frames):
        if not is_library(file):
            return f"{file.removeprefix(os.getcwd() + os.sep)}:{line}"
    return ""


def closest(word: str, candidates: Iterable[str]) -> str:
    """Return the candidate closest to a misspelled word, or an empty string."""
    names = [name for name in dict.fromkeys(candidates) if name != word]
    lowered = {name.lower(): name for name in names}
    if word.lower() in lowered:
        return lowered[word.lower()]
    known = meanings(word)
    near = [meaning.name for meaning in known if meaning.name in names]
    # a known synonym is rarely a typo
    near = near or difflib.get_close_matches(word, names, n=1, cutoff=0.8 if known else 0.6)
    return near[0] if near else ""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint for a misspelled word, or an empty string if no candidate is close.

    >>> did_you_mean("epoch", ["epochs", "pipes"]), did_you_mean("learning_rate", ["lr", "eps"])
    ("did you mean 'epochs'?", "did you mean 'lr'?")
    """
    near = closest(word, candidates)
    return f"did you mean {near!r}?" if near else ""
