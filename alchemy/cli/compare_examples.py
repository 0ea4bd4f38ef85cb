"""List the examples on which the models of several records disagree, for `alchemy compare --examples`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import print_json
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.analysis.disagreement import Comparison

NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def compare_examples(args: argparse.Namespace) -> int:
    """Predict a split with every record, and print the examples on which they disagree."""
    from alchemy.analysis.disagreement import find_disagreements
    from alchemy.plugins.log_sinks import console_log
    from alchemy.progress import Terminal

    if args.seeds or args.metric:
        raise AlchemyError("--examples compares predictions, so --seeds and --metric do not apply")
    if len(args.runs) > len(NAMES):
        raise AlchemyError(f"at most {len(NAMES)} records can be compared, got {len(args.runs)}")
    with console_log(Terminal(stderr=True), "WARNING"):
        rows = [_predict(name, args.examples) for name in args.runs]
    found = find_disagreements([answers for _, answers in rows], [str(folder) for folder, _ in rows])
    shown = found.found[: args.limit]
    if args.json:
        for row in shown:  # masks are too large to print
            row.predictions = [_plain(mask) if hasattr(mask, "shape") else mask for mask in row.predictions]
        labels = {name: str(folder) for name, (folder, _) in zip(NAMES, rows)}
        data = {"split": args.examples, "records": labels, "examples": found.examples, "disagree": len(found.found)}
        print_json(data | {"only_right": found.only_right, "rows": [vars(row) for row in shown]})
    else:
        _print(found, [folder for folder, _ in rows], args)
    return 0


def _predict(name: str, split: str) -> tuple[Path, list[dict[str, Any]]]:
    """Return the folder of a record, and the predictions of its model for a split, in the order of the data."""
    from alchemy.cli.target import open_target
    from alchemy.predictor import predict_split

    options = {"overrides": [], "allow_code": False, "user_dir": "src", "checkpoint": None}
    target = open_target(argparse.Namespace(target=name, **options), quiet=True)
    if target.record is None:
        raise AlchemyError(f"{name} is a config, but only records have predictions", hint="pass a record")
    return target.record, predict_split(target.document, target.model_path, split)


def _print(found: Comparison, folders: list[Path], args: argparse.Namespace) -> None:
    from alchemy.cli.table_format import print_table

    labels = NAMES[: len(folders)]
    print_table(["", "record"], [[name, str(folder)] for name, folder in zip(labels, folders)])
    print(f"\nthey disagree on {len(found.found)} of {found.examples} examples of {args.examples!r}", end="")
    has_gold = any(row.gold is not None for row in found.found)
    print(f"; only right: {', '.join(f'{a} {n}' for a, n in zip(labels, found.only_right))}" if has_gold else "")
    rows = []
    for row in found.found[: args.limit]:
        answers = [_show(*pair) for pair in zip(row.predictions, row.probabilities)]
        rows.append([str(row.index), row.text or f"{args.examples}[{row.index}]", _show(row.gold, None), *answers])
    if rows:
        print()
        print_table(["#", "example", "gold", *labels], rows, wide={"example", "gold", *labels})
    if len(rows) < len(found.found):
        print(printable(f"\n{len(found.found) - len(rows)} more: -n 0 shows all"))


def _show(value: Any, probability: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else _plain(value)
    return text if probability is None else f"{text} {probability:.2f}"


def _plain(value: Any) -> str:
    """Return a value as text: the shape of a mask, or the items of a list."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return f"mask {list(value.shape)}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
