"""Plot the curves of a record over the updates: losses at the top, a dev metric at the bottom.

In the folder of the recipes:

    python curves.py ../runs/recipes/train/RECORD bleu_words ../docs/pictures/multi30k-tiny.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

Points = list[tuple[int, float]]


def points(record: Path, name: str) -> Points:
    """Return all values of a metric with their updates, in logging order."""
    rows = map(json.loads, (record / "metrics.jsonl").read_text("utf-8").splitlines())
    found = [(row["update"], row["values"][name]) for row in rows if name in row.get("values", {})]
    if not found:
        sys.exit(f"{record} has no metric {name}")
    return found


def draw(record: Path, score: str, to: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = record.name  # reproducible output: the same record yields the same bytes
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
    for name in ("train/loss", "dev/loss"):
        above.plot(*zip(*points(record, name)), label=name, linewidth=1)
    above.legend()
    below.plot(*zip(*points(record, f"dev/{score}")), label=f"dev/{score}", marker=".", color="C2")
    below.set_xlabel("update")
    below.legend()
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, metadata={"Date": None})


if __name__ == "__main__":
    match sys.argv[1:]:
        case [record, score, to]:
            draw(Path(record), score, Path(to))
        case _:
            sys.exit(__doc__)
