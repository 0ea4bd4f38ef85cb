"""Run the benchmarks and check that the figures stay within their bounds: `python -m bench [NAME ..] [--quick]`."""

from __future__ import annotations

import argparse
import sys

from bench import (
    check,
    checkpoint,
    data,
    defaults,
    images,
    loop,
    media,
    project,
    queue,
    records,
    report,
    start,
    sweep,
    texts,
    tracking,
    translation,
)
from bench.measure import save

BENCHMARKS = {
    "start": start.figures,
    "check": check.figures,
    "loop": loop.figures,
    "project": project.figures,
    "tracking": tracking.figures,
    "records": records.figures,
    "queue": queue.figures,
    "sweep": sweep.figures,
    "report": report.figures,
    "checkpoint": checkpoint.figures,
    "data": data.figures,
    "images": images.figures,
    "media": media.figures,
    "texts": texts.figures,
    "translation": translation.figures,
    "defaults": defaults.figures,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="benchmarks to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a smoke test, not a measurement")
    arguments = parser.parse_args()
    held = True
    for name in arguments.names or BENCHMARKS:
        print(f"== {name}")
        figures = BENCHMARKS[name](quick=arguments.quick)
        for figure in figures:
            print(figure)
            held &= figure.holds
        if not arguments.quick:
            save(name, figures)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
