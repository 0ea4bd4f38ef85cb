"""`alchemy predict`: what a trained model says, about texts that it is asked or about the data of its config."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from alchemy.cli.options import add_launch, add_overrides
from alchemy.cli.test import add_target
from alchemy.errors import AlchemyError
from alchemy.files import is_same

if TYPE_CHECKING:
    from alchemy.cli.target import Target
    from alchemy.predictor import Predictor

T = TypeVar("T")
FORMATS = ["jsonl", "csv"]

EXAMPLES = """examples:
  alchemy predict latest --text "a fine day" --text "rain"
  alchemy predict latest --text "is it raining?" --pair "take an umbrella"
  alchemy predict latest --file in.csv --column title --out out.csv
  tail -f chat.log | alchemy predict latest -
  alchemy predict latest --out predictions.jsonl
  alchemy predict records/demo/2026-01-31_12-00-00.000000 --split dev --format csv --out dev.csv"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("stdin", nargs="?", choices=["-"], metavar="-", help="answer each line that comes in, at once")
    add("--out", default="", metavar="FILE", help="where to write (default: results/ of the new record)")
    add("--format", choices=FORMATS, default=None, help="default: by the ending of FILE, else jsonl")
    add("--split", default=None, metavar="NAME", help="the split to predict (default: inference, else test)")
    add_overrides(parser)
    add_launch(parser)
    about = "no record is made, and without --out the answers are printed, one line of JSON each"
    # --file of a run asks for a record, of which there is none here; --no-file stays
    asked = parser.add_argument_group("questions", about, conflict_handler="resolve")
    add = asked.add_argument
    add("--text", action="append", default=[], metavar="TEXT", help="a text to answer; may be repeated")
    add("--pair", action="append", default=[], metavar="TEXT", help="the second text of each; with --file its column")
    add("--file", dest="source", metavar="FILE", help="answer each row of a csv, tsv or jsonl, each line of a txt file")
    add("--column", default="", metavar="NAME", help="the column of the texts in FILE (default: text)")
    add("--encoding", default="utf-8", metavar="NAME", help="of FILE (default: utf-8)")
    add("--batch-size", type=int, default=32, metavar="N", help="texts that are answered together (default: 32)")


def main(args: argparse.Namespace) -> int:
    from alchemy.launch.project import reach

    suffix = _choose_format(args.out, args.format)
    reach(args.user_dir)
    if args.source == "-":
        args.source, args.stdin = None, "-"
    if args.text or args.source or args.stdin:
        return answer(args, suffix)
    if args.pair or args.column:
        raise AlchemyError("there is nothing to ask", hint="give --text, or --file")
    return _predict_split(args, suffix)


def _predict_split(args: argparse.Namespace, suffix: str) -> int:
    """Writes what the model says about the data of its config, in a run of its own."""
    from alchemy.cli.derive import for_prediction
    from alchemy.cli.target import open_target, start_derived

    target = open_target(args)
    derived = for_prediction(target.document, target.model_path, args.split)

    def job(*words: Any, **options: Any) -> Any:
        from alchemy.runner import run_task  # here: a wrong config is told before torch is imported

        # the runner finds them among its symbols
        return run_task(*words, predict_out=args.out, predict_format=suffix, **options)

    return start_derived(target, derived, args, "predictions", run_task_fn=job)


def refuse_if_unclear(args: argparse.Namespace, suffix: str) -> None:
    """Options that do not go together are told before the model is loaded."""
    if sum(map(bool, (args.text, args.source, args.stdin, args.split))) > 1:
        raise AlchemyError("--text, --file, - and --split exclude each other", hint="ask about one of them at a time")
    if suffix == "csv" and not args.out:
        raise AlchemyError("csv is written to a file", hint="give --out FILE.csv, or leave out --format")
    if args.source and args.out and is_same(args.source, args.out):
        raise AlchemyError(f"{args.out} would be written while it is read", hint="give --out another name")
    if args.source and len(args.pair) > 1:
        raise AlchemyError(f"{len(args.pair)} --pair", hint="with --file it names the one column of the second texts")
    if (not args.source and args.column) or (args.stdin and args.pair):
        hint = 'lines that are JSON have fields: {"text": "..", "pair": ".."}' if args.stdin else ""
        raise AlchemyError("only a file has columns", hint=hint)


def answer(args: argparse.Namespace, suffix: str) -> int:
    """Prints or writes what the model says about texts."""
    from alchemy.cli.questions import answered, of_file, of_lines, of_texts, stdin
    from alchemy.cli.target import open_target

    refuse_if_unclear(args, suffix)
    target = open_target(args, quiet=True)
    blocks = of_lines(stdin()) if args.stdin else [of_file(args) if args.source else of_texts(args.text, args.pair)]
    # a bar would stand between the lines that are printed on a terminal
    seen = bool(args.source) and (bool(args.out) or not sys.stdout.isatty())
    with opened(target, args) as predictor, Answers(args.out) as out:
        for questions in blocks:
            rows = answered(predictor, questions)
            out.write(counted(rows, "rows") if seen else rows)
    return 0


@contextlib.contextmanager
def opened(target: Target, args: argparse.Namespace, batch_size: int = 0) -> Iterator[Predictor]:
    """The model of a record or a config; what it logs is told on standard error, if it is a warning."""
    from alchemy.launch.device import alloc
    from alchemy.plugins.logs import console_log
    from alchemy.predictor import Predictor
    from alchemy.progress import Terminal

    options = {"device": alloc(args.device)[0]["device"], "batch_size": batch_size or args.batch_size}
    with (
        console_log(Terminal(stderr=True), "DEBUG" if args.debug else "WARNING"),
        Predictor(target.document, weights=target.model_path, **options) as predictor,
    ):
        yield predictor


class Answers:
    """Where answers go: a file, or line by line to standard output, each as soon as it is there."""

    def __init__(self, out: str) -> None:
        from alchemy.pipeline.output import PredictionFile

        self.file = PredictionFile(out) if out else None

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *failure: object) -> None:
        if self.file is not None and failure[0] is None:
            print(f"{self.file.rows} answers are in {self.file.path}", file=sys.stderr)

    def write(self, rows: Iterator[dict[str, Any]]) -> None:
        from alchemy.pipeline.rows import to_json

        if self.file is None:
            for row in rows:
                print(to_json(row), flush=True)
            return
        held: list[dict[str, Any]] = []
        try:
            for row in rows:
                held.append(row)
                if len(held) == 1024:
                    self.file.write(held)
                    held = []
        finally:  # where a row is wrong, those before it are written
            if held:
                self.file.write(held)


def counted(rows: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """The rows, counted by a bar on standard error."""
    from alchemy.progress import Bar, Terminal

    with Bar(what, total, Terminal(stderr=True)) as progress:
        for row in rows:
            yield row
            progress.step()
        progress.finish()


def _choose_format(out: str, asked: str | None) -> str:
    """The format of the file; its name and `--format` must agree.

    >>> _choose_format("a.csv", None), _choose_format("", None)
    ('csv', 'jsonl')
    """
    ending = out.rpartition(".")[2] if "." in out else ""
    if out and (ending not in FORMATS or asked not in (None, ending)):
        raise AlchemyError(f"{out} does not end in .{asked or 'jsonl or .csv'}", hint="its ending tells the format")
    return asked or ending or "jsonl"
