"""Where a record keeps the names of the labels that the numbers of its model stand for."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from alchemy.errors import AlchemyError
from alchemy.files import read_json


def labels_file(record: str | Path, field: str) -> Path:
    """The file for a field of numbers: a JSON list, in which the place of a name is its number.

    >>> labels_file("records/x", "label_id").as_posix()
    'records/x/labels/label_id.json'
    """
    return Path(record) / "labels" / f"{quote(field, safe='')}.json"


def read_names(file: str | Path) -> list[str]:
    """The names in such a file."""
    try:
        names = read_json(file)
    except OSError as error:
        raise AlchemyError(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    except ValueError as error:
        raise AlchemyError(f"is not JSON: {error}", where=str(file), hint="it has a list of names") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AlchemyError("is no list of names", where=str(file), hint='write ["good", "bad"]')
    return names
