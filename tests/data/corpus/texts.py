"""Small texts, and the corpora that tests build from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from alchemy.data.corpus.build import build
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.recipe import Recipe
from alchemy.text import load_tokenizer

TEXT = ["the dog barks", "", "a dog", "the the the", "ein Hund bellt ä", "x y z"]
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=4)
LINES = st.lists(st.lists(WORD, max_size=6).map(" ".join), min_size=1, max_size=40)


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="")
    return path


def one(out: Path, *files: Path, workers: int = 1, **options: Any) -> Corpus:
    build(Recipe(out, {"": files}, **options), workers=workers)
    return Corpus(out)


def texts(corpus: Corpus) -> list[str]:
    """Return the sentences, decoded with the tokenizer of the corpus."""
    tokenizer = load_tokenizer(corpus.path.with_name(corpus.manifest.tokenizer["folder"]))
    return [tokenizer.decode(ids) for ids in corpus]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }
