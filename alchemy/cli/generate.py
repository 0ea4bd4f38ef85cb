"""`alchemy generate`: translate the lines of a file with a trained model, in order."""

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
BEAM_KEYS = ("beam", "exact", "groups", "diversity")
SAMPLING_KEYS = ("temperature", "top_k", "top_p", "typical", "seed")
SEARCH_KEYS = (*BEAM_KEYS, "nbest", "length_penalty", *SAMPLING_KEYS)
LIMIT_KEYS = ("max_length", "max_ratio", "max_extra", "min_length", "min_ratio", "no_repeat", "unk_penalty")

EXAMPLES = """examples:
  alchemy generate latest --input test.en --output test.de --beam 5
  alchemy generate latest --input test.en --nbest 3 --scores --alignments
  alchemy generate records/a --ensemble records/b --ensemble records/c --input test.en
  alchemy generate latest --sample --top-p 0.9 --seed 7 --input test.en
  echo "a dog runs" | alchemy generate latest
  alchemy generate latest                                   # interactive; end with Ctrl-D"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("--input", default="-", metavar="FILE", help="input file, one sentence per line; - is standard input (default)")
    add("--output", default="", metavar="FILE", help="output file (default: standard output)")
    add("--prefixes", default="", metavar="FILE", help="forced output prefixes, one per line; lines may be empty")
    add(
        "--ensemble",
        action="append",
        default=[],
        metavar="RECORD",
        help="additional model for an ensemble; may be repeated",
    )
    add("--batch-size", type=int, default=64, metavar="N", help="number of sentences per batch (default: 64)")
    add("--engine", choices=["torch", "ctranslate2"], default="torch", help="inference engine (default: torch)")
    add_precision(parser)
    _add_shape(parser.add_argument_group("output").add_argument)
    _add_search(parser.add_argument_group("search", "defaults come from the config").add_argument)
    add_overrides(parser)
    add_launch(parser)


def _add_shape(add: Callable[..., argparse.Action]) -> None:
    add("--scores", action="store_true", help="print the score and a tab before each output")
    text = "print a tab and word alignments (source-target) such as 0-0 1-2 after each output"
    add("--alignments", action="store_const", const="words", default="", help=text)
    add(
        "--token-alignments",
        action="store_const",
        const="tokens",
        dest="alignments",
        help="like --alignments, but for tokens",
    )
    add("--detokenize", default="", metavar="LANG", help="undo the Moses tokenization of a language: de, en, ..")
    add("--json", action="store_true", help="print one JSON object per line, with all outputs, scores and tokens")


def _add_search(add: Callable[..., argparse.Action]) -> None:
    add("--beam", type=int, metavar="N", help="beam size")
    add("--nbest", type=int, metavar="N", help="number of outputs per sentence; each is preceded by its line number")
    add("--length-penalty", type=float, metavar="X", help="divide scores by length ** X")
    add("--exact", action="store_const", const=True, help="search until no better hypothesis is possible")
    add("--groups", type=int, metavar="N", help="number of groups for diverse beam search")
    add("--diversity", type=float, metavar="X", help="penalty for tokens chosen by another group")
    add("--sample", action="store_true", help="sample tokens instead of using beam search")
    add("--temperature", type=float, metavar="X", help="sampling temperature; 0 always picks the most likely token")
    add("--top-k", type=int, metavar="N", help="sample from the N most likely tokens")
    add("--top-p", type=float, metavar="X", help="sample from the smallest set of tokens with this total probability")
    add("--typical", type=float, metavar="X", help="like --top-p, but ordered by typicality (typical sampling)")
    add("--seed", type=int, metavar="N", help="random seed for sampling")
    add("--max-length", type=int, metavar="N", help="maximum number of tokens")
    add("--max-ratio", type=float, metavar="X", help="maximum length relative to the source, plus --max-extra")
    add("--max-extra", type=int, metavar="N", help="tokens added to --max-ratio times the source length")
    add("--min-length", type=int, metavar="N", help="minimum number of tokens")
    add("--min-ratio", type=float, metavar="X", help="minimum length relative to the source")
    add("--no-repeat", type=int, metavar="N", help="forbid repeated n-grams of N tokens")
    add("--unk-penalty", type=float, metavar="X", help="penalty for unknown words")


def _main(args: argparse.Namespace) -> int:
    from alchemy.cli.target import open_target

    check_files([name for name in (args.input, args.prefixes) if name not in ("", "-")], args.output)
    _check_options(args)
    detokenize = build_detokenizer(args.detokenize)
    target = open_target(args, quiet=True)
    table = get_task_table(target)
    search_table, limits_table = table.table("search"), table.table("limits")
    table["search"] = search = _merge_search(args, dict(search_table))
    table["limits"] = dict(limits_table) | _given_options(args, LIMIT_KEYS)
    _check_tables(args, table, {"search": search_table, "limits": limits_table})
    shape = _Shape(args.json, args.scores, bool(args.alignments), search.get("nbest", 1) != 1, detokenize)
    table["tokens"], table["alignments"] = args.json, args.alignments
    with (
        open_predictor(target, args) as predictor,
        _open_ensemble(predictor, args),
        use_engine(predictor.run, target, args),
        open_output(args.output) as out,
    ):
        numbers = itertools.count(1)
        for inputs in _read_inputs(args.input, args.prefixes):
            rows = predict_inputs(predictor, inputs, skip_blank=True)
            for entry, prediction in show_progress(rows) if args.output else rows:
                out.write(shape.render(entry.row | prediction, next(numbers)))
            out.flush()
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise an error for conflicting options before the model is loaded."""
    if args.engine != "torch" and (args.prefixes or args.ensemble):
        alone = "--prefixes" if args.prefixes else "--ensemble"
        raise AlchemyError(f"{alone} requires --engine torch, got {args.engine}", hint="leave out one of them")


def get_task_table(target: Trained) -> Table:
    """Return the [task] table; raise an error if the task does not generate text."""
    from alchemy.config.tree import Table
    from alchemy.task import AlchemyTask

    table = target.document.get("task")
    if not isinstance(table, Table) or not isinstance(table.get("type"), str):
        raise AlchemyError("the config has no [task] with a 'type'", where=target.document.where())
    kind = AlchemyTask.resolve_registered_module(table["type"])
    if not (issubclass(kind, AlchemyTask) and kind.writes_texts):
        hint = "use `alchemy predict` for other tasks"
        raise AlchemyError(f"{table['type']} does not generate text", section="task", hint=hint)
    return table


def _merge_search(args: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """Return the search table of the config, updated with the command-line options."""
    given = _given_options(args, SEARCH_KEYS)
    drawn, searched = (
        [f"--{key.replace('_', '-')}" for key in keys if key in given] for keys in (SAMPLING_KEYS, BEAM_KEYS)
    )
    if searched and args.sample:
        raise AlchemyError(
            f"{searched[0]} applies to beam search, not to --sample", hint="--nbest sets the number of outputs"
        )
    own = table.get("type", BEAM)
    kind = SAMPLING if args.sample else BEAM if searched and own == SAMPLING else own
    if drawn and kind == BEAM:
        raise AlchemyError(f"{drawn[0]} requires --sample", hint="add --sample")
    merged = {"type": kind} | (table if own == kind else {}) | given
    if kind == BEAM and args.nbest and "beam" not in given:
        merged["beam"] = max(args.nbest, merged.get("beam", 5))
    return merged


def _check_tables(args: argparse.Namespace, table: Table, before: Mapping[str, Table]) -> None:
    """Raise an error for an invalid value before the model is loaded, naming the option or the config line."""
    from alchemy.generate import Limits, Search
    from alchemy.registry import build, construct

    given = _given_options(args, (*SEARCH_KEYS, *LIMIT_KEYS))
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


def _given_options(args: argparse.Namespace, keys: Iterable[str]) -> dict[str, Any]:
    return {key: vars(args)[key] for key in keys if vars(args)[key] is not None}


def _read_inputs(name: str, prefixes: str) -> Iterator[Iterator[InputRow]]:
    """Yield the input lines in blocks, each with its prefix, if any."""
    from alchemy.data.files import read_lines

    if not prefixes:
        yield from ((InputRow(where, {"text": line}) for where, line in lines) for lines in read_blocks(name))
        return
    prefix_lines = read_lines(prefixes)
    for lines in read_blocks(name):
        yield (_add_prefix(where, line, next(prefix_lines, None), prefixes) for where, line in lines)
    for number, _ in prefix_lines:
        raise AlchemyError("no sentence for this prefix", where=f"{prefixes}:{number}")


def _add_prefix(where: str, line: str, prefix: tuple[int, str] | None, prefixes: str) -> InputRow:
    if prefix is None:
        raise AlchemyError(
            f"{prefixes} has no line for this sentence", where=where, hint="an empty line means no prefix"
        )
    return InputRow(where, {"text": line, "prefix": prefix[1]})


@contextlib.contextmanager
def _open_ensemble(predictor: Predictor, args: argparse.Namespace) -> Iterator[None]:
    """Add the models of the --ensemble records to the first one."""
    from alchemy.cli.target import open_target

    with contextlib.ExitStack() as stack:
        for name in args.ensemble:
            target = open_target(argparse.Namespace(**vars(args) | {"target": name, "overrides": []}), quiet=True)
            get_task_table(target)
            other = stack.enter_context(open_predictor(target, args))
            first, task = (cast("Translation", one.run.task) for one in (predictor, other))
            _check_same_tokenizer(name, "source", first.source_tokenizer, task.source_tokenizer)
            _check_same_tokenizer(name, "target", first.target_tokenizer, task.target_tokenizer)
            first.others.append(other.run.model)
        yield


def _check_same_tokenizer(name: str, side: str, ours: Tokenizer, other: Tokenizer) -> None:
    """Raise an error if another model maps token ids to different tokens."""
    if ours.digest == other.digest:
        return
    how = f"{other!r}, expected {ours!r}" if repr(ours) != repr(other) else f"{other!r} with different tokens"
    hint = "all models of an ensemble must be trained with the same vocabularies"
    raise AlchemyError(f"the {side} tokenizer of {name} is {how}", hint=hint)


class _Shape(NamedTuple):
    """The output format of predictions."""

    json: bool
    scores: bool
    alignments: bool
    many: bool  # several outputs per line: prefix each with the line number
    detokenize: Callable[[str], str]

    def render(self, row: dict[str, Any], number: int) -> str:
        from alchemy.pipeline.output_rows import to_json

        row = {"pred": "", "score": 0.0, **row}
        texts = [self.detokenize(text) for text in row.get("nbest", [row["pred"]])]
        scores = row.get("scores", [row["score"]])
        pairs = row.get("alignments", [[]] * len(texts))
        if self.json:
            data = {"source": row["text"], "pred": texts[0], "score": row["score"], "nbest": texts, "scores": scores}
            data |= {name: row.get(name, [[]]) for name in ("tokens", "token_scores")}
            return to_json(data | ({"alignments": pairs} if self.alignments else {})) + "\n"
        start = f"{number}\t" if self.many else ""
        marks = [f"{score:.4f}\t" if self.scores else "" for score in scores]
        ends = ["\t" + " ".join(f"{one}-{other}" for one, other in each) if self.alignments else "" for each in pairs]
        return "".join(f"{start}{mark}{text}{end}\n" for mark, text, end in zip(marks, texts, ends, strict=True))


def build_detokenizer(language: str) -> Callable[[str], str]:
    """Return a function that undoes Moses tokenization, or `str` if no language is given."""
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
        raise AlchemyError(f"cannot write {name}: {error.strerror}") from error


COMMAND = Command(_arguments, _main, EXAMPLES)
