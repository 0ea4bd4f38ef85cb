"""`alchemy compare`: what differs between groups of runs, and how their numbers moved."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, add_limit, print_json
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.analysis.compare import GroupComparison, MetricRow

EXAMPLES = """examples:
  alchemy compare last~1 last
  alchemy compare 'tag:trec lr=0.01' 'tag:trec lr=0.001'      # over seeds, with a test
  alchemy compare last~3 last --seeds                         # with all runs that differ only in their seed
  alchemy compare 'tag:base' 'tag:big' --metric test/f1 --metric dev/loss
  alchemy compare last~1 last --examples                      # the examples on which two models disagree
  alchemy compare last~1 last --json"""


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "runs", nargs="+", metavar="A", help="a record, or a quoted filter that selects several runs; A is the baseline"
    )
    add("--seeds", action="store_true", help="add the runs that differ from a record only in their seed")
    add("--metric", action="append", default=[], metavar="NAME", help="metrics to compare (default: all)")
    add(
        "--at",
        choices=("best", "last", "min", "max"),
        default="best",
        help="value at the best checkpoint (default), ..",
    )
    add("--confidence", type=float, default=0.95, metavar="P", help="of the intervals and tests (default: 0.95)")
    text = "predict SPLIT (default: dev) with each record, and list the examples on which they disagree"
    add("--examples", nargs="?", const="dev", metavar="SPLIT", help=text)
    add_limit(parser, 20, "examples")
    add_json(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.analysis.compare import compare_groups
    from alchemy.analysis.groups import build_groups

    if len(args.runs) < 2:
        raise AlchemyError("alchemy compare needs at least two records or filters", hint="quote filters with spaces")
    if args.examples:
        from alchemy.cli.compare_examples import compare_examples

        return compare_examples(args)
    if not 0.5 <= args.confidence < 1:
        raise AlchemyError(f"--confidence must be at least 0.5 and below 1, got {args.confidence}", hint="use 0.95")
    with open_index() as index:
        groups = build_groups(index, args.runs, seeds=args.seeds)
        found = compare_groups(index, groups, metrics=args.metric, at=args.at, confidence=args.confidence)
    if args.json:
        print_json(_as_data(found))
    else:
        _print(found)
    return 0


def _as_data(found: GroupComparison) -> dict[str, Any]:
    groups = [
        {
            "label": group.label,
            "argument": group.argument,
            "runs": [{"id": row.name, "path": row.path, "seed": row.seed, "status": row.status} for row in group.rows],
        }
        for group in found.groups
    ]
    metrics = {}
    for row in found.metrics:
        values = [[value for _, value in group] for group in row.values]
        tests = [None if test is None else test._asdict() for test in row.tests]
        metrics[row.name] = {"means": row.means, "values": values, "tests": tests}
    return {
        "groups": groups,
        "config": found.config,
        "code": found.code,
        "metrics": metrics,
        "verdicts": found.verdicts,
        "notes": found.notes,
    }


def _print(found: GroupComparison) -> None:
    from alchemy.cli.table_format import print_table

    labels = [group.label for group in found.groups]
    rows = []
    for group in found.groups:
        seeds = ", ".join(sorted({seed for seed in group.seeds if seed}, key=lambda seed: (len(seed), seed)))
        name = group.first if len(group.rows) == 1 else f"{group.first} .."
        rows.append([group.label, group.argument, name, group.rows[0].tag, str(len(group.rows)), seeds])
    print_table(["", "runs", "id", "tag", "n", "seeds"], rows, wide={"runs", "seeds"})
    print()
    changed = [[key, *("-" if value is None else value for value in values)] for key, values in found.config.items()]
    changed += [["(code)", *found.code]] if found.code else []
    if changed:
        print_table(["config", *labels], changed, wide=set(labels))
    else:
        print("config and code: identical")
    print()
    header = ["metric", labels[0], *(name for label in labels[1:] for name in (label, f"{label} - {labels[0]}"))]
    print_table(header, [_render(row) for row in found.metrics])
    for title, lines in (("note: ", found.notes), ("", found.verdicts)):
        print("".join(printable(f"\n{title}{line}") for line in lines), end="\n" if lines else "")


def _render(row: MetricRow) -> list[str]:
    cells, means = row.cells, row.means
    found = [f"{row.name} *" if row.monitored else row.name, str(cells[0])]
    for cell, mean in zip(cells[1:], means[1:], strict=True):
        delta = "" if mean is None or means[0] is None else f"{mean - means[0]:+.4g}"
        found += [str(cell), delta]
    return found


COMMAND = Command(_arguments, _main, EXAMPLES)
