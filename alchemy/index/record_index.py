"""The index of a project, opened and up to date: query its records and look up their config values and metrics."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError, IndexFailed, did_you_mean, printable
from alchemy.index.curve_reader import CurveReader
from alchemy.index.filter_parser import join_filters, looks_like_filter
from alchemy.index.filters import TIME_FIELDS, compile_filter
from alchemy.index.known_names import KnownNames, join_numbers
from alchemy.index.metric_direction import is_minimized
from alchemy.index.row import COLUMNS, Row, fold_key
from alchemy.index.schema import make_storable
from alchemy.index.settings import ProjectSettings, load_settings
from alchemy.index.short_ids import unique_prefix
from alchemy.index.store import Store, open_store
from alchemy.index.sync import Changes, Progress, is_record, synchronize
from alchemy.index.value_format import format_count, format_names

# fields to sort by, next to config keys and metrics
SORTED = {
    **TIME_FIELDS,
    "duration": "r.seconds",
    "updates": "r.updates",
    "tag": "r.tag",
    "id": "r.name",
    "status": "r.status",
    "seed": "r.seed_number",
    "best": "r.best_value",
}
CHUNK = 500  # ids per statement
_LAST = re.compile(r"(?:last|latest)(?:~(\d{1,6}))?")
_BEST = re.compile(r"best\(\s*([^,()\s]+)\s*(?:,(.*))?\)", re.DOTALL)
# the value of a metric of the record `r`, and of its latest test
_OWN_METRIC = "(SELECT m.at_best FROM metrics m WHERE m.metric = {metric} AND m.record = r.id)"
_TEST_METRIC = (
    "(SELECT m.at_best FROM metrics m JOIN records t ON t.id = m.record WHERE m.metric = {metric} "
    "AND t.parent = r.name AND t.site = r.site AND t.kind = 'test' ORDER BY t.started DESC LIMIT 1)"
)


class RecordIndex:
    """The index of one or several record roots."""

    def __init__(self, store: Store, settings: ProjectSettings, roots: Sequence[Path]) -> None:
        self._store, self.settings, self.roots = store, settings, tuple(roots)
        self.changes = Changes()
        self.names = KnownNames(store)
        self.curves = CurveReader(store, self.names)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        roots: Sequence[str | Path] = (),
        *,
        names: Sequence[str] = (),
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[RecordIndex]:
        """Open the index of the project, or of `roots`, and bring it up to date with the record folders.

        If only the records called `names` are needed, the others are not checked for changes. With `rebuild`, all
        records are read again.

        A database that fails is replaced by a temporary one, with a warning: the index never prevents a command.
        """
        for root in roots:
            if not os.path.isdir(root):
                raise AlchemyError(f"folder not found: {str(root)!r}", hint="pass a folder that contains records")
        settings = load_settings()
        chosen = [Path(os.path.abspath(root)) for root in roots] or list(settings.roots)
        store = open_store(settings.home)
        try:
            while True:
                try:
                    if rebuild:
                        store.clear()
                    changes = synchronize(store, chosen, only=_begin_with(names), progress=progress)
                    break
                except IndexFailed as error:
                    store = store.fallback(error)
            if store.warning:
                print(printable(f"warning: {store.warning}"), file=sys.stderr)  # noqa: T201
            index = cls(store, settings, chosen)
            index.changes = changes
            yield index
        finally:
            store.close()

    @property
    def _here(self) -> dict[str, Any]:
        return {"site": self._store.site}

    def query(self, text: str = "", *, sort: str = "-created", limit: int | None = None, kind: str = "") -> list[Row]:
        """Return the records that match a filter, newest first by default.

        `sort` is a field, a config key or a metric; a leading `-` sorts in descending order. `kind` restricts the
        records to one kind, such as `train`, unless the filter itself mentions `kind`.
        """
        return [Row(*row) for row in self._select(COLUMNS, text, sort, limit, kind)]

    def query_groups(
        self, text: str = "", *, sort: str = "-created", fold: bool = True, kind: str = ""
    ) -> list[list[int]]:
        """Return the ids of the matching records; with `fold`, group runs that differ only in their seed.

        A group is at the position of its first record.
        """
        groups: dict[object, list[int]] = {}
        for number, own, *hashes in self._select("r.id, r.kind, r.fold_hash, r.code_hash", text, sort, None, kind):
            is_folded = fold and own == "train"  # two tests with one config are tests of two runs, or repeated
            groups.setdefault(fold_key(number, own, *hashes) if is_folded else number, []).append(number)
        return list(groups.values())

    def load(self, ids: Sequence[int]) -> list[Row]:
        """Return records by their ids, in the same order."""
        found = {
            row[0]: Row(*row) for row in self._for_records(f"SELECT {COLUMNS} FROM records r WHERE r.id IN ({{}})", ids)
        }
        return [found[number] for number in ids if number in found]

    def _select(self, columns: str, text: str, sort: str, limit: int | None, kind: str = "") -> list[Sequence[Any]]:
        condition = compile_filter(text, self.names)
        params = dict(condition.params)
        only = ""
        if kind and "kind" not in condition.names:
            only, params["kind"] = "r.kind = :kind AND ", kind
        order = self._order(sort)
        inside = " OR ".join(
            f"r.path = :root{place} OR SUBSTR(r.path, 1, {len(below)}) = :below{place}"
            for place, below in enumerate(f"{str(root).rstrip('/')}/" for root in self.roots)
        )
        for place, root in enumerate(self.roots):
            params |= {f"root{place}": str(root), f"below{place}": f"{str(root).rstrip('/')}/"}
        sql = (
            f"SELECT {columns} FROM records r {order[0]} WHERE ({inside}) AND r.site = :site AND {only}{condition.sql}"
        )
        sql += f" ORDER BY {order[1]}" + (f" LIMIT {int(limit)}" if limit is not None else "")
        return self._store.query(sql, params | self._here)

    def _order(self, sort: str) -> tuple[str, str]:
        """Return a join and an ORDER BY clause."""
        name, direction = sort.removeprefix("-"), "DESC" if sort.startswith("-") else "ASC"
        last = ", r.started DESC, r.name DESC"
        if name in SORTED:
            return "", f"{SORTED[name]} IS NULL, {SORTED[name]} {direction}{last}"
        if metrics := self.names.find_metrics(name):
            value = f"COALESCE({_OWN_METRIC}, {_TEST_METRIC})".format(metric=metrics[0])
            return "", f"{value} IS NULL, {value} {direction}{last}"
        if keys := self.names.find_keys(name):
            join = f"LEFT JOIN config s ON s.record = r.id AND s.key = {keys[0]}"
            return join, f"s.number IS NULL, s.number {direction}, s.text {direction}{last}"
        hint = did_you_mean(name, SORTED) or self.names.suggest(name)
        raise AlchemyError(f"cannot sort by {name!r}: no record has such a config key or metric", hint=hint)

    def sort_best_first(self, name: str) -> str:
        """Return the order in which lists are sorted by a column: newest and best values first, others ascending.

        `-NAME` is the reverse.
        """
        column, reverse = name.removeprefix("-"), name.startswith("-")
        descending = column in TIME_FIELDS or (bool(self.names.find_metrics(column)) and not is_minimized(column))
        return f"-{column}" if descending != reverse else column

    def config(self, rows: Iterable[Row]) -> dict[int, dict[str, str]]:
        """Return the config of each record: `{record id: {key: text}}`."""
        found: dict[int, dict[str, str]] = {row.id: {} for row in rows}
        sql = "SELECT c.record, n.name, c.text FROM config c JOIN names n ON n.id = c.key WHERE c.record IN ({})"
        for record, key, text in self._for_records(sql, found):
            found[record][key] = text
        return found

    def config_values(self, rows: Iterable[Row], key: str) -> dict[int, str]:
        """Return the value of one config key, which may be shortened, for each record that has it."""
        keys = self.names.find_keys(key)
        if not keys:
            return {}
        sql = f"SELECT c.record, c.text FROM config c WHERE c.key IN ({join_numbers(keys)}) AND c.record IN ({{}})"
        return dict(self._for_records(sql, {row.id for row in rows}))

    def metrics(self, rows: Iterable[Row]) -> dict[int, dict[str, Mapping[str, Any]]]:
        """Return the metrics of each record and of its tests: `{record id: {metric: {last, at_best, ..}}}`."""
        rows = list(rows)
        found: dict[int, dict[str, Mapping[str, Any]]] = {row.id: {} for row in rows}
        sql = "SELECT m.record, n.name, m.last, m.at_best, m.lowest, m.highest, m.points FROM metrics m "
        sql += "JOIN names n ON n.id = m.metric WHERE m.record IN ({})"
        tests = self._tests_of({row.name: row.id for row in rows})
        newest_first = {record: place for place, record in enumerate(tests)}
        of_tests = sorted(self._for_records(sql, tests), key=lambda values: newest_first[values[0]])
        own = ((record, *values) for record, *values in self._for_records(sql, found))
        later = ((tests[record], *values) for record, *values in of_tests)
        for record, name, *values in itertools.chain(own, later):
            summary = dict(zip(("last", "at_best", "lowest", "highest", "points"), values))
            found[record].setdefault(name, summary)  # own metrics, then those of the latest test
        return found

    def _tests_of(self, parents: Mapping[str, int]) -> dict[int, int]:
        """Return the tests of training runs, newest first: `{record id of the test: record id of the run}`."""
        found: dict[int, int] = {}
        names = list(parents)
        for start in range(0, len(names), CHUNK):
            part = {f"n{place}": name for place, name in enumerate(names[start : start + CHUNK])}
            marks = ", ".join(f":{name}" for name in part)
            sql = "SELECT id, parent FROM records WHERE site = :site AND kind = 'test' "
            rows = self._store.query(f"{sql} AND parent IN ({marks}) ORDER BY started DESC", {**part, **self._here})
            found |= {record: parents[parent] for record, parent in rows}
        return found

    def children(self, row: Row) -> list[Row]:
        """Return the tests, predictions and other records that derive from a record, oldest first."""
        return sorted(self._where("r.parent = :name", {"name": row.name}), key=lambda child: child.started or 0.0)

    def shorten_ids(self, rows: Iterable[Row]) -> dict[int, str]:
        """Return a short name for each record that `find` accepts: a prefix of its id, or its path if the id repeats.

        A prefix ends with the seconds of the start time, or where it becomes unique.
        """
        names = sorted(name for (name,) in self._store.query("SELECT name FROM records WHERE site = :site", self._here))
        return {row.id: unique_prefix(row.name, names) or row.path for row in rows}

    def find(self, name: str, text: str = "", *, kind: str = "train") -> Row:
        """Return the record that a name stands for.

        A name is a path, a unique prefix of an id, `last`, `last~2`, `best(dev/f1)` or `best(dev/f1, tag:trec)`; the
        last three among the records of a `kind` that match the filter `text`. A record outside the roots is added to
        the index.
        """
        if not name:
            raise AlchemyError("the record name is empty", hint="pass a record folder, its id, or 'last'")
        if match := _LAST.fullmatch(name):
            return self._newest(int(match[1] or 0), text, kind)
        if match := _BEST.fullmatch(name):
            own = match[2] or ""
            compile_filter(own, self.names)  # an error points into this text, not into the combined one
            return self.best(match[1], join_filters(text, own), kind=kind)
        path = self._path_in_index(name)
        if is_record(path) and not self._where("r.path = :path", {"path": path}):
            synchronize(self._store, [Path(path)])
            self.names.forget()
        rows = self._where("r.path = :path", {"path": path})
        if not rows:
            rows = self._where(f"SUBSTR(r.name, 1, {len(name)}) = :name", {"name": name})
            rows = [row for row in rows if row.name == name] or [row for row in rows if row.name.startswith(name)]
            rows = [row for row in rows if self._is_listed(row)] or rows
        if len(rows) == 1:
            return rows[0]
        if rows:
            repeated = len({row.name for row in rows}) == 1
            shown = format_names(sorted(row.path if repeated else row.name for row in rows), 5)
            hint = "pass one of these folders" if repeated else "use a longer prefix"
            raise AlchemyError(f"{name!r} matches {len(rows)} records: {shown}", hint=hint)
        raise AlchemyError(f"record not found: {name!r}", hint=self._explain_names(name))

    def _explain_names(self, wrong: str) -> str:
        if wrong in ("best", "best()"):
            metric = next((row.best_metric for row in self.query(kind="train") if row.best_metric), "dev/f1")
            return f"for the run with the best value of a metric, write 'best({metric})'"
        if looks_like_filter(wrong):
            return f"for a filter, `alchemy ls {shlex.quote(wrong)}` lists the records that match"
        return "`alchemy ls` lists all records"

    def _path_in_index(self, name: str) -> str:
        """Return the absolute path of a record; one that the index knows, if links lead to the same folder."""
        path = os.path.abspath(name)
        if not os.path.isdir(path) or self._where("r.path = :path", {"path": path}):
            return path
        rows = self._where("r.name = :name", {"name": os.path.basename(os.path.realpath(path))})
        return next((row.path for row in rows if os.path.realpath(row.path) == os.path.realpath(path)), path)

    def _is_listed(self, row: Row) -> bool:
        return any(row.folder.is_relative_to(root) for root in self.roots)

    def best(self, metric: str, text: str = "", *, kind: str = "train") -> Row:
        """Return the record of a kind with the best value of a metric among those that match a filter.

        Metrics whose name contains `loss`, `error` or similar are minimized. Of several equal values, the oldest run's
        is the best.
        """
        if not self.names.find_metrics(metric):
            raise AlchemyError(f"no record has a metric {metric!r}", hint=self.names.suggest(metric))
        lowest = is_minimized(metric)
        values = self.metrics(rows := self.query(text, sort="created", kind=kind))
        scored = [(row, values[row.id][metric]["at_best"]) for row in rows if metric in values[row.id]]
        scored = [(row, value) for row, value in scored if value is not None]
        if not scored:
            raise AlchemyError(f"no record that matches {text.strip()!r} has a value of {metric}")
        return (min if lowest else max)(scored, key=lambda pair: pair[1])[0]

    def _newest(self, skip: int, text: str, kind: str) -> Row:
        rows = self.query(text, kind=kind, limit=skip + 1)
        if len(rows) <= skip:
            noun = "training run" if kind == "train" else "record"
            count = f"only {format_count(len(rows), noun)}" if rows else f"no {noun}"
            matching = f" for {text!r}" if text else ""
            raise AlchemyError(f"found {count}{matching} below {', '.join(map(str, self.roots))}")
        return rows[skip]

    def _where(self, condition: str, params: Mapping[str, str]) -> list[Row]:
        if any(make_storable(value) != value for value in params.values()):
            return []
        sql = f"SELECT {COLUMNS} FROM records r WHERE r.site = :site AND {condition}"
        return [Row(*row) for row in self._store.query(sql, {**params, **self._here})]

    def _for_records(self, sql: str, records: Iterable[int]) -> Iterator[Any]:
        numbers = list(records)
        for start in range(0, len(numbers), CHUNK):
            yield from self._store.query(sql.format(join_numbers(numbers[start : start + CHUNK])))


def _begin_with(names: Sequence[str]) -> tuple[str, ...]:
    """Return how the ids of the named records begin; nothing if a name, such as `last`, depends on other records."""
    if any(_LAST.fullmatch(name) or _BEST.fullmatch(name) for name in names):
        return ()
    return tuple(os.path.basename(path(name)) for name in names for path in (os.path.abspath, os.path.realpath))
