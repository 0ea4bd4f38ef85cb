"""Find the records that a command line names, by path, id prefix, `last`, `best(METRIC)` or a filter."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alchemy.errors import AlchemyError
from alchemy.files import shorten_path

if TYPE_CHECKING:
    from alchemy.index.record_index import RecordIndex
    from alchemy.index.row import Row

RECORD = "a record: its folder, the start of its id, 'last', 'last~2' or 'best(dev/f1)'"


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", metavar="RECORD", help=RECORD)


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add RECORD.. and the option that selects records with a filter instead."""
    parser.add_argument("records", nargs="*", metavar="RECORD", help=RECORD)
    parser.add_argument("--filter", metavar="FILTER", help="all training runs that match, as in 'alchemy ls'")


def choose_records(index: RecordIndex, names: Sequence[str], text: str | None) -> list[Row]:
    """Return the records named on the command line, or those that match a filter; raises an error if there are none."""
    if bool(names) == (text is not None):
        raise AlchemyError("pass records or --filter", hint="for example 'last', or --filter 'status:failed'")
    if text is not None and not text.strip():  # such as an unset variable of a script
        raise AlchemyError("--filter is empty", hint="for all training runs, use --filter kind:train")
    rows = [_find_row(index, name) for name in names] if text is None else index.query(text, kind="train")
    if not rows:
        raise AlchemyError(f"no training run matches {text!r}", hint="`alchemy ls` lists all of them")
    return list({row.path: row for row in rows}.values())


def find_results(index: RecordIndex, rows: Sequence[Row]) -> list[Row]:
    """Return the tests and predictions of records. A rerun of a record is a run of its own."""
    return [child for row in rows for child in index.children(row) if child.kind != "train"]


def _find_row(index: RecordIndex, name: str) -> Row:
    from alchemy.index.filter_parser import looks_like_filter

    try:
        return index.find(name)
    except AlchemyError as error:
        if name.startswith("best(") or not looks_like_filter(name):
            raise
        hint = f"to select records with a filter, write --filter {shlex.quote(name)}"
        raise AlchemyError(error.problem.message, hint=hint) from None


def find_record(name: str) -> Path:
    """Return the folder of a record. Paths and `latest` are resolved without the index."""
    from alchemy.records import find

    if name == "latest" or _is_path(name):
        return find(name)

    from alchemy.cli.index import open_index

    with open_index(names=[name]) as index:
        return Path(shorten_path(index.find(name).path))


def find_config(name: str) -> str:
    """Return the config that CFG stands for: a config file, or the config of a record."""
    from alchemy.records.local_copies import config_of

    file, _, variant = name.partition("#")
    if variant or not name or os.path.isfile(file) or file.endswith((".toml", ".json", ".ini", ".py")):
        return name
    return str(config_of(Path(name) if os.path.isdir(name) else find_record(name)))


def _is_path(name: str) -> bool:
    """Return whether a name can only be a path: it exists, or has a folder and is neither `best(..)` nor a filter."""
    from alchemy.index.filter_parser import looks_like_filter

    return os.path.lexists(name) or (os.sep in name and not (name.startswith("best(") or looks_like_filter(name)))
