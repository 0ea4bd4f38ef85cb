"""`alchemy data build` and `data info`: corpora that are larger than memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import print_json
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.data.corpus.encoder import EncodedPart
    from alchemy.data.corpus.layout import Manifest
    from alchemy.data.corpus.recipe import Recipe

BUILD = """examples:
  alchemy data build corpus/news news/*.txt.gz                                # words, learnt from the text
  alchemy data build corpus/train --side en=train.en --side de=train.de --min-frequency 2
  alchemy data build corpus/dev --side en=dev.en --side de=dev.de --like corpus/train
  alchemy data build corpus/train --side en=train.en --side de=train.de --tokenizer bpe --size 8000 --joined
  alchemy data build corpus/posts posts.jsonl --field body --tokenizer my-tokenizer/"""
INFO = """examples:
  alchemy data info corpus/train.en
  alchemy data info corpus/train.en --verify --json"""
MOST_WORKERS = 16
LEARNING = {"joined": False, "lower": False, "min_frequency": 1, "size": None, "multiple": 1}


def add_build(actions: Any) -> None:
    parser = actions.add_parser("build", help="encode text into a corpus that is read in place", epilog=BUILD)
    add = parser.add_argument
    add("out", metavar="OUT", help="name of the corpus: OUT.bin, OUT.idx, OUT.json, or OUT.SIDE.* of parallel text")
    add("files", nargs="*", metavar="FILE", help="text, .jsonl, .csv, .tsv or .parquet; .gz, .xz, .bz2, .zst too")
    text = "a side of parallel text; again for each side, and for more files of one"
    add("--side", dest="sides", action="append", default=[], metavar="NAME=FILE", help=text)
    text = "words, characters or bpe, learnt from the text; or the folder of a tokenizer (default: words)"
    add("--tokenizer", default="words", metavar="KIND", help=text)
    add("--like", metavar="CORPUS", help="take the tokenizers of another corpus, as a dev set has to")
    add("--joined", action="store_true", help="one vocabulary for all sides")
    add("--lower", action="store_true", help="in lower case")
    add("--min-frequency", type=int, default=1, metavar="N", help="words seen less often are unknown (default: 1)")
    add("--size", type=int, metavar="N", help="the most that a vocabulary may have (bpe: 8000)")
    add("--multiple", type=int, default=1, metavar="N", help="fill the vocabulary up to a multiple (default: 1)")
    add("--no-eos", action="store_true", help="sentences without a token for their end")
    add("--field", default="text", metavar="NAME", help="the field of jsonl, csv, tsv and parquet (default: text)")
    add("--workers", type=int, metavar="N", help=f"processes (default: one for each core, {MOST_WORKERS} at most)")
    add("--force", action="store_true", help="build it again, though nothing has changed")
    add("--json", action="store_true", help="print JSON")


def add_info(actions: Any) -> None:
    parser = actions.add_parser("info", help="what is in a corpus", epilog=INFO)
    parser.add_argument("corpus", metavar="CORPUS", help="name of a corpus, without its endings")
    parser.add_argument("--verify", action="store_true", help="read all of it, and compare it with what was written")
    parser.add_argument("--json", action="store_true", help="print JSON")


# -- building


def build(args: argparse.Namespace) -> int:
    from alchemy.data.corpus.build import build as build_corpus

    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS) if args.workers is None else args.workers
    if workers < 1:
        raise AlchemyError(f"--workers {workers}", hint="give 1 or more")
    recipe, begin = _recipe(args), time.perf_counter()
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
        f"{built:,} line{'s' * (built != 1)} in {seconds:.1f} s, {built / seconds:,.0f} a second"
        if built
        else "nothing has changed"
    )
    return 0


def _recipe(args: argparse.Namespace) -> Recipe:
    from alchemy.data.corpus.recipe import KINDS, Recipe

    sides: dict[str, list[str]] = {"": args.files} if args.files else {}
    for text in args.sides:
        name, equals, path = text.partition("=")
        if not equals or not name.isidentifier() or not path:
            raise AlchemyError(f"--side {text!r}", hint="write NAME=FILE, as --side en=train.en")
        sides.setdefault(name, []).append(path)
    if args.files and args.sides:
        raise AlchemyError("files are given with and without a side", hint="give each its --side NAME=FILE")
    if args.like and args.tokenizer != "words":
        raise AlchemyError("--like brings its tokenizers along", hint="leave out --tokenizer, or --like")
    tokenizer: Any = args.tokenizer
    if args.like:
        tokenizer = {side: f"{args.like}{f'.{side}' if side else ''}.tokenizer" for side in sides}
    elif args.tokenizer not in KINDS and os.path.isdir(args.tokenizer):
        tokenizer = dict.fromkeys(sides, args.tokenizer)
    learning = [f"--{name.replace('_', '-')}" for name, value in LEARNING.items() if getattr(args, name) != value]
    if not isinstance(tokenizer, str) and learning:
        hint = "leave it out: what is learnt is learnt already"
        raise AlchemyError(f"{learning[0]} is for a tokenizer that is learnt from the text", hint=hint)
    if args.like:
        _check_there(args.like, map(Path, tokenizer.values()))
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


def _check_there(corpus: str, folders: Iterable[Path]) -> None:
    """The corpus whose tokenizers are taken must have the sides that are built."""
    for folder in folders:
        if not folder.is_dir():
            there = sorted(path.name.removesuffix(".tokenizer") for path in folder.parent.glob("*.tokenizer"))
            hint = f"its sides are given as --side NAME=FILE; there are {', '.join(there[:8])}" if there else ""
            raise AlchemyError(f"--like {corpus}: there is no folder {str(folder)!r}", hint=hint)


@contextlib.contextmanager
def _progress(recipe: Recipe) -> Iterator[Callable[[EncodedPart], None]]:
    """A bar with speed and time left, for those who look; the size of packed text is not known beforehand."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from alchemy.data.corpus.text_sources import text_bytes
    from alchemy.data.files import expand

    sizes = [text_bytes(path) for paths in recipe.sides.values() for path in expand(list(paths))]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    begin, tokens = time.perf_counter(), 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("encoding", total=total, told="")

        def tell(part: EncodedPart) -> None:
            nonlocal tokens
            tokens += part.tokens
            rate = tokens / max(time.perf_counter() - begin, 1e-9)
            bar.update(task, advance=part.size, told=f"{tokens:,} tokens  {rate:,.0f} tokens/s")

        yield tell


def _summary(name: Path, manifest: Manifest) -> str:
    rate = manifest.unknown / max(manifest.tokens, 1)
    return (
        f"{name}  {manifest.sentences:,} sentences  {manifest.tokens:,} tokens  vocabulary {manifest.vocabulary:,}  "
        f"unknown {rate:.2%}  {manifest.dtype}"
    )


# -- looking


def info(args: argparse.Namespace) -> int:
    from alchemy.data.corpus.info import collect_stats, verify
    from alchemy.data.corpus.mapped_corpus import Corpus

    corpus = Corpus(args.corpus)
    found = collect_stats(corpus) | ({"files": verify(corpus)} if args.verify else {})
    if args.json:
        print_json(found)
    else:
        print("\n".join(_told(found)))
    return 0


def _told(found: dict[str, Any]) -> Iterator[str]:
    yield f"sentences   {found['sentences']:,}"
    yield f"tokens      {found['tokens']:,}, {found['mean']:.1f} a sentence, median {found['median']:g}"
    yield f"vocabulary  {found['vocabulary']:,}, as {found['dtype']}"
    yield f"unknown     {found['unknown']:,} tokens, {found['unknown_rate']:.2%}"
    for source in found["sources"]:
        yield f"from        {source['path']}, {source['lines']:,} lines, sha256 {source['sha256'][:12]}"
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
