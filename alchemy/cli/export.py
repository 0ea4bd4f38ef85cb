"""`alchemy export`: export a trained model for another program and verify its output."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from alchemy.cli.options import Command, add_launch, add_overrides, add_target
from alchemy.cli.predict_inputs import open_predictor, show_progress
from alchemy.errors import AlchemyError
from alchemy.export import EXPORTERS

if TYPE_CHECKING:
    from alchemy.cli.target import Trained
    from alchemy.context import Run
    from alchemy.export.export_folder import Export
    from alchemy.export.exporter import Exporter, Sample
    from alchemy.generate import TextGenerator
    from alchemy.models.translator import Translator
    from alchemy.tasks.translation import Translation

PRECISIONS = ["float32", "int8"]

EXAMPLES = """examples:
  alchemy export latest --format ctranslate2
  alchemy export latest --format ctranslate2 --precision int8 --to models/en-de
  alchemy export latest --format ctranslate2 --lines dev.en --references dev.de"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--format", choices=list(EXPORTERS), required=True, help="program to export for")
    add_precision(parser)
    add("--to", default="", metavar="DIR", help="output folder (default: export/ in the record)")
    add("--lines", default="", metavar="FILE", help="sentences used to verify the export (default: the dev split)")
    add("--references", default="", metavar="FILE", help="reference translations of --lines, used to verify int8")
    add_overrides(parser)
    add_launch(parser)


def add_precision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="precision of the exported weights (default: float32)",
    )


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target
    from alchemy.data.files import check_file
    from alchemy.export.exporter import find_exporter

    if args.references and not args.lines:
        raise AlchemyError("--references requires --lines", hint="pass both")
    for name in filter(None, (args.lines, args.references)):
        check_file(name)
    target = open_target(args, quiet=True)
    with open_predictor(target, args, batch_size=1) as predictor:
        run = predictor.run
        exporter = find_exporter(args.format)(run.task, run.model.module, args.precision)
        folder = Path(args.to) if args.to else _default_folder(target, exporter)
        made = _export(folder, exporter, lambda: exporter.samples(args.lines, args.references))
    old = "  (already exported, not verified again)" if made.old else ""
    print(f"{made.folder}  {made.bytes / 2**20:.1f} MiB{old}")
    print(made.agreement)
    return 0


def _default_folder(target: Trained, exporter: Exporter[Any]) -> Path:
    if target.record is None:
        raise AlchemyError("a config has no default export folder", hint="pass a record, or a folder with --to DIR")
    return target.record / "export" / f"{exporter.name}-{exporter.precision}"


def _export(folder: Path, exporter: Exporter[Sample], samples: Callable[[], Sequence[Sample]]) -> Export:
    """Return the export in a folder, creating it if necessary. Shows a progress bar during verification."""
    from alchemy.export.export_folder import export

    return export(folder, exporter, samples, lambda blocks: show_progress(blocks, "check", len(blocks)))


@contextlib.contextmanager
def use_engine(run: Run, target: Trained, args: argparse.Namespace) -> Iterator[None]:
    """Make the loaded model generate text with the engine given by --engine."""
    if args.engine == "torch":
        if args.precision != "float32":
            raise AlchemyError(f"--precision {args.precision} requires --engine ctranslate2")
        yield
        return
    from alchemy.export.ctranslate2 import CTranslate2, Pair
    from alchemy.export.ctranslate2_engine import require_supported

    task, model = cast("Translation", run.task), cast("Translator", run.model)
    exporter = CTranslate2(task, model.module, args.precision)
    writer = cast("TextGenerator", task.writer)
    require_supported(writer, exporter.network.out.out_features)

    def samples() -> list[Pair]:
        try:
            return exporter.samples()
        except AlchemyError:  # no dev split: verify on the input instead
            if args.input == "-":
                raise
            return exporter.samples(args.input)

    made = _export(_default_folder(target, exporter), exporter, samples)
    if not made.old:
        print(f"{made.folder}: {made.agreement}", file=sys.stderr)
    engine = exporter.load(made.folder, writer, rescore=args.scores or task.tokens)
    task.engine = lambda batch: engine(model.rows(batch))
    yield


COMMAND = Command(_arguments, _main, EXAMPLES)
