"""Groups of runs to compare: chosen by name or filter, labeled A, B, .., with the config values that differ."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

from alchemy.config.secrets import conceal
from alchemy.errors import AlchemyError
from alchemy.index.config_changes import find_changed_keys
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, fold_key
from alchemy.index.value_format import format_names

MAX_GROUPS = 26
MOST_VALUES = 5  # of a config key within a group
REPEATED = "left out, since another run has the same config and seed"  # what `drop_repeats` does
_NAME = re.compile(r"[\w.~/-]*|best\(.*\)")


class RunGroup(NamedTuple):
    """Runs that are compared as one, usually with different seeds; `argument` is what the user typed.

    `first` is a short id of the first run.
    """

    label: str
    argument: str
    rows: list[Row]
    first: str = ""

    @property
    def seeds(self) -> list[str]:
        return [row.seed for row in self.rows]


def select_runs(index: RecordIndex, text: str) -> list[Row]:
    """Return the record that a name stands for, or all training runs that match a filter, oldest first."""
    try:
        return [index.find(text)]
    except AlchemyError:
        is_name = _NAME.fullmatch(text) is not None
        if is_name and (not text or text.startswith("best(") or is_start_of_id(index, text)):
            raise
        if found := index.query(text, kind="train", sort="created"):
            return found
        if is_name:
            raise
    raise AlchemyError(f"no record has the name {text!r}, and no training run matches it as a filter")


def is_start_of_id(index: RecordIndex, text: str) -> bool:
    """Whether ids begin with a text; it is not a filter then."""
    return bool(re.fullmatch(r"\d[\w.-]*", text)) and bool(index.query(f'id="{text}*"', limit=1))


def build_groups(index: RecordIndex, arguments: Sequence[str], *, seeds: bool = False) -> list[RunGroup]:
    """Return one group per argument; with `seeds`, add the runs that differ from a named record only in their seed."""
    if len(arguments) > MAX_GROUPS:
        raise AlchemyError(f"{len(arguments)} groups of runs are too many, at most {MAX_GROUPS} can be compared")
    chosen = [select_runs(index, text) for text in arguments]
    if seeds:
        folded = {number: group for group in index.query_groups(sort="created") for number in group}
        chosen = [index.load(folded.get(rows[0].id, [])) if len(rows) == 1 else rows for rows in chosen]
    names = index.shorten_ids(rows[0] for rows in chosen)
    return [
        RunGroup(label, text, rows, names[rows[0].id])
        for label, text, rows in zip(string.ascii_uppercase, arguments, chosen, strict=False)
    ]


def fold_seeds(rows: Sequence[Row]) -> list[list[Row]]:
    """Group runs that differ only in their seed; a record that is named twice counts once."""
    groups: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        groups.setdefault(fold_key(row.id, row.kind, row.fold_hash, row.code_hash), {})[row.id] = row
    return [list(group.values()) for group in groups.values()]


def changed_keys(index: RecordIndex, groups: Sequence[Sequence[Row]]) -> dict[str, list[str | None]]:
    """Return the config keys that differ between or within groups, with the values of each group.

    A group without the key has None.
    """
    folded = [[runs[0] for runs in fold_seeds(group)] for group in groups]
    configs = index.config(row for rows in folded for row in rows)
    found: dict[str, list[str | None]] = {}
    for key in find_changed_keys(list(configs.values())):
        values = [list(dict.fromkeys(configs[row.id].get(key) for row in rows)) for rows in folded]
        shown = [[conceal(key, values[0][0], value) for value in of_group] for of_group in values]
        if not all(same for of_group in shown for _, _, same in of_group):  # masked differently in each record
            found[key] = [_join_values([value for _, value, _ in of_group]) for of_group in shown]
    return found


def _join_values(values: Sequence[object]) -> str | None:
    texts = list(dict.fromkeys("-" if value is None else str(value) for value in values))
    return None if texts == ["-"] else format_names(texts, MOST_VALUES)
