"""Everything that an index contains, in a form that does not depend on the order in which records were added."""

from __future__ import annotations

from typing import Any

from alchemy.index.record_index import RecordIndex


def read_contents(**options: Any) -> dict[str, Any]:
    """Open the index of the project, and return each record with its config, metrics, curves and words."""
    with RecordIndex.open(**options) as index:
        rows = index.query()
        configs, metrics = index.config(rows), index.metrics(rows)
        found = {}
        for row in rows:
            values = {name: value for name, value in row._asdict().items() if name != "id"}
            curves = {name: index.curves.read(row, name) for name in metrics[row.id]}
            found[row.path] = values, configs[row.id], metrics[row.id], curves, index.curves.read_clock(row, "epoch")
        words = {word: sorted(row.path for row in index.query(f'"{word}"')) for word in ("demo", "focal", "损失")}
        return {"records": found, "words": words}
