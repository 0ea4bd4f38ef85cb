"""`alchemy data build` and `data info`: build and inspect memory-mapped corpora."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import add_json, print_json
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.data.corpus.encoder import EncodedPart
    from alchemy.data.corpus.layout import Manifest
    from alchemy.data.corpus.recipe import Recipe

BUILD = """examples:
  alchemy data build corpus/news news/*.txt.gz                                # words, learned from the text
  alchemy data build corpus/train --side en=train.en --side de=train.de --min-frequency 2
  alchemy data build corpus/dev --side en=dev.en --side de=dev.de --like corpus/train
  alchemy data build corpus/train --side en=train.en --side de=train.de --tokenizer bpe --size 8000 --joined
  alchemy data build corpus/posts posts.jsonl --field body --tokenizer my-tokenizer/"""
INFO = """examples:
  alchemy data info corpus/train.en
  alchemy data info corpus/train.en --verify --json"""
MAX_WORKERS = 16
LEARNING = {"joined": False, "lower": False, "min_frequency": 1, "size": None, "multiple": 1}


def add_build(actions: Any) -> None:
    parser = actions.add_parser("build", help="encode text into a memory-mapped corpus", epilog=BUILD)
    add = parser.add_argument
    add("out", metavar="OUT", help="path prefix: writes OUT.bin, OUT.idx and OUT.json, or OUT.SIDE.* for parallel text")
    add("files", nargs="*", metavar="FILE", help="text, .jsonl, .csv, .tsv or .parquet; may be .gz, .xz, .bz2 or .zst")
    text = "a file for one side of parallel text; repeat for each side and each additional file"
    add("--side", dest="sides", action="append", default=[], metavar="NAME=FILE", help=text)
    text = "words, characters or bpe, learned from the text; or a tokenizer folder (default: words)"
    add("--tokenizer", default="words", metavar="KIND", help=text)
    add("--like", metavar="CORPUS", help="reuse the tokenizers of another corpus, for example for a dev set")
    add("--joined", action="store_true", help="use one vocabulary for all sides")
    add("--lower", action="store_true", help="lowercase the text")
    add("--min-frequency", type=int, default=1, metavar="N", help="treat less frequent words as unknown (default: 1)")
    add("--size", type=int, metavar="N", help="maximum vocabulary size (bpe: 8000)")
    add("--multiple", type=int, default=1, metavar="N", help="pad the vocabulary to a multiple of N (default: 1)")
    add("--no-eos", action="store_true", help="do not append an end-of-sentence token")
    add(
        "--field", default="text", metavar="NAME", help="field to read from jsonl, csv, tsv and parquet (default: text)"
    )
    add("--workers", type=int, metavar="N", help=f"number of processes (default: one per core, at most {MAX_WORKERS})")
    add("--force", action="store_true", help="rebuild even if nothing has changed")
    add_json(parser)


def add_info(actions: Any) -> None:
    parser = actions.add_parser("info", help="show the statistics of a corpus", epilog=INFO)
    parser.add_argument("corpus", metavar="CORPUS", help="path prefix of the corpus, without extension")
    parser.add_argument("--verify", action="store_true", help="read the whole corpus and verify its checksums")
    add_json(parser)


# -- build


def build(args: argparse.Namespace) -> int:
    from alchemy.data.corpus.build import build as build_corpus

    workers = min(len(os.sched_getaffinity(0)), MAX_WORKERS) if args.workers is None else args.workers
    if workers < 1:
        raise AlchemyError(f"--workers must be at least 1, got {workers}")
    recipe, begin = _build_recipe(args), time.perf_counter()
    built = 0

    def count(part: EncodedPart) -> None:
        nonlocal built
        built += part.sentences
        show(part)

    with _progress(recipe) as show:
        manifests = build_corpus(recipe, workers=workers, force=args.force, on_part=count)
    seconds = time.perf_counter() - begin
    if args.json:
        print_json({str(recipe.name(side)): _plain(manifest) for side, manifest in manifests.items()})
        return 0
    for side, manifest in manifests.items():
        print(_summary(recipe.name(side), manifest))
    print(
        f"{built:,} line{'s' * (built != 1)} in {seconds:.1f} s, {built / seconds:,.0f} lines/s"
        if built
        else "nothing has changed"
    )
    return 0


def _build_recipe(args: argparse.Namespace) -> Recipe:
    from alchemy.data.corpus.recipe import KINDS, Recipe

    sides: dict[str, list[str]] = {"": args.files} if args.files else {}
    for text in args.sides:
        name, equals, path = text.partition("=")
        if not equals or not name.isidentifier() or not path:
            raise AlchemyError(f"invalid --side {text!r}", hint="expected NAME=FILE, for example --side en=train.en")
        sides.setdefault(name, []).append(path)
    if args.files and args.sides:
        raise AlchemyError("cannot mix files with and without a side", hint="pass every file as --side NAME=FILE")
    if args.like and args.tokenizer != "words":
        raise AlchemyError("--like cannot be combined with --tokenizer", hint="leave out one of them")
    tokenizer: Any = args.tokenizer
    if args.like:
        tokenizer = {side: f"{args.like}{f'.{side}' if side else ''}.tokenizer" for side in sides}
    elif args.tokenizer not in KINDS and os.path.isdir(args.tokenizer):
        tokenizer = dict.fromkeys(sides, args.tokenizer)
    learning = [f"--{name.replace('_', '-')}" for name, value in LEARNING.items() if getattr(args, name) != value]
    if not isinstance(tokenizer, str) and learning:
        hint = "leave it out: this tokenizer is already trained"
        raise AlchemyError(f"{learning[0]} only applies to a tokenizer learned from the text", hint=hint)
    if args.like:
        _check_tokenizers(args.like, map(Path, tokenizer.values()))
    return Recipe(
        out=Path(args.out),
        sides=sides,
        tokenizer=tokenizer,
        joined=args.joined,
        lower=args.lower,
        min_frequency=args.min_frequency,
        size=args.size,
        multiple=args.multiple,
        eos=not args.no_eos,
        field=args.field,
    )


def _check_tokenizers(corpus: str, folders: Iterable[Path]) -> None:
    """Raise an error if the `--like` corpus is missing a tokenizer for a side."""
    for folder in folders:
        if not folder.is_dir():
            found = sorted(path.name.removesuffix(".tokenizer") for path in folder.parent.glob("*.tokenizer"))
            hint = f"name its sides with --side NAME=FILE; available: {', '.join(found[:8])}" if found else ""
            raise AlchemyError(f"--like {corpus}: folder not found: {str(folder)!r}", hint=hint)


@contextlib.contextmanager
def _progress(recipe: Recipe) -> Iterator[Callable[[EncodedPart], None]]:
    """Show a progress bar on a terminal. The total is unknown for compressed text."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from alchemy.data.corpus.text_sources import text_bytes
    from alchemy.data.files import expand

    sizes = [text_bytes(path) for paths in recipe.sides.values() for path in expand(list(paths))]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    begin, tokens = time.perf_counter(), 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("encoding", total=total, speed="")

        def advance(part: EncodedPart) -> None:
            nonlocal tokens
            tokens += part.tokens
            rate = tokens / max(time.perf_counter() - begin, 1e-9)
            bar.update(task, advance=part.size, speed=f"{tokens:,} tokens  {rate:,.0f} tokens/s")

        yield advance


def _summary(name: Path, manifest: Manifest) -> str:
    rate = manifest.unknown / max(manifest.tokens, 1)
    return (
        f"{name}  {manifest.sentences:,} sentences  {manifest.tokens:,} tokens  vocabulary {manifest.vocabulary:,}  "
        f"unknown {rate:.2%}  {manifest.dtype}"
    )


# -- info


def info(args: argparse.Namespace) -> int:
    from alchemy.data.corpus.info import collect_stats, verify
    from alchemy.data.corpus.mapped_corpus import Corpus

    corpus = Corpus(args.corpus)
    found = collect_stats(corpus) | ({"files": verify(corpus)} if args.verify else {})
    if args.json:
        print_json(found)
    else:
        print("\n".join(_info_lines(found)))
    return 0


def _info_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"sentences   {found['sentences']:,}"
    yield f"tokens      {found['tokens']:,}, {found['mean']:.1f} per sentence, median {found['median']:g}"
    yield f"vocabulary  {found['vocabulary']:,}, as {found['dtype']}"
    yield f"unknown     {found['unknown']:,} tokens, {found['unknown_rate']:.2%}"
    for source in found["sources"]:
        yield f"source      {source['path']}, {source['lines']:,} lines, sha256 {source['sha256'][:12]}"
    if "files" in found:
        yield f"files       {found['files']}"
    most = max((row["sentences"] for row in found["histogram"]), default=1)
    yield "length"
    for row in found["histogram"]:
        bar = "#" * max(1, round(40 * row["sentences"] / most))
        yield f"  {row['from']:>6,} - {row['to']:<6,} {row['sentences']:>12,}  {bar}"
    yield "longest"
    for row in found["longest"]:
        yield f"  {row['tokens']:>6,} tokens  {row['where']}"


def _plain(manifest: Manifest) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(manifest)
