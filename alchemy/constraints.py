"""Limits on values, declared in signatures: `period: Annotated[int, Ge(1)]`, or `period: PositiveInt` for short.

The static check, the constructors and the docs use these limits. Their arguments are literals, so `ast` can read them.
"""

from __future__ import annotations

import operator
import os
import re
import string
import sys
from collections.abc import Callable, Sequence, Sized
from typing import Annotated, Any, ClassVar, Literal

CONSTRAINTS: dict[str, type[Constraint]] = {}  # by name


class Constraint:
    """One limit; `rule` completes the sentence "the value must ...", and `short` is used in printed signatures."""

    def __init_subclass__(cls) -> None:
        CONSTRAINTS[cls.__name__] = cls

    rule: str
    short: str
    schema: dict[str, Any] = {}  # JSON schema keywords

    def holds(self, value: Any) -> bool:
        raise NotImplementedError(f"{type(self).__name__} must define holds(self, value)")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Bound(Constraint):
    """A bound on a number. NaN violates every bound."""

    words: ClassVar[str]
    sign: ClassVar[str]
    keyword: ClassVar[str]
    compare: ClassVar[Callable[[Any, Any], Any]]

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.rule, self.short, self.schema = f"be {self.words} {limit}", f"{self.sign}{limit}", {self.keyword: limit}

    def holds(self, value: float) -> bool:
        return bool(type(self).compare(value, self.limit))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.limit!r})"


class Ge(_Bound):
    words, sign, keyword, compare = "at least", ">=", "minimum", operator.ge


class Gt(_Bound):
    words, sign, keyword, compare = "above", ">", "exclusiveMinimum", operator.gt


class Le(_Bound):
    words, sign, keyword, compare = "at most", "<=", "maximum", operator.le


class Lt(_Bound):
    words, sign, keyword, compare = "below", "<", "exclusiveMaximum", operator.lt


class MultipleOf(_Bound):
    words, sign, keyword = "a multiple of", "multiple of ", "multipleOf"

    def holds(self, value: float) -> bool:
        return bool(value % self.limit == 0)


class NotZero(Constraint):
    rule, short = "not be 0", "not 0"

    def holds(self, value: float) -> bool:
        return bool(value != 0)


class Finite(Constraint):
    rule, short = "be a finite number", "finite"

    def holds(self, value: float) -> bool:
        return bool(abs(value) <= sys.float_info.max)


class NotNaN(Constraint):
    rule, short = "be a number", "not NaN"

    def holds(self, value: float) -> bool:
        return bool(value == value)


class NotEmpty(Constraint):
    rule, short = "not be empty", "not empty"

    def holds(self, value: Sized) -> bool:
        return len(value) > 0


class Distinct(Constraint):
    rule, short, schema = "not contain duplicates", "distinct", {"uniqueItems": True}

    def holds(self, value: Sequence[object]) -> bool:
        return all(item not in value[:place] for place, item in enumerate(value))


class OneCharacter(Constraint):
    rule, short, schema = "be one character", "one character", {"minLength": 1, "maxLength": 1}

    def holds(self, value: str) -> bool:
        return len(value) == 1


class Files(Constraint):
    """File names, glob patterns, or an object that yields them, such as another pipe."""

    rule, short = "name at least one file", "files"

    def holds(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return bool(value) and all(isinstance(item, str | os.PathLike) for item in value)
        return not isinstance(value, int | float | dict | None)


def is_import_path(text: str) -> bool:
    """Return whether a string is an import path with at least two components.

    >>> [is_import_path(text) for text in ("alchemy.text.Words", "Words", "bert-base.v1", "a..b")]
    [True, False, False, False]
    """
    return "." in text and all(map(str.isidentifier, text.split(".")))


class NotAClass(Constraint):
    """A folder name, or a table with a `type`; the import path of a class would be mistaken for a folder name."""

    rule, short = "be a folder, or a table with a type", "folder or table"

    def holds(self, value: object) -> bool:
        return not isinstance(value, str) or os.path.isdir(value) or not is_import_path(value)


class PathName(Constraint):
    """A valid path, whether or not the file exists."""

    rule, short = "not contain a NUL character", "path"

    def holds(self, value: str | os.PathLike[str]) -> bool:
        return "\0" not in os.fspath(value)


class Inside(PathName):
    """A relative path that stays inside its base folder."""

    rule, short = "be a relative path without '..' or a NUL character", "relative path"

    def holds(self, value: str | os.PathLike[str]) -> bool:
        text = os.fspath(value)
        return super().holds(text) and not os.path.isabs(text) and ".." not in text.replace("\\", "/").split("/")


class FileName(Inside):
    """The name of a file or folder, without a parent folder."""

    rule, short = "be a name without '/'", "name"

    def holds(self, value: str | os.PathLike[str]) -> bool:
        text = os.fspath(value).replace("\\", "/")
        return super().holds(text) and "/" not in text and text not in ("", ".")


class LogFormat(Constraint):
    """A loguru format limited to log message fields, because `str.format` could access any object by attribute."""

    rule, short = (
        "contain only log message fields: {time}, {level}, {name}, {message}, {extra[key]}, ..",
        "log format",
    )
    _field = re.compile(
        r"(?:elapsed|exception|file|function|level|line|message|module|name|process|thread|time)"
        r"(?:\.(?:icon|id|name|no|path))?|extra(?:\[\w+\])?"
    )

    def holds(self, value: str) -> bool:
        try:
            fields = [(name, spec or "") for _, name, spec, _ in string.Formatter().parse(value) if name is not None]
        except ValueError:
            return False
        return all(self._field.fullmatch(name) and "{" not in spec for name, spec in fields)


class DateFormat(Constraint):
    """The time format inside a log format."""

    rule, short = "not contain braces", "date format"

    def holds(self, value: str) -> bool:
        return not {*value} & {*"{}"}


def describe_limits(base: str, limits: Sequence[Constraint]) -> str:
    """Describe the allowed values for a hint.

    >>> describe_limits("a number", [Gt(0), Finite()]), describe_limits("an integer", [Ge(0), Lt(9)])
    ('a finite number above 0', 'an integer of at least 0 and below 9')
    """
    bounds = [limit.rule.removeprefix("be ") for limit in limits if isinstance(limit, Ge | Gt | Le | Lt)]
    others = [limit.rule.removeprefix("be ") for limit in limits if not isinstance(limit, Ge | Gt | Le | Lt | Finite)]
    if any(isinstance(limit, Finite) for limit in limits):
        base = base.replace("a number", "a finite number")
    of = " of" if bounds and bounds[0].startswith("at ") else ""
    return ", ".join([f"{base}{of} {' and '.join(bounds)}" if bounds else base, *others])


PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
FiniteFloat = Annotated[float, Finite()]
PositiveFloat = Annotated[float, Gt(0), Finite()]
NonNegativeFloat = Annotated[float, Ge(0), Finite()]
Fraction = Annotated[float, Ge(0), Le(1)]
Sign = Literal[""] | Annotated[str, OneCharacter()]  # empty, or one character
FileNames = Annotated[Any, Files()]
