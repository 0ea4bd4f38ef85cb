"""`alchemy generate`: what a trained model writes for each line of a file, in the order of the lines."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from alchemy.cli.export import add_precision, engaged
from alchemy.cli.options import add_launch, add_overrides
from alchemy.cli.predict import counted, opened
from alchemy.cli.test import add_target
from alchemy.errors import AlchemyError

BEAM, SAMPLING = "alchemy.generate.BeamSearch", "alchemy.generate.Sampling"
SEARCH = ("beam", "nbest", "length_penalty", "temperature", "top_k", "top_p", "seed")
LIMITS = ("max_length", "min_length", "no_repeat", "unk_penalty")
DRAWN = ("temperature", "top_k", "top_p", "seed")

EXAMPLES = """examples:
  alchemy generate latest --input test.en --output test.de --beam 5
  alchemy generate latest --input test.en --nbest 3 --scores
  alchemy generate latest --sample --top-p 0.9 --seed 7 --input test.en
  echo "a dog runs" | alchemy generate latest
  alchemy generate latest                                   # type sentences, Ctrl-D ends"""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--input", default="-", metavar="FILE", help="a sentence a line; - is standard input (default)")
    add("--output", default="", metavar="FILE", help="where the texts go (default: standard output)")
    add("--scores", action="store_true", help="the score of each text in front of it, and a tab")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences that are read together (default: 64)")
    add("--engine", choices=["torch", "ctranslate2"], default="torch", help="what writes the texts (default: torch)")
    add_precision(parser)
    how = parser.add_argument_group("search", "what the config says, unless it is told here")
    add = how.add_argument
    add("--beam", type=int, metavar="N", help="hypotheses that are kept of each sentence")
    add("--nbest", type=int, metavar="N", help="texts of each sentence; the number of the line stands in front of each")
    add("--length-penalty", type=float, metavar="X", help="scores are divided by the length to this power")
    add("--sample", action="store_true", help="draw tokens instead of a beam search")
    add("--temperature", type=float, metavar="X", help="of the draw; 0 takes the likeliest token")
    add("--top-k", type=int, metavar="N", help="draw from the N likeliest tokens")
    add("--top-p", type=float, metavar="X", help="draw from the fewest tokens that make up this probability")
    add("--seed", type=int, metavar="N", help="of the draw")
    add("--max-length", type=int, metavar="N", help="the most tokens of a text")
    add("--min-length", type=int, metavar="N", help="the fewest tokens of a text")
    add("--no-repeat", type=int, metavar="N", help="no run of N tokens comes twice in a text")
    add("--unk-penalty", type=float, metavar="X", help="what an unknown word costs")
    add_overrides(parser)
    add_launch(parser)


def main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target
    from alchemy.launch.project import reach

    reach(args.user_dir)
    target = open_target(args, quiet=True)
    task: Any = target.document.peek("task")
    if not str(task.peek("type", "")).endswith("Translation"):
        hint = "`alchemy predict` answers for other tasks"
        raise AlchemyError(f"{task.peek('type')} writes no texts", section="task", hint=hint)
    task["search"] = search_of(args, plain(task.peek("search")))
    task["limits"] = plain(task.peek("limits")) | given(args, LIMITS)
    with opened(target, args) as predictor, engaged(predictor.run, target, args), output(args.output) as out:
        numbers = itertools.count(1)
        for lines in blocks(args.input):
            for row in counted(written(predictor, lines), bar=bool(args.output)):
                out.write(shown(row, next(numbers), args.scores, many=(args.nbest or 1) > 1))
            out.flush()
    return 0


def search_of(args: argparse.Namespace, there: dict[str, Any]) -> dict[str, Any]:
    """The table of the search: that of the config, with what the command line says."""
    asked = given(args, SEARCH)
    drawn = [f"--{key.replace('_', '-')}" for key in DRAWN if key in asked]
    if drawn and not args.sample:
        raise AlchemyError(f"{drawn[0]} is for --sample, and texts are searched for", hint="add --sample")
    kind = SAMPLING if args.sample else BEAM
    found = {"type": kind} | (there if there.get("type") == kind else {}) | asked
    if args.sample and "beam" in asked:
        raise AlchemyError("--beam is for a search, and texts are drawn", hint="--nbest says how many")
    if not args.sample and args.nbest and "beam" not in asked:
        found["beam"] = max(args.nbest, found.get("beam", 5))
    return found


def given(args: argparse.Namespace, keys: Iterable[str]) -> dict[str, Any]:
    return {key: getattr(args, key) for key in keys if getattr(args, key) is not None}


def plain(table: Any) -> dict[str, Any]:
    return dict(table.items()) if table else {}


def blocks(name: str) -> Iterator[Iterator[tuple[str, str]]]:
    """Lines with their places: all of a file, or of standard input those that are there, as soon as they are there."""
    from alchemy.cli.questions import coming_lines, stdin
    from alchemy.data.files import read_lines

    if name != "-":
        yield ((f"{name}:{number}", line) for number, line in read_lines(name))
        return
    if sys.stdin.isatty():
        print("a sentence a line, Ctrl-D ends", file=sys.stderr)
    yield from coming_lines(stdin())


def written(predictor: Any, lines: Iterable[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """The answer to each line, in order; one without words is not asked about, and answered with nothing."""
    from alchemy.pipeline.processors.samples import is_blank

    blanks: deque[bool] = deque()
    nothing = {"pred": "", "score": 0.0}

    def asked() -> Iterator[tuple[str, str]]:
        for where, line in lines:
            blanks.append(is_blank(line))
            if not blanks[-1]:
                yield where, line

    for answer in predictor.answers(asked()):
        while blanks.popleft():
            yield nothing
        yield answer
    yield from (nothing for _ in blanks)


def shown(row: dict[str, Any], number: int, scores: bool, many: bool) -> str:
    texts = list(zip(row.get("nbest", [row["pred"]]), row.get("scores", [row["score"]])))
    place = f"{number}\t" if many else ""
    marks = [f"{score:.4f}\t" if scores else "" for _, score in texts]
    return "".join(f"{place}{mark}{text}\n" for mark, (text, _) in zip(marks, texts))


@contextlib.contextmanager
def output(name: str) -> Iterator[TextIO]:
    if not name:
        yield sys.stdout
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(name, "w", encoding="utf-8"))
        except OSError as error:
            raise AlchemyError(f"{name} cannot be written: {error.strerror}") from error
        yield file
