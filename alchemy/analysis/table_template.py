"""The template of a new table, filled in from the records of the project."""

from __future__ import annotations

from collections import Counter

from alchemy.config.toml_writer import format_inline
from alchemy.index.config_changes import find_changed_keys
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row

SAMPLE = 200  # records to look at
TELLING = ("model", "optim", "sched", "task", "criterion")  # tables of a config that distinguish experiments

TEMPLATE = """\
# A table of results. `alchemy table show {name}` prints it, also as LaTeX, Markdown, CSV or HTML.
title = {title}
# caption = "Test accuracy in percent: mean ± standard deviation (number of seeds)."

# The number in each cell: a metric, at the best checkpoint of each run, or another column of `alchemy ls`.
metric = {metric}
# scale = 100           # show 0.912 as 91.20
# digits = 2            # decimals
# better = "lower"      # for losses; the best number of a column is bold, the second best underlined

# Which runs count: by default, all finished training runs. See `alchemy ls --help` for filters.
# filter = "created>-30d"

# One row for each value of a config key, of `tag` or of `variant`.
rows_by = {rows_by}

# Columns: the same metric for other runs, or another metric. Without [[columns]], there is one column.
{columns}
# Further rows: for runs that match a filter, or with numbers that you type in.
# [[rows]]
# name = "TextCNN, wide"
# filter = "tag:textcnn model.head.channels>=300"
#
# [[rows]]
# name = "TextCNN (Kim 2014)"
# cells.{cell} = {{ value = 91.2, source = "Kim 2014, table 2" }}
# A cell may also be linked to a record, {{ record = "2026-.." }}, or have its own filter, {{ query = "tag:x" }}.
"""

EXAMPLE = """\
# [[columns]]
# name = "TREC"
# filter = "task.name=trec"
"""


def write_template(index: RecordIndex, name: str) -> str:
    """Return the text of a new table that shows the records of the project."""
    rows = index.query(kind="train", limit=SAMPLE)
    tested = Counter(metric for table in index.metrics(rows).values() for metric in table if metric.startswith("test/"))
    monitored = Counter(row.best_metric for row in rows if row.best_metric)
    scores = [metric for metric, _ in monitored.most_common(1)]
    of_tests = [f"test/{metric.partition('/')[2]}" for metric in scores]
    metrics = [metric for metric in of_tests if metric in tested] + scores or ["dev/accuracy"]
    columns = "".join(f"[[columns]]\nname = {text}\nmetric = {text}\n" for text in map(format_inline, metrics))
    return TEMPLATE.format(
        name=name,
        title=format_inline(name),
        metric=format_inline(metrics[0]),
        rows_by=format_inline(_choose_key(index, rows)),
        columns=columns if len(metrics) > 1 else EXAMPLE,
        cell=format_inline(metrics[0]),
    )


def _choose_key(index: RecordIndex, rows: list[Row]) -> str:
    """Return what tells the records apart: their tags, or the config key that differs and that most finished runs have.

    A key that is not about the model, the training or the data counts half.
    """
    if len({row.tag for row in rows}) > 1:
        return "tag"
    found = index.config([row for row in rows if row.status == "finished"])
    configs = list(found.values())

    def weight(key: str) -> float:
        return sum(key in config for config in configs) / (1 if key.partition(".")[0] in TELLING else 2)

    return min(find_changed_keys(configs), key=lambda key: (-weight(key), key), default="tag")
