"""`alchemy score`: compute the log-probability of given translations."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

from alchemy.cli.generate import get_task_table, open_output
from alchemy.cli.options import Command, add_launch, add_overrides, add_target
from alchemy.cli.predict_inputs import (
    TEXTS,
    InputRow,
    check_files,
    open_predictor,
    predict_inputs,
    read_blocks,
    show_progress,
)
from alchemy.errors import AlchemyError

EXAMPLES = """examples:
  alchemy score latest --source test.en --target test.de
  alchemy score latest --source test.en --target test.de --output test.scores
  alchemy score latest --source test.en --target test.de --per-token
  alchemy score latest --source test.en --target test.de --json > scores.jsonl
  paste test.en test.de | alchemy score latest              # source, tab, target"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--source", dest="sources", default="", metavar="FILE", help="source sentences, one per line")
    add("--target", dest="targets", default="", metavar="FILE", help="translations, one per line")
    add("--output", default="", metavar="FILE", help="output file (default: standard output)")
    add("--per-token", action="store_true", help="also print the log-probability of each token")
    add("--json", action="store_true", help="print one JSON object per line, and the totals at the end")
    add("--batch-size", type=int, default=64, metavar="N", help="number of pairs per batch (default: 64)")
    add_overrides(parser)
    add_launch(parser)


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target

    if bool(args.sources) != bool(args.targets):
        hint = "without them, pairs are read from standard input: source, tab, target"
        raise AlchemyError("--source and --target must be given together", hint=hint)
    check_files([name for name in (args.sources, args.targets) if name], args.output)
    target = open_target(args, quiet=True)
    get_task_table(target)
    totals = _Totals()
    with open_predictor(target, args) as predictor, open_output(args.output) as out:
        for inputs in _read_pairs(args.sources, args.targets):
            rows = predict_inputs(predictor, inputs, skip_blank=True)
            for entry, prediction in show_progress(rows) if args.output else rows:
                out.write(_render(totals.add(entry.row | prediction), args.json, args.per_token))
            out.flush()
        out.write(totals.as_json() if args.json else "")
    if not args.json:
        print(totals, file=sys.stderr)
    return 0


def _read_pairs(sources: str, targets: str) -> Iterator[Iterator[InputRow]]:
    """Yield blocks of pairs from two parallel files or from standard input."""
    if sources:
        yield _read_parallel(sources, targets)
        return
    for lines in read_blocks("-", "one pair per line: source, tab, target"):
        yield (_parse_pair(where, line) for where, line in lines)


def _read_parallel(sources: str, targets: str) -> Iterator[InputRow]:
    from alchemy.data.files import read_lines

    for one, other in itertools.zip_longest(read_lines(sources), read_lines(targets)):
        if one is None or other is None:
            longer, shorter, (number, _) = (sources, targets, one) if other is None else (targets, sources, other)
            text = f"{shorter} has only {number - 1} lines"
            raise AlchemyError(text, where=f"{longer}:{number}", hint="both files must have the same number of lines")
        yield InputRow(f"{sources}:{one[0]}", {"text": one[1], "pair": other[1]})


def _parse_pair(where: str, line: str) -> InputRow:
    fields = line.split("\t")
    if len(fields) != 2:
        text = f"the line has {len(fields) - 1} tabs, expected a source, one tab and a target"
        raise AlchemyError(text, where=where, hint="create such lines with `paste test.en test.de`")
    return InputRow(where, dict(zip(TEXTS, fields)))


def _render(row: dict[str, Any], json: bool, per_token: bool) -> str:
    from alchemy.pipeline.output_rows import to_json

    each = list(zip(row["tokens"], row["token_scores"], strict=True))
    if json:
        data = {"source": row["text"], "target": row["pair"], "score": row["score"], "count": len(each)}
        data |= {name: row[name] for name in ("tokens", "token_scores") if per_token}
        return to_json(data) + "\n"
    suffix = "\t" + " ".join(f"{token.strip()}={score:.4f}" for token, score in each) if per_token else ""
    return f"{row['score']:.4f}\t{len(each)}{suffix}\n"


class _Totals:
    """Totals over all pairs."""

    def __init__(self) -> None:
        self.pairs = self.tokens = 0
        self.score = 0.0
        self.empty: list[int] = []  # line numbers of pairs without a score

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add a row to the totals and return it; the score of a row without a prediction is zero."""
        row = {"score": 0.0, "tokens": [], "token_scores": [], **row}
        self.pairs += 1
        self.tokens += len(row["tokens"])
        self.score += row["score"]
        self.empty += [] if row["tokens"] else [self.pairs]
        return row

    @property
    def ppl(self) -> float:
        from alchemy.tasks.translation import perplexity

        return perplexity(self.score / self.tokens) if self.tokens else math.nan

    def as_json(self) -> str:
        from alchemy.pipeline.output_rows import to_json

        data = {"pairs": self.pairs, "empty": self.empty, "tokens": self.tokens, "score": self.score}
        return to_json({"total": data | {"ppl": self.ppl if self.tokens else None}}) + "\n"

    def __str__(self) -> str:
        left = f"; {len(self.empty)} blank, the first on line {self.empty[0]}" if self.empty else ""
        return f"{self.pairs} pairs, {self.tokens} tokens, log-probability {self.score:.4f}, ppl {self.ppl:.4f}{left}"


COMMAND = Command(_arguments, _main, EXAMPLES)
