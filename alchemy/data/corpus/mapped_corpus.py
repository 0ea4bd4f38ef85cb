"""Memory-mapped corpora."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.corpus.layout import IDS, OFFSETS, corpus_path, map_file, read_manifest
from alchemy.data.corpus.sentences import Sentences
from alchemy.data.corpus.text_sources import has_lines
from alchemy.errors import AlchemyError
from alchemy.text.base import Tokenizer, load_tokenizer

CHUNK = 2**20


class Corpus(Sentences):
    """A memory-mapped list of sentences. Opening it takes constant time.

    Sentences are views of the file, not copies. Each worker, forked or spawned, maps the file itself.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(path)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "manifest": self.manifest}  # memory maps are not pickled

    @functools.cached_property
    def _files(self) -> tuple[np.ndarray, np.ndarray]:
        """The mapped files, checked against the manifest in case the corpus was rebuilt in the meantime."""
        ids = map_file(corpus_path(self.path, IDS), np.dtype(self.manifest.dtype), self.manifest.tokens)
        offsets = map_file(corpus_path(self.path, OFFSETS), np.dtype(np.int64), self.manifest.sentences + 1)
        if read_manifest(self.path) != self.manifest:
            raise AlchemyError(f"{self.path} was rebuilt after it was opened", hint="start the run again")
        return ids, offsets

    @property
    def ids(self) -> np.ndarray:
        """The ids of all sentences, concatenated."""
        return self._files[0]

    @property
    def offsets(self) -> np.ndarray:
        """The start of each sentence, followed by the end of the last one."""
        return self._files[1]

    @property
    def end(self) -> int | None:
        return self.manifest.eos if self.has_ends else None

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each sentence."""
        lengths = np.empty(len(self), np.uint16 if self.manifest.longest < 2**16 else np.int64)
        for begin in range(0, len(self), CHUNK):  # the offsets of a large corpus may not fit into memory
            steps = np.diff(self.offsets[begin : begin + CHUNK + 1])
            if steps.min(initial=0) < 0 or steps.max(initial=0) > self.manifest.longest:
                raise AlchemyError(f"{corpus_path(self.path, OFFSETS)} is damaged", hint="build the corpus again")
            lengths[begin : begin + CHUNK] = steps
        return lengths

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that produced the ids, stored next to them; None if another program wrote the corpus."""
        saved = self.manifest.tokenizer
        if not saved:
            return None
        folder = self.path.parent / saved["folder"]
        if not folder.is_dir():
            hint = "copy it along with the corpus, or build the corpus again"
            raise AlchemyError(f"the tokenizer of {self.path} is missing: folder not found: {folder}", hint=hint)
        tokenizer = load_tokenizer(folder)
        if tokenizer.digest != saved["digest"]:
            raise AlchemyError(
                f"{folder} is not the tokenizer that {self.path} was built with", hint="build the corpus again"
            )
        return tokenizer

    def __len__(self) -> int:
        return self.manifest.sentences

    def where(self, index: int) -> str:
        """Return the source file and line of a sentence, or its number if the file has fields instead of lines."""
        line = index
        for source in self.manifest.sources:
            if line < source["lines"]:
                lines = has_lines(Path(source["path"]))
                return f"{source['path']}:{line + 1}" if lines else f"{source['path']}, sentence {line + 1}"
            line -= source["lines"]
        return f"{self.path}, sentence {index}"

    @property
    def has_ends(self) -> bool:
        """Whether each sentence ends with an end-of-sentence token."""
        return bool(self.manifest.options.get("eos"))
