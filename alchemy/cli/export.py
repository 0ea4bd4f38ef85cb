"""`alchemy export`: a trained model as a file that other programs read, checked before it is there."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import add_launch, add_overrides
from alchemy.cli.predict import opened
from alchemy.cli.test import add_target
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.export.check import Blocks, Pair
    from alchemy.export.kept import Export

FORMATS = ["ctranslate2"]
PRECISIONS = ["float32", "int8"]

EXAMPLES = """examples:
  alchemy export latest --format ctranslate2
  alchemy export latest --format ctranslate2 --precision int8 --to models/en-de
  alchemy export latest --format ctranslate2 --lines dev.en --references dev.de"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--format", choices=FORMATS, required=True, help="the program that is to read it")
    add_precision(parser)
    add("--to", default="", metavar="DIR", help="the folder of the export (default: export/ of the record)")
    add("--lines", default="", metavar="FILE", help="sentences to check it on (default: those of the dev split)")
    add("--references", default="", metavar="FILE", help="their translations, which int8 is checked by")
    add_overrides(parser)
    add_launch(parser)


def add_precision(parser: Any) -> None:
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="of the numbers of an export (default: float32)"
    )


def main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target
    from alchemy.data.files import check_file
    from alchemy.export.samples import of_lines, of_split
    from alchemy.launch.project import reach

    if args.references and not args.lines:
        raise AlchemyError("--references are those of --lines", hint="give both")
    for name in filter(None, (args.lines, args.references)):
        check_file(name)
    reach(args.user_dir)
    target = open_target(args, quiet=True)
    args.batch_size = 1  # nobody asks anything
    with opened(target, args) as predictor:
        task = predictor.run.task
        found = _export_of(
            predictor.run,
            target,
            args,
            lambda: of_lines(task, args.lines, args.references) if args.lines else of_split(task),
        )
    old = "  (it was there already, and was not checked again)" if found.old else ""
    print(f"{found.folder}  {found.bytes / 2**20:.1f} MiB{old}")
    print(found.agreement)
    return 0


def _export_of(run: Any, target: Any, args: argparse.Namespace, pairs: Callable[[], list[Pair]]) -> Export:
    """The export of the model that is open, made where it is not there."""
    from alchemy.export.kept import Trained, exported, folder_of

    task, to = run.task, getattr(args, "to", "")
    if not hasattr(task, "special"):
        raise AlchemyError(f"CTranslate2 cannot hold a model {type(run.model).__name__}", section="model")
    if not to and target.record is None:
        raise AlchemyError(f"{args.target} is no record, so there is no place for an export", hint="give a record")
    folder = Path(to) if to else folder_of(target.record, args.precision)
    trained = Trained(run.model.module, task.special, task.source_tokenizer, task.target_tokenizer)
    return exported(folder, trained, args.precision, pairs, _watched)


@contextlib.contextmanager
def engaged(run: Any, target: Any, args: argparse.Namespace) -> Iterator[None]:
    """Lets the engine that is asked for write the texts of the model that is open."""
    if args.engine == "torch":
        if args.precision != "float32":
            raise AlchemyError(f"--precision {args.precision} is for --engine ctranslate2", hint="add it")
        yield
        return
    from alchemy.export.engine import Engine, supported
    from alchemy.export.samples import of_lines, of_split
    from alchemy.export.spec import held

    task, model = run.task, run.model
    supported(task.writer, held(model.module).out.out_features)

    def pairs() -> list[Pair]:
        try:
            return of_split(task)
        except AlchemyError:  # the record is enough to write texts
            if args.input == "-":
                raise
            return of_lines(task, args.input)

    made = _export_of(run, target, args, pairs)
    if not made.old:
        print(f"{made.folder}: {made.agreement}", file=sys.stderr)
    told = args.scores or task.tokens
    engine = Engine(made.folder, model.module, task.writer, args.precision, told=told)
    task.engine = lambda batch: engine(model.rows(batch))
    yield


def _watched(blocks: Blocks) -> Iterator[Sequence[Pair]]:
    """The blocks of a check, counted by a bar."""
    from alchemy.progress import Bar, Terminal

    with Bar("check", len(blocks), Terminal(stderr=True)) as progress:
        for block in blocks:
            yield block
            progress.step()
        progress.finish()
