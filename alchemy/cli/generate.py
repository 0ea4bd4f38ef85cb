"""`alchemy generate`: what a trained model writes for each line of a file, in the order of the lines."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

from alchemy.cli.export import add_precision, use_engine
from alchemy.cli.options import Command, add_launch, add_overrides, add_target
from alchemy.cli.predict_inputs import InputRow, check_files, open_predictor, predict_inputs, read_blocks, show_progress
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.cli.target import Trained
    from alchemy.config.tree import Table
    from alchemy.predictor import Predictor
    from alchemy.tasks.translation import Translation
    from alchemy.text import Tokenizer

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


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--input", default="-", metavar="FILE", help="a sentence a line; - is standard input (default)")
    add("--output", default="", metavar="FILE", help="where the texts go (default: standard output)")
    add("--prefixes", default="", metavar="FILE", help="what each text begins with, a line for each; it may be empty")
    add("--ensemble", action="append", default=[], metavar="RECORD", help="a model that writes along; may be repeated")
    add("--batch-size", type=int, default=64, metavar="N", help="sentences that are read together (default: 64)")
    add("--engine", choices=["torch", "ctranslate2"], default="torch", help="what writes the texts (default: torch)")
    add_precision(parser)
    _add_shape(parser.add_argument_group("output").add_argument)
    _add_search(parser.add_argument_group("search", "what the config says, unless it is told here").add_argument)
    add_overrides(parser)
    add_launch(parser)


def _add_shape(add: Callable[..., argparse.Action]) -> None:
    add("--scores", action="store_true", help="the score of each text in front of it, and a tab")
    about = "behind a tab pairs such as 0-0 1-2: a word of the source, and of the text"
    add("--alignments", action="store_const", const="words", default="", help=about)
    add("--token-alignments", action="store_const", const="tokens", dest="alignments", help="the same, of tokens")
    add("--detokenize", default="", metavar="LANG", help="undo the tokens of Moses: de, en, ..")
    add("--json", action="store_true", help="an object a line, with all texts, their scores and their tokens")


def _add_search(add: Callable[..., argparse.Action]) -> None:
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


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target

    check_files([name for name in (args.input, args.prefixes) if name not in ("", "-")], args.output)
    _refuse_if_unclear(args)
    detokenized = build_detokenizer(args.detokenize)
    target = open_target(args, quiet=True)
    table = get_task_table(target)
    there, bounds = table.table("search"), table.table("limits")
    table["search"] = search = _search_of(args, dict(there))
    table["limits"] = dict(bounds) | _given(args, LIMITS)
    _check_tables(args, table, {"search": there, "limits": bounds})
    shape = _Shape(args.json, args.scores, bool(args.alignments), search.get("nbest", 1) != 1, detokenized)
    table["tokens"], table["alignments"] = args.json, args.alignments
    with (
        open_predictor(target, args) as predictor,
        _joined(predictor, args),
        use_engine(predictor.run, target, args),
        open_output(args.output) as out,
    ):
        numbers = itertools.count(1)
        for questions in _asked(args.input, args.prefixes):
            rows = predict_inputs(predictor, questions, skip_blank=True)
            for question, answer in show_progress(rows) if args.output else rows:
                out.write(shape.shown(question.row | answer, next(numbers)))
            out.flush()
    return 0


def _refuse_if_unclear(args: argparse.Namespace) -> None:
    """Options that do not go together are told before the model is loaded."""
    if args.engine != "torch" and (args.prefixes or args.ensemble):
        alone = "--prefixes" if args.prefixes else "--ensemble"
        raise AlchemyError(f"{alone} is for --engine torch, not {args.engine}", hint="leave out one of them")


def get_task_table(target: Trained) -> Table:
    """The table of a task that writes texts; any other is refused, before it meets keys that it does not take."""
    from alchemy.config.tree import Table
    from alchemy.task import AlchemyTask

    table = target.document.get("task")
    if not isinstance(table, Table) or not isinstance(table.get("type"), str):
        raise AlchemyError("the config has no [task] with a 'type'", where=target.document.where())
    kind = AlchemyTask.resolve_registered_module(table["type"])
    if not (issubclass(kind, AlchemyTask) and kind.writes_texts):
        hint = "`alchemy predict` answers for other tasks"
        raise AlchemyError(f"{table['type']} writes no texts", section="task", hint=hint)
    return table


def _search_of(args: argparse.Namespace, there: dict[str, Any]) -> dict[str, Any]:
    """The table of the search: that of the config, with what the command line says."""
    asked = _given(args, SEARCH)
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


def _check_tables(args: argparse.Namespace, table: Table, before: Mapping[str, Table]) -> None:
    """An error before the model is loaded, with the option that set a wrong value, or else the line of the config."""
    from alchemy.generate import Limits, Search
    from alchemy.registry import build, construct

    given = _given(args, (*SEARCH, *LIMITS))
    for name, make in (("search", partial(build, Search)), ("limits", partial(construct, Limits))):
        try:
            make(table[name])
        except AlchemyError as error:
            named = [key for key in table[name] if re.search(rf"\b{re.escape(key)}\b", error.problem.message)]
            places = [f"--{key.replace('_', '-')} {given[key]}" for key in named if key in given]
            places = places or [before[name].where(key) for key in named[:1]]
            raise AlchemyError(
                error.problem.message, where=" ".join(places), section=f"task.{name}", hint=error.problem.hint
            ) from error


def _given(args: argparse.Namespace, keys: Iterable[str]) -> dict[str, Any]:
    return {key: vars(args)[key] for key in keys if vars(args)[key] is not None}


def _asked(name: str, prefixes: str) -> Iterator[Iterator[InputRow]]:
    """What is asked, in blocks: each line, with what its text begins with where there are prefixes."""
    from alchemy.data.files import read_lines

    if not prefixes:
        yield from ((InputRow(where, {"text": line}) for where, line in lines) for lines in read_blocks(name))
        return
    begins = read_lines(prefixes)
    for lines in read_blocks(name):
        yield (_begun(where, line, next(begins, None), prefixes) for where, line in lines)
    for number, _ in begins:
        raise AlchemyError("there is no sentence for this prefix", where=f"{prefixes}:{number}")


def _begun(where: str, line: str, begin: tuple[int, str] | None, prefixes: str) -> InputRow:
    if begin is None:
        raise AlchemyError(f"{prefixes} has no line for it", where=where, hint="an empty one leaves a text free")
    return InputRow(where, {"text": line, "prefix": begin[1]})


@contextlib.contextmanager
def _joined(predictor: Predictor, args: argparse.Namespace) -> Iterator[None]:
    """Lets the models of further records write together with the first."""
    from alchemy.cli.target import open_target

    with contextlib.ExitStack() as stack:
        for name in args.ensemble:
            target = open_target(argparse.Namespace(**vars(args) | {"target": name, "overrides": []}), quiet=True)
            get_task_table(target)
            other = stack.enter_context(open_predictor(target, args))
            first, task = (cast("Translation", one.run.task) for one in (predictor, other))
            _check_same(name, "source", first.source_tokenizer, task.source_tokenizer)
            _check_same(name, "target", first.target_tokenizer, task.target_tokenizer)
            first.others.append(other.run.model)
        yield


def _check_same(name: str, side: str, ours: Tokenizer, other: Tokenizer) -> None:
    """An error where the ids of another model stand for other tokens."""
    if ours.digest == other.digest:
        return
    how = f"{other!r}, and that of the first {ours!r}" if repr(ours) != repr(other) else f"{other!r} with other tokens"
    hint = "models write together that were trained on corpora with the same vocabularies"
    raise AlchemyError(f"the tokenizer of the {side} of {name} is {how}", hint=hint)


class _Shape(NamedTuple):
    """How answers are shown."""

    json: bool
    scores: bool
    alignments: bool
    many: bool  # texts for a line: its number stands in front of each
    detokenized: Callable[[str], str]

    def shown(self, row: dict[str, Any], number: int) -> str:
        from alchemy.pipeline.output_rows import to_json

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


def build_detokenizer(language: str) -> Callable[[str], str]:
    """Undoes the tokens of Moses; without a language texts stay as they are."""
    from alchemy.optional_packages import import_package

    if not language:
        return str
    moses = import_package("sacremoses", "--detokenize").MosesDetokenizer(lang=language)
    return lambda text: str(moses.detokenize(text.split()))


@contextlib.contextmanager
def open_output(name: str) -> Iterator[TextIO]:
    if not name:
        yield sys.stdout
        return
    try:
        with open(name, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise AlchemyError(f"{name} cannot be written: {error.strerror}") from error


COMMAND = Command(_arguments, _main, EXAMPLES)
