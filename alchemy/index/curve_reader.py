"""Read the curves of a record for a plot: from the index if it stores them, otherwise from `metrics.jsonl`."""

from __future__ import annotations

from alchemy.index.curves import MAX_BUCKETS, Bucket, Curves, complete_epochs, to_buckets, unpack
from alchemy.index.known_names import KnownNames
from alchemy.index.read_curves import read_curves
from alchemy.index.row import Row
from alchemy.index.store import Store

BUCKET_BYTES = 40


class CurveReader:
    """Reads the curves and clocks of records, in at most 2000 buckets each."""

    def __init__(self, store: Store, names: KnownNames) -> None:
        self._store, self._names = store, names
        self._last: tuple[str, Curves] = ("", Curves())

    def read(self, row: Row, metric: str) -> list[Bucket]:
        """Return the curve of a metric; an empty list if the record has no such metric."""
        sql = "SELECT 1 FROM metrics WHERE record = :record AND metric = :metric"
        if not self._store.query(sql, {"record": row.id, "metric": self._names.number_of(metric)}):
            return []
        stored = self._load(row, metric)
        curve = None if stored else self._read_file(row).metrics.get(metric)
        return to_buckets(curve) if curve is not None else stored

    def read_clock(self, row: Row, name: str) -> list[tuple[float, float]]:
        """Return `(update, value)` of a clock, which is the run `time` in seconds or the number of epochs completed."""
        buckets = self._load(row, f"#{name}")
        if not buckets and name in (clocks := self._read_file(row).clocks):
            buckets = to_buckets(clocks[name])
        if name == "epoch":
            buckets = complete_epochs(buckets, row.updates or 0)
        points = ((bucket.first, bucket.low, bucket.last, bucket.high) for bucket in buckets)
        return [point for first, low, last, high in points for point in ((first, low), (last, high))]

    def _load(self, row: Row, name: str) -> list[Bucket]:
        """Return the finest stored level that is short enough to plot."""
        sql = "SELECT data FROM curves WHERE record = :record AND metric = :metric ORDER BY level"
        for (data,) in self._store.query(sql, {"record": row.id, "metric": self._names.number_of(name)}):
            if len(data) <= MAX_BUCKETS * BUCKET_BYTES:
                return unpack(data)
        return []

    def _read_file(self, row: Row) -> Curves:
        """Read the curves of a record; those of the last record are kept, since plots ask for several metrics."""
        if self._last[0] != row.path:
            try:
                self._last = row.path, read_curves(row.folder / "metrics.jsonl")
            except OSError:
                self._last = row.path, Curves()
        return self._last[1]
