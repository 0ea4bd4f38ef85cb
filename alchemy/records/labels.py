"""Locate and read the label names of a record."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from alchemy.errors import AlchemyError
from alchemy.files import read_json


def labels_file(record: str | Path, field: str) -> Path:
    """Return the label file of a field: a JSON list of names in which the index of a name is its id.

    >>> labels_file("records/x", "label_id").as_posix()
    'records/x/labels/label_id.json'
    """
    return Path(record) / "labels" / f"{quote(field, safe='')}.json"


def read_names(file: str | Path) -> list[str]:
    """Read the list of names in a label file."""
    try:
        names = read_json(file)
    except OSError as error:
        raise AlchemyError(f"cannot read the file: {error.strerror or error}", where=str(file)) from error
    except ValueError as error:
        raise AlchemyError(f"invalid JSON: {error}", where=str(file), hint="expected a list of names") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AlchemyError("expected a list of names", where=str(file), hint='for example ["good", "bad"]')
    return names
