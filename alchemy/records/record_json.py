"""What `record.json` may say: read, and refused in one sentence where it cannot be what a run has written."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.files import read_json

FORMAT = 1
STATUSES = ("running", "finished", "failed", "killed", "lost", "stopped")
MEND = "it was edited or damaged: mend that file, or train anew from its weights with model.model_path"


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.datetime.fromisoformat(value).astimezone())
    except (ValueError, OverflowError):  # the first and the last year have no other time zones
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_table_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


# what others rely on, and in which words it is expected
NEEDED: dict[str, tuple[Callable[[object], bool], str]] = {
    "status": (lambda value: value in STATUSES, f"one of {', '.join(STATUSES)}"),
    "reason": (_is_text, "a text"),
    # 0 and less would mean whole groups of processes
    "pid": (lambda value: type(value) is int and 0 < value < 2**31, "the number of a process"),
    "host": (_is_text, "a text"),
    "heartbeat": (_is_time, "an ISO time"),
    "cfg_hash": (_is_text, "a text"),
    "code_hash": (_is_text, "a text"),
    "versions": (lambda value: isinstance(value, dict), "a table"),
}
OPTIONAL: dict[str, tuple[Callable[[object], bool], str]] = {
    "tag": (_is_text, "a text"),
    "gen": (lambda value: type(value) is int and 0 <= value < 2**31, "a whole number of 0 or more"),
    "pid_started": (
        lambda value: value is None or (type(value) is int and value >= 0),
        "a whole number, or null",
    ),
    "cfg_values": (_is_text, "a text"),
    "code": (_is_table_of_texts, "a table of hashes"),
    "unsaved": (_is_text, "a text"),
}


def read_fields(path: Path) -> dict[str, Any]:
    """The fields of a `record.json`, each of them fit to be used."""
    try:
        fields = read_json(path)
    except FileNotFoundError:
        raise AlchemyError(f"{path.parent} is not a record: it has no {path.name}") from None
    except OSError as error:
        raise AlchemyError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        empty = isinstance(error, JSONDecodeError) and not error.doc.strip()
        what = "it is empty" if empty else "it is not whole JSON"
        raise AlchemyError(f"{path} cannot be read: {what}", hint=MEND) from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        found = _shown(fields.get("format")) if isinstance(fields, dict) else "?"
        raise AlchemyError(f"{path} has format {found}, expected {FORMAT}")
    _refuse(path, fields)
    return fields


def _refuse(path: Path, fields: Mapping[str, Any]) -> None:
    for name, (fits, expected) in (NEEDED | OPTIONAL).items():
        if name in fields and not fits(fields[name]):
            raise AlchemyError(f"{path} says {name} = {_shown(fields[name])}, expected {expected}", hint=MEND)
        if name in NEEDED and name not in fields:
            raise AlchemyError(f"{path} has no {name!r}, expected {expected}", hint=MEND)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}.."
