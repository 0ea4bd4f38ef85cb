"""`alchemy generate`: what a trained model writes for each line of a file, in the order of the lines."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from alchemy.cli.export import add_precision, engaged
from alchemy.cli.options import add_launch, add_overrides
from alchemy.cli.predict import counted, opened
from alchemy.cli.test import add_target
from alchemy.errors import AlchemyError
from alchemy.files import is_same

if TYPE_CHECKING:
    from alchemy.cli.target import Target
    from alchemy.config.tree import Table

BEAM, SAMPLING = "alchemy.generate.BeamSearch", "alchemy.generate.Sampling"
SEARCHED = ("beam", "exact", "groups", "diversity")
DRAWN = ("temperature", "top_k", "top_p", "typical", "seed")
SEARCH = (*SEARCHED, "nbest", "length_penalty", *DRAWN)
LIMITS = ("max_length", "max_ratio", "max_extra", "min_length", "min_ratio", "no_repeat", "unk_penalty")

EXAMPLES = """examples:
  alchemy generate latest --input test.en --output test.de --beam 5
  alchemy generate latest --input test.en --nbest 3 --scores --alignments
  alchemy generate records/a --ensemble records/b --ensemble records/c --input test.en
  alchemy generate latest --sample --top-p 0.9 --seed 7 --input test.en
  echo "a dog runs" | alchemy generate latest
  alchemy generate latest                                   # type sentences, Ctrl-D ends"""

Question = tuple[str, dict[str, str]]  # the place that an error names, and what is asked there


def arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--input", default="-", metavar="FILE", help="a sentence a line; - is standard input (default)")
    add("--output", default="", metavar="FILE", help="where the texts go (default: standard output)")
    add("--prefixes", default="", metavar="FILE", help="what each text begins with, a line for each; it may be empty")
    add("--ensemble", action="append", default=[], metavar="RECORD", help="a model that writes along; may be repeated")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences that are read together (default: 64)")
    add("--engine", choices=["torch", "ctranslate2"], default="torch", help="what writes the texts (default: torch)")
    add_precision(parser)
    _add_shape(parser.add_argument_group("output"))
    _add_search(parser.add_argument_group("search", "what the config says, unless it is told here"))
    add_overrides(parser)
    add_launch(parser)


def _add_shape(group: Any) -> None:
    add = group.add_argument
    add("--scores", action="store_true", help="the score of each text in front of it, and a tab")
    about = "behind a tab pairs such as 0-0 1-2: a word of the source, and of the text"
    add("--alignments", action="store_const", const="words", default="", help=about)
    add("--token-alignments", action="store_const", const="tokens", dest="alignments", help="the same, of tokens")
    add("--detokenize", default="", metavar="LANG", help="undo the tokens of Moses: de, en, ..")
    add("--json", action="store_true", help="an object a line, with all texts, their scores and their tokens")


def _add_search(group: Any) -> None:
    add = group.add_argument
    add("--beam", type=int, metavar="N", help="hypotheses that are kept of each sentence")
    add("--nbest", type=int, metavar="N", help="texts of each sentence; the number of the line stands in front of each")
    add("--length-penalty", type=float, metavar="X", help="scores are divided by the length to this power")
    add("--exact", action="store_const", const=True, help="search on until nothing better can come")
    add("--groups", type=int, metavar="N", help="groups of hypotheses that differ from each other")
    add("--diversity", type=float, metavar="X", help="what a token costs a group that others have taken")
    add("--sample", action="store_true", help="draw tokens instead of a beam search")
    add("--temperature", type=float, metavar="X", help="of the draw; 0 takes the likeliest token")
    add("--top-k", type=int, metavar="N", help="draw from the N likeliest tokens")
    add("--top-p", type=float, metavar="X", help="draw from the fewest tokens that make up this probability")
    add("--typical", type=float, metavar="X", help="the same, of those whose surprise is nearest to what is expected")
    add("--seed", type=int, metavar="N", help="of the draw")
    add("--max-length", type=int, metavar="N", help="the most tokens of a text")
    add("--max-ratio", type=float, metavar="X", help="so many times as many tokens as its source, and ..")
    add("--max-extra", type=int, metavar="N", help=".. so many more are the most")
    add("--min-length", type=int, metavar="N", help="the fewest tokens of a text")
    add("--min-ratio", type=float, metavar="X", help="so many times as many tokens as its source are the fewest")
    add("--no-repeat", type=int, metavar="N", help="no run of N tokens comes twice in a text")
    add("--unk-penalty", type=float, metavar="X", help="what an unknown word costs")


def main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target
    from alchemy.launch.project import reach

    read = [args.input, *([args.prefixes] if args.prefixes else [])]
    check_files(read, args.output)
    _refuse_if_unclear(args)
    detokenized = detokenizer(args.detokenize)
    reach(args.user_dir)
    target = open_target(args, quiet=True)
    table = texts_task(target)
    table["search"] = search = _search_of(args, plain(table.peek("search")))
    shape = _Shape(args.json, args.scores, bool(args.alignments), search.get("nbest", 1) != 1, detokenized)
    table["limits"] = plain(table.peek("limits")) | given(args, LIMITS)
    table["tokens"], table["alignments"] = args.json, args.alignments
    with (
        opened(target, args) as predictor,
        joined(predictor, args),
        engaged(predictor.run, target, args),
        output(args.output) as out,
    ):
        numbers = itertools.count(1)
        for questions in asked(args.input, args.prefixes):
            rows = written(predictor, questions)
            for row in counted(rows, "rows") if args.output else rows:
                out.write(shape.shown(row, next(numbers)))
            out.flush()
    return 0


def _refuse_if_unclear(args: argparse.Namespace) -> None:
    """Options that do not go together are told before the model is loaded."""
    alone = [name for name in ("prefixes", "ensemble") if getattr(args, name)]
    if alone and args.engine != "torch":
        raise AlchemyError(f"--{alone[0]} is for --engine torch, not {args.engine}", hint="leave out one of them")


def texts_task(target: Target) -> Table:
    """The table of a task that writes texts; any other is refused, before it meets keys that it does not take."""
    from alchemy.task import AlchemyTask

    table: Table = target.document.peek("task")
    kind = AlchemyTask.resolve_registered_module(table.peek("type"))
    if not (issubclass(kind, AlchemyTask) and kind.writes_texts):
        hint = "`alchemy predict` answers for other tasks"
        raise AlchemyError(f"{table.peek('type')} writes no texts", section="task", hint=hint)
    return table


def _search_of(args: argparse.Namespace, there: dict[str, Any]) -> dict[str, Any]:
    """The table of the search: that of the config, with what the command line says."""
    asked = given(args, SEARCH)
    drawn, searched = ([f"--{key.replace('_', '-')}" for key in keys if key in asked] for keys in (DRAWN, SEARCHED))
    if searched and args.sample:
        raise AlchemyError(f"{searched[0]} is for a search, and texts are drawn", hint="--nbest says how many")
    own = there.get("type", BEAM)
    kind = SAMPLING if args.sample else BEAM if searched and own == SAMPLING else own
    if drawn and kind == BEAM:
        raise AlchemyError(f"{drawn[0]} is for --sample, and texts are searched for", hint="add --sample")
    found = {"type": kind} | (there if own == kind else {}) | asked
    if kind == BEAM and args.nbest and "beam" not in asked:
        found["beam"] = max(args.nbest, found.get("beam", 5))
    return found


def given(args: argparse.Namespace, keys: Iterable[str]) -> dict[str, Any]:
    return {key: getattr(args, key) for key in keys if getattr(args, key) is not None}


def plain(table: Any) -> dict[str, Any]:
    return dict(table.items()) if table else {}


# -- what is read
def check_files(read: Iterable[str], write: str) -> None:
    """Tells before a model is loaded, and before anything is written, what cannot be read, or would be lost."""
    from alchemy.data.files import check_file

    for name in read:
        if name != "-" and is_same(check_file(name), write):
            raise AlchemyError(f"{write} would be written while it is read", hint="give --output another name")


def asked(name: str, prefixes: str) -> Iterator[Iterator[Question]]:
    """What is asked, in blocks: each line, with what its text begins with where there are prefixes."""
    from alchemy.data.files import read_lines

    if not prefixes:
        yield from (((where, {"text": line}) for where, line in lines) for lines in blocks(name))
        return
    begins = read_lines(prefixes)
    for lines in blocks(name):
        yield (_begun(where, line, next(begins, None), prefixes) for where, line in lines)
    for number, _ in begins:
        raise AlchemyError("there is no sentence for this prefix", where=f"{prefixes}:{number}")


def _begun(where: str, line: str, begin: tuple[int, str] | None, prefixes: str) -> Question:
    if begin is None:
        raise AlchemyError(f"{prefixes} has no line for it", where=where, hint="an empty one leaves a text free")
    return where, {"text": line, "prefix": begin[1]}


def blocks(name: str, about: str = "a sentence a line") -> Iterator[Iterator[tuple[str, str]]]:
    """Lines with their places: all of a file, or of standard input those that are there, as soon as they are there."""
    from alchemy.cli.questions import coming_lines, stdin
    from alchemy.data.files import read_lines

    if name != "-":
        yield ((f"{name}:{number}", line) for number, line in read_lines(name))
        return
    if sys.stdin.isatty():
        print(f"{about}, Ctrl-D ends", file=sys.stderr)
    try:
        yield from coming_lines(stdin())
    except OSError as error:
        raise AlchemyError(f"standard input cannot be read: {error.strerror}") from error


# -- what is written
@contextlib.contextmanager
def joined(predictor: Any, args: argparse.Namespace) -> Iterator[None]:
    """Lets the models of further records write together with the first."""
    from alchemy.cli.target import open_target

    with contextlib.ExitStack() as stack:
        for name in args.ensemble:
            target = open_target(argparse.Namespace(**vars(args) | {"target": name, "overrides": []}), quiet=True)
            texts_task(target)
            other = stack.enter_context(opened(target, args))
            for side in ("source", "target"):
                _check_same(name, side, *(getattr(one.run.task, f"{side}_tokenizer") for one in (predictor, other)))
            predictor.run.task.others.append(other.run.model)
        yield


def _check_same(name: str, side: str, ours: Any, other: Any) -> None:
    """An error where the ids of another model stand for other tokens."""
    if ours.digest == other.digest:
        return
    how = f"{other!r}, and that of the first {ours!r}" if repr(ours) != repr(other) else f"{other!r} with other tokens"
    hint = "models write together that were trained on corpora with the same vocabularies"
    raise AlchemyError(f"the tokenizer of the {side} of {name} is {how}", hint=hint)


def written(predictor: Any, questions: Iterable[Question]) -> Iterator[dict[str, Any]]:
    """What is asked with its answer, in order; a text without words is not asked about, and has none."""
    from alchemy.pipeline.processors.samples import is_blank

    waiting: deque[tuple[dict[str, str], bool]] = deque()

    def with_words() -> Iterator[Question]:
        for where, question in questions:
            blank = any(is_blank(question[name]) for name in ("text", "pair") if name in question)
            waiting.append((question, blank))
            if not blank:
                yield where, question

    def blank() -> Iterator[dict[str, Any]]:
        while waiting and waiting[0][1]:
            yield dict(waiting.popleft()[0])

    try:
        for answer in predictor.answers(with_words()):
            yield from blank()
            yield waiting.popleft()[0] | answer
    except AlchemyError:  # of one line: those before it have their answers
        yield from blank()
        raise
    yield from blank()


class _Shape(NamedTuple):
    """How answers are shown."""

    json: bool
    scores: bool
    alignments: bool
    many: bool  # texts for a line: its number stands in front of each
    detokenized: Callable[[str], str]

    def shown(self, row: dict[str, Any], number: int) -> str:
        from alchemy.pipeline.rows import to_json

        row = {"pred": "", "score": 0.0, **row}
        texts = [self.detokenized(text) for text in row.get("nbest", [row["pred"]])]
        scores = row.get("scores", [row["score"]])
        pairs = row.get("alignments", [[]] * len(texts))
        if self.json:
            told = {"source": row["text"], "pred": texts[0], "score": row["score"], "nbest": texts, "scores": scores}
            told |= {name: row.get(name, [[]]) for name in ("tokens", "token_scores")}
            return to_json(told | ({"alignments": pairs} if self.alignments else {})) + "\n"
        front = f"{number}\t" if self.many else ""
        marks = [f"{score:.4f}\t" if self.scores else "" for score in scores]
        behind = ["\t" + " ".join(f"{one}-{other}" for one, other in each) if self.alignments else "" for each in pairs]
        return "".join(f"{front}{mark}{text}{rest}\n" for mark, text, rest in zip(marks, texts, behind, strict=True))


def detokenizer(language: str) -> Callable[[str], str]:
    """Undoes the tokens of Moses; without a language texts stay as they are."""
    from alchemy.text.base import package

    if not language:
        return str
    moses = package("sacremoses", "--detokenize").MosesDetokenizer(lang=language)
    return lambda text: str(moses.detokenize(text.split()))


@contextlib.contextmanager
def output(name: str) -> Iterator[TextIO]:
    if not name:
        yield sys.stdout
        return
    try:
        with open(name, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise AlchemyError(f"{name} cannot be written: {error.strerror}") from error
