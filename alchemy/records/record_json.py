"""Read and validate `record.json`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.files import read_json

FORMAT = 2
READABLE = (1, FORMAT)  # format 1 lacks the keys from `kind` on, see docs/record.md
KINDS = ("train", "test", "predict", "import")
STATUSES = ("running", "finished", "failed", "killed", "lost", "stopped")
FIX = "the file was edited or damaged: fix it, or train from its weights with model.model_path"


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.datetime.fromisoformat(value).astimezone())
    except (ValueError, OverflowError):  # years 1 and 9999 may overflow when converted to another time zone
        return False


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_number_or_null(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_table_or_null(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _is_string_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_string, value.values()))


# required fields: the check, and the expected value for the error message
REQUIRED: dict[str, tuple[Callable[[object], bool], str]] = {
    "status": (lambda value: value in STATUSES, f"one of {', '.join(STATUSES)}"),
    "reason": (_is_string, "a string"),
    # 0 and negative numbers refer to process groups
    "pid": (lambda value: type(value) is int and 0 < value < 2**31, "a process id"),
    "host": (_is_string, "a string"),
    "heartbeat": (_is_time, "an ISO 8601 time"),
    "cfg_hash": (_is_string, "a string"),
    "code_hash": (_is_string, "a string"),
    "versions": (lambda value: isinstance(value, dict), "a table"),
}
OPTIONAL: dict[str, tuple[Callable[[object], bool], str]] = {
    "tag": (_is_string, "a string"),
    "gen": (lambda value: type(value) is int and 0 <= value < 2**31, "an integer >= 0"),
    "pid_started": (
        lambda value: value is None or (type(value) is int and value >= 0),
        "an integer >= 0 or null",
    ),
    "cfg_values": (_is_string, "a string"),
    "code": (_is_string_table, "a table of hashes"),
    "unsaved": (_is_string, "a string"),
    "boot_id": (lambda value: value is None or _is_string(value), "a string or null"),
    "kind": (lambda value: value in KINDS, f"one of {', '.join(KINDS)}"),
    "fold_hash": (_is_string, "a string"),
    "parent": (lambda value: value is None or _is_string(value), "a string or null"),
    **dict.fromkeys(("git", "alchemy", "peak_memory", "oom_kills", "sweep"), (_is_table_or_null, "a table or null")),
    **dict.fromkeys(("seconds", "cpu_seconds", "gpu_seconds"), (_is_number_or_null, "a number or null")),
}


def read_fields(path: Path) -> dict[str, Any]:
    """Read the fields of a `record.json` and validate them."""
    try:
        fields = read_json(path)
    except FileNotFoundError:
        raise AlchemyError(f"{path.parent} is not a record: it has no {path.name}") from None
    except OSError as error:
        raise AlchemyError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        empty = isinstance(error, JSONDecodeError) and not error.doc.strip()
        what = "it is empty" if empty else "invalid JSON"
        raise AlchemyError(f"{path} cannot be read: {what}", hint=FIX) from error
    if not isinstance(fields, dict) or fields.get("format") not in READABLE:
        found = _shorten(fields.get("format")) if isinstance(fields, dict) else "?"
        newer = isinstance(fields, dict) and type(fields.get("format")) is int and fields["format"] > FORMAT
        hint = "it was written by a newer version of alchemy: update alchemy" if newer else ""
        raise AlchemyError(f"{path} has format {found}, expected {' or '.join(map(str, READABLE))}", hint=hint)
    _validate(path, fields)
    return fields


def _validate(path: Path, fields: Mapping[str, Any]) -> None:
    for name, (fits, expected) in (REQUIRED | OPTIONAL).items():
        if name in fields and not fits(fields[name]):
            raise AlchemyError(f"{path}: invalid {name} = {_shorten(fields[name])}, expected {expected}", hint=FIX)
        if name in REQUIRED and name not in fields:
            raise AlchemyError(f"{path} has no {name!r} (expected {expected})", hint=FIX)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}.."
