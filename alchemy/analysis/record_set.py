"""Records in Python: `alchemy.records("records")` finds them, and each one gives access to its config and metrics."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from alchemy.analysis.record_table import RecordTable, html_table
from alchemy.errors import MissingKey, did_you_mean
from alchemy.index.curves import Curve
from alchemy.index.filter_parser import join_filters
from alchemy.index.listing import build_listing
from alchemy.index.read_curves import read_curves
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_number, format_time
from alchemy.records.record_config import flatten_config, read_config

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import polars
    from numpy.typing import NDArray

    from alchemy.predictor import Predictor

SHOWN = 30  # records in the HTML of a set


def records(*folders: str | Path, kind: str = "train") -> RecordSet:
    """Return the records below `folders`, newest first; without folders, those of the project.

    `kind` is `train`, `test`, `predict` or `import`; an empty string selects all records. The records are those at the
    time of the call.

        runs = alchemy.records("records").query("tag:trec lr<1e-3")
        best = runs.best("dev/f1")
        updates, values = best.metric("train/loss")
        runs.to_pandas(["optim.lr", "seed", "dev/f1"])
    """
    return RecordSet(folders, kind)


class RecordSet(Sequence["RecordView"]):
    """Records that match a filter. It behaves like a list of `RecordView`."""

    def __init__(self, folders: Sequence[str | Path], kind: str, text: str = "", sort: str = "-created") -> None:
        self._folders, self._kind, self._text, self._sort = folders, kind, text, sort
        with RecordIndex.open(folders) as index:
            self._views = [RecordView(row, self) for row in index.query(text, sort=sort, kind=kind)]

    def query(self, text: str, *, sort: str = "") -> RecordSet:
        """Return the records of this set that match a filter, for example `"tag:trec lr<1e-3 dev/f1>0.9"`.

        `sort` is a field, a config key or a metric: newest and best values first, others ascending, as in `alchemy ls`.
        `-NAME` is the reverse.
        """
        with RecordIndex.open(self._folders) as index:
            index.query(text, limit=0)  # an error points into this text, not into the combined one
            order = index.sort_best_first(sort) if sort else self._sort
        return RecordSet(self._folders, self._kind, join_filters(self._text, text), order)

    def best(self, metric: str) -> RecordView:
        """Return the record with the best value of a metric at its best checkpoint.

        Lower values are better for metrics whose name contains `loss`, `error` or similar. Of several records with the
        same value, it is the oldest.
        """
        with RecordIndex.open(self._folders) as index:
            return RecordView(index.best(metric, self._text, kind=self._kind), self)

    def find(self, name: str | Path) -> RecordView:
        """Return a record by its path, the start of its id, or its place in this set: `last~2` or `best(dev/f1)`."""
        with RecordIndex.open(self._folders) as index:
            return RecordView(index.find(str(name), self._text, kind=self._kind), self)

    def table(self, columns: str | Sequence[str] = (), *, fold: bool = False) -> RecordTable:
        """Return a table of fields, config keys and metrics; by default, of what differs between the records.

        `columns` is one name or several. With `fold`, runs that differ only in their seed become one row, with means
        and standard deviations.
        """
        names = [columns] if isinstance(columns, str) else columns
        with RecordIndex.open(self._folders) as index:
            found = build_listing(
                index, self._text, columns=names, sort=self._sort, fold=fold, limit=None, kind=self._kind
            )
        return RecordTable.from_listing(found)

    def to_pandas(self, columns: str | Sequence[str] = (), *, fold: bool = False) -> pandas.DataFrame:
        """Return `table(..)` as a pandas data frame."""
        return self.table(columns, fold=fold).to_pandas()

    def to_polars(self, columns: str | Sequence[str] = (), *, fold: bool = False) -> polars.DataFrame:
        """Return `table(..)` as a polars data frame."""
        return self.table(columns, fold=fold).to_polars()

    @functools.cached_property
    def _metrics(self) -> dict[str, dict[str, float]]:
        """The metrics of all records of the set, by path: one look at the index serves all of them."""
        with RecordIndex.open(self._folders) as index:
            rows = index.query(self._text, kind=self._kind)
            found = index.metrics(rows)
        return {row.path: _values(found[row.id]) for row in rows}

    def _metrics_of(self, row: Row) -> dict[str, float]:
        if row.path not in self._metrics:  # found by name, outside of the set
            with RecordIndex.open(self._folders) as index:
                own = index.find(row.path)
                self._metrics[row.path] = _values(index.metrics([own])[own.id])
        return self._metrics[row.path]

    def _tests_of(self, row: Row) -> list[Row]:
        with RecordIndex.open(self._folders) as index:
            return [child for child in index.children(row) if child.kind == "test"]

    def __len__(self) -> int:
        return len(self._views)

    @overload
    def __getitem__(self, place: int) -> RecordView: ...
    @overload
    def __getitem__(self, place: slice) -> list[RecordView]: ...
    def __getitem__(self, place: int | slice) -> RecordView | list[RecordView]:
        return self._views[place]

    def __iter__(self) -> Iterator[RecordView]:
        return iter(self._views)

    def __repr__(self) -> str:
        return f"RecordSet({len(self)} records{f', {self._text}' if self._text else ''})"

    def _repr_html_(self) -> str:
        with RecordIndex.open(self._folders) as index:
            found = build_listing(index, self._text, sort=self._sort, fold=False, limit=SHOWN, kind=self._kind)
        more = f"<p>{SHOWN} of {len(self)} records</p>" if len(self) > SHOWN else ""
        return RecordTable.from_listing(found)._repr_html_() + more if found.lines else "<p>no records</p>"


class BestValue(NamedTuple):
    """The best value of the monitored metric, and the update at which it was reached."""

    metric: str
    value: float
    update: int | None


class RecordView:
    """A record, read-only."""

    def __init__(self, row: Row, owner: RecordSet) -> None:
        self._row, self._owner = row, owner
        self.id, self.path = row.name, Path(row.path)
        self.tag, self.purpose, self.tags, self.notes = row.tag, row.purpose, row.tag_list, row.notes
        self.status, self.reason, self.cause = row.status, row.reason, row.cause
        self.kind, self.parent, self.variant = row.kind, row.parent, row.variant
        self.seed = int(row.seed) if row.seed.isdecimal() else None
        self.host, self.command, self.seconds = row.host, row.cmd, row.seconds
        self.started, self.ended = _time(row.started), _time(row.ended)

    @property
    def best(self) -> BestValue | None:
        """The best value of the metric that the run monitors, or None."""
        row = self._row
        return None if row.best_value is None else BestValue(row.best_metric, row.best_value, row.best_update)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config as nested dicts and lists; secrets are masked."""
        return read_config(self.path)

    @functools.cached_property
    def _flat(self) -> dict[str, Any]:
        return dict(flatten_config(self.config))

    def __getitem__(self, key: str) -> Any:
        """Return a config value by its dotted key, which may be shortened if it is unique: `lr` for `optim.lr`."""
        if key in self._flat:
            return self._flat[key]
        node: Any = self.config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        ends = [full for full in self._flat if full.endswith(f".{key}")]
        if node is not None or len(ends) == 1:
            return node if node is not None else self._flat[ends[0]]
        if ends:
            raise MissingKey(f"{key!r} stands for {len(ends)} config keys: {', '.join(ends[:5])}")
        known = [*self._flat, *(full.rpartition(".")[2] for full in self._flat)]
        raise MissingKey(f"{self.id} has no config key {key!r}", hint=did_you_mean(key, known))

    def __contains__(self, key: object) -> bool:
        return self.get(str(key), self) is not self

    def get(self, key: str, default: Any = None) -> Any:
        """Return a config value, or `default` if there is none."""
        try:
            return self[key]
        except MissingKey:
            return default

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the run and of its tests: names, with the values at the best checkpoint."""
        return self._owner._metrics_of(self._row)

    @functools.cached_property
    def _curves(self) -> dict[str, Curve]:
        return _read_curves(self.path)

    def metric(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return all values of a metric and the updates at which they were logged, as arrays."""
        import numpy as np

        curve = self._curves.get(name) or self._find_in_tests(name)
        if curve is None:
            raise MissingKey(f"{self.id} has no metric {name!r}", hint=did_you_mean(name, self.metrics))
        return np.array(curve.updates, np.int64), np.array(curve.values, np.float64)

    def _find_in_tests(self, name: str) -> Curve | None:
        tests = self._owner._tests_of(self._row) if name in self.metrics else []
        return next((curves[name] for row in tests if name in (curves := _read_curves(row.folder))), None)

    def load(self, **options: Any) -> Predictor:
        """Load the trained model for prediction; `options` are those of `alchemy.load`."""
        import alchemy  # not at the top: names that need torch are imported on first use

        return alchemy.load(self.path, **options)

    def __repr__(self) -> str:
        best = "" if self.best is None else f", {self.best.metric} {format_number(self.best.value)}"
        return f"RecordView({self.id}, {self.tag}, {self.status}{best})"

    def _repr_html_(self) -> str:
        fields = {
            "record": str(self.path),
            "status": f"{self.status}: {self.cause or self.reason}" if self.cause or self.reason else self.status,
            "purpose": self.purpose,
            "tags": ", ".join(self.tags),
            "started": format_time(self._row.started),
            "best": "" if self.best is None else f"{self.best.metric} {format_number(self.best.value)}",
        }
        config = [[key, str(value)] for key, value in self._flat.items()]
        details = f"<details><summary>config</summary>{html_table([['key', 'value'], *config])}</details>"
        shown = html_table([["", self.tag], *([name, text] for name, text in fields.items() if text)])
        return shown + details


def _read_curves(folder: Path) -> dict[str, Curve]:
    try:
        return read_curves(folder / "metrics.jsonl").metrics
    except OSError:  # a run without metrics, or one that was removed
        return {}


def _values(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    found = {name: values["at_best"] for name, values in sorted(metrics.items())}
    return {name: value for name, value in found.items() if value is not None}


def _time(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)
