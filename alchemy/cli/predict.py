"""`alchemy predict`: run a trained model on text, the rows of a file, images, or a split of the config."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from alchemy.cli.explain_inputs import explain_images, explain_inputs
from alchemy.cli.options import Command, add_launch, add_overrides, add_target
from alchemy.cli.predict_files import file_inputs
from alchemy.cli.predict_images import find_images, predict_images, reads_images
from alchemy.cli.predict_inputs import (
    TEXTS,
    InputRow,
    check_files,
    open_predictor,
    predict_inputs,
    read_blocks,
    show_progress,
)
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.cli.target import Trained
    from alchemy.pipeline.output import PredictionFile

FORMATS = ["jsonl", "csv"]

EXAMPLES = """examples:
  alchemy predict latest --text "a fine day" --text "rain"
  alchemy predict latest --text "a fine day" --explain
  alchemy predict latest --file in.csv --column title --out out.csv
  alchemy predict latest --file a.png b.jpg photos/ --to masks
  tail -f chat.log | alchemy predict latest -
  alchemy predict records/demo/2026-01-31_12-00-00.000000 --split dev --format csv --out dev.csv"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("stdin", nargs="?", metavar="-", help="predict each line of standard input as it arrives")
    add("--out", default="", metavar="FILE", help="output file (default: results/ in the new record)")
    add(
        "--format",
        choices=FORMATS,
        default=None,
        help="output format (default: from the extension of FILE, else jsonl)",
    )
    add("--split", default=None, metavar="NAME", help="split to predict (default: inference, else test)")
    add_overrides(parser)
    add_launch(parser)
    about = "predict these inputs instead of a split, without writing a record; prints JSON lines unless --out is given"
    # redefines --file, which would request a record; --no-file is kept
    inputs = parser.add_argument_group("inputs", about, conflict_handler="resolve")
    add = inputs.add_argument
    add("--text", action="append", default=[], metavar="TEXT", help="input text; may be repeated")
    add(
        "--pair",
        action="append",
        default=[],
        metavar="TEXT",
        help="second text of each pair; with --file, the name of its column",
    )
    add(
        "--file",
        dest="files",
        nargs="+",
        default=[],
        metavar="FILE",
        help="predict each row of a csv, tsv or jsonl file, each line of a txt file, or each sequence of a FASTA file; "
        "or image files and folders",
    )
    add("--to", default="", metavar="DIR", help="folder for the predicted masks of images (default: masks)")
    add(
        "--column",
        default="",
        metavar="NAME",
        help="text column of FILE (default: as in training, else text)",
    )
    add("--encoding", default="utf-8", metavar="NAME", help="encoding of FILE (default: utf-8)")
    add(
        "--explain",
        action="store_true",
        help="add the contribution of each token to the prediction; for images, write pictures to --to "
        "(default: explained)",
    )
    add("--batch-size", type=int, default=32, metavar="N", help="number of inputs per batch (default: 32)")


def _main(args: argparse.Namespace) -> int:
    if args.stdin not in (None, "-"):
        raise AlchemyError(f"unexpected argument {args.stdin!r}", hint="put --text before each text")
    suffix = _choose_format(args.out, args.format)
    if args.files == ["-"]:
        args.files, args.stdin = [], "-"
    if args.text or args.files or args.stdin:
        return _predict_inputs(args, suffix)
    if args.pair or args.column or args.explain:
        raise AlchemyError("no input given", hint="pass --text or --file")
    return _predict_split(args, suffix)


def _predict_split(args: argparse.Namespace, suffix: str) -> int:
    """Predict a split of the config in a separate run."""
    from alchemy.cli.derived_config import derive_prediction
    from alchemy.cli.target import open_target, start_derived

    target = open_target(args)
    derived = derive_prediction(target.document, target.model_path, args.split)

    def job(*words: Any, **options: Any) -> Any:
        from alchemy.runner import run_task  # imported here, so that config errors are reported before torch is loaded

        return run_task(*words, out=args.out, suffix=suffix, **options)

    return start_derived(target, derived, args, "predictions", run_task_fn=job)


def _check_options(args: argparse.Namespace, suffix: str) -> None:
    """Raise an error for conflicting options before the model is loaded."""
    if sum(map(bool, (args.text, args.files, args.stdin, args.split))) > 1:
        raise AlchemyError("--text, --file, - and --split are mutually exclusive", hint="use one of them at a time")
    if suffix == "csv" and not args.out:
        raise AlchemyError("--format csv requires an output file", hint="pass --out FILE.csv, or leave out --format")
    check_files([name for name in args.files if not os.path.isdir(name)], args.out)
    if args.files and len(args.pair) > 1:
        raise AlchemyError(
            f"--pair given {len(args.pair)} times", hint="with --file, it names the column of the second texts"
        )
    if (not args.files and args.column) or (args.stdin and args.pair):
        hint = 'pass fields as JSON lines: {"text": "..", "pair": ".."}' if args.stdin else ""
        raise AlchemyError("columns require --file", hint=hint)


def _predict_inputs(args: argparse.Namespace, suffix: str) -> int:
    """Print or write the predictions for the given inputs."""
    from alchemy.cli.derived_config import describe_weights
    from alchemy.cli.target import open_target
    from alchemy.pipeline.output import PredictionFile
    from alchemy.predict_inputs import takes_rows

    _check_options(args, suffix)
    target = open_target(args, quiet=True)
    if reads_images(target.document):
        return _predict_images(args, target)
    as_rows = takes_rows(target.document)
    if args.files:
        _check_single(args)
        blocks: Iterable[Iterator[InputRow]] = [file_inputs(args, target.document, as_rows=as_rows)]
    else:
        blocks = _line_inputs() if args.stdin else [_text_inputs(args.text, args.pair)]
    # on a terminal, a progress bar would be mixed with the printed lines
    has_bar = bool(args.files) and (bool(args.out) or not sys.stdout.isatty())
    file = PredictionFile(args.out) if args.out else None
    with open_predictor(target, args) as predictor, _suggest_rows(as_rows and bool(args.text)):
        if target.model_path is not None:
            print(f"model: {describe_weights(target.model_path, target.document)}", file=sys.stderr)
        for inputs in blocks:
            entries = map(_as_row, inputs) if as_rows else inputs
            answers = predict_inputs(predictor, entries)
            if args.explain:
                answers = explain_inputs(predictor, answers)
            rows = itertools.starmap(_merge_row if as_rows else _merge_prediction, answers)
            _write(show_progress(rows) if has_bar else rows, file)
    if file is not None:
        print(f"wrote {file.rows} predictions to {file.path}", file=sys.stderr)
    return 0


def _predict_images(args: argparse.Namespace, target: Trained) -> int:
    """Print or write the predictions for image files."""
    from alchemy.cli.derived_config import describe_weights
    from alchemy.pipeline.output import PredictionFile

    if not args.files or args.pair or args.column:
        raise AlchemyError("this model predicts images", hint="pass image files or folders: --file a.png photos/")
    images = find_images(args.files)
    file = PredictionFile(args.out) if args.out else None
    with open_predictor(target, args) as predictor:
        if target.model_path is not None:
            print(f"model: {describe_weights(target.model_path, target.document)}", file=sys.stderr)
        rows = explain_images(predictor, args, images) if args.explain else predict_images(predictor, args, images)
        has_bar = bool(args.out) or not sys.stdout.isatty()
        _write(show_progress(rows, "images", len(images)) if has_bar else rows, file)
    if file is not None:
        print(f"wrote {file.rows} predictions to {file.path}", file=sys.stderr)
    return 0


def _check_single(args: argparse.Namespace) -> None:
    if len(args.files) > 1 or args.to:
        wrong = "--file takes one file" if len(args.files) > 1 else "--to applies to images"
        hint = f"{args.target} predicts texts or rows; several files and --to are for image models"
        raise AlchemyError(wrong, hint=hint)


@contextlib.contextmanager
def _suggest_rows(enabled: bool) -> Iterator[None]:
    """Replace the hint of an error if --text was given to a model that expects rows."""
    try:
        yield
    except AlchemyError as error:
        if not enabled:
            raise
        hint = "this model expects rows: pass a table with --file, or JSON lines on standard input"
        row = error.problem
        raise AlchemyError(row.message, where=row.where, section=row.section, hint=hint) from error


def _write(rows: Iterator[dict[str, Any]], file: PredictionFile | None) -> None:
    """Write rows to a file, or print each one as soon as it is available."""
    from alchemy.pipeline.output_rows import to_json

    if file is None:
        for row in rows:
            print(printable(to_json(row)), flush=True)
        return
    buffer: list[dict[str, Any]] = []
    try:
        for row in rows:
            buffer.append(row)
            if len(buffer) == 1024:
                file.write(buffer)
                buffer = []
    finally:  # if a row is invalid, the rows before it are still written
        if buffer:
            file.write(buffer)


def _choose_format(out: str, given: str | None) -> str:
    """Return the output format; the file extension and `--format` must agree.

    >>> _choose_format("a.csv", None), _choose_format("", None)
    ('csv', 'jsonl')
    """
    ending = out.rpartition(".")[2] if "." in out else ""
    if out and (ending not in FORMATS or given not in (None, ending)):
        raise AlchemyError(
            f"{out} does not end in .{given or 'jsonl or .csv'}", hint="the extension determines the format"
        )
    return given or ending or "jsonl"


# -- inputs
def _text_inputs(texts: list[str], pairs: list[str]) -> Iterator[InputRow]:
    """Return the `--text` inputs, each with its `--pair`, if given."""
    if not pairs:
        return (InputRow(f"--text {place}", {"text": text}, text) for place, text in enumerate(texts, 1))
    if len(pairs) != len(texts):
        raise AlchemyError(f"got {len(texts)} --text but {len(pairs)} --pair", hint="pass one --pair for each --text")
    both = enumerate(zip(texts, pairs), 1)
    return (InputRow(f"--text {place}", dict(zip(TEXTS, two)), two) for place, two in both)


def _line_inputs() -> Iterator[Iterator[InputRow]]:
    """Yield the lines of standard input as inputs, in blocks as they arrive."""
    return (itertools.starmap(_parse_line, lines) for lines in read_blocks("-", "one text per line"))


def _parse_line(where: str, text: str) -> InputRow:
    """Parse a line: a JSON object contains the fields of an input, anything else is text."""
    try:
        row = json.loads(text) if text.startswith("{") else None
    except ValueError:
        row = None
    return InputRow(where, {"text": text}, text) if row is None else InputRow(where, row)


def _as_row(entry: InputRow) -> InputRow:
    """Convert text to a row with a single field."""
    return entry._replace(item=None) if isinstance(entry.item, str | tuple) else entry


def _merge_row(entry: InputRow, prediction: dict[str, Any]) -> dict[str, Any]:
    """Add the prediction to its row; keep existing values, such as a label that the pipes convert to a number."""
    if "pred" in entry.row and "pred" in prediction:
        hint = "rename or remove the input column"
        raise AlchemyError("the input already has a field 'pred'", where=entry.where, hint=hint)
    return entry.row | {key: value for key, value in prediction.items() if key not in entry.row}


def _merge_prediction(entry: InputRow, prediction: dict[str, Any]) -> dict[str, Any]:
    """Add the prediction to its input; raise an error if it would overwrite a different value."""
    from alchemy.pipeline.output_rows import to_json

    row = entry.row
    # the row already contains the text, under its own name
    added = {key: value for key, value in prediction.items() if key in row or key not in TEXTS}
    # other input fields may be returned unchanged, but `pred` is never an input field
    same = row.keys() & added.keys() - {*TEXTS}
    lost = [key for key in same if key == "pred" or to_json(row[key]) != to_json(added[key])]
    if lost:
        hint = "rename or remove the input column"
        raise AlchemyError(f"the input already has a field {min(lost)!r}", where=entry.where, hint=hint)
    return row | added


COMMAND = Command(_arguments, _main, EXAMPLES)
