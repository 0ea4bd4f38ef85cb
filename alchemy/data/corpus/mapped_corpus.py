"""A corpus as a list of sentences that stay on the disk until somebody looks at them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.corpus.layout import IDS, OFFSETS, beside, mapped, read_manifest
from alchemy.data.corpus.sentences import Sentences
from alchemy.data.corpus.text_sources import has_lines
from alchemy.errors import AlchemyError
from alchemy.text.base import Tokenizer, load_tokenizer

CHUNK = 2**20


class Corpus(Sentences):
    """Sentences in files. Opening it costs the same for ten sentences and for a hundred million.

    A sentence, and a slice of them, is a view of the file: nothing is copied. Workers, forked or spawned, map the file
    themselves.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(path)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "manifest": self.manifest}  # what is mapped does not travel

    @functools.cached_property
    def _files(self) -> tuple[np.ndarray, np.ndarray]:
        """Both at once, and only if they still belong to the manifest: somebody may have built it anew meanwhile."""
        ids = mapped(beside(self.path, IDS), np.dtype(self.manifest.dtype), self.manifest.tokens)
        offsets = mapped(beside(self.path, OFFSETS), np.dtype(np.int64), self.manifest.sentences + 1)
        if read_manifest(self.path) != self.manifest:
            raise AlchemyError(f"{self.path} was built anew since it was opened", hint="start again")
        return ids, offsets

    @property
    def ids(self) -> np.ndarray:
        """All sentences, one after the other."""
        return self._files[0]

    @property
    def offsets(self) -> np.ndarray:
        """Where each sentence begins; one more number says where the last one ends."""
        return self._files[1]

    @property
    def end(self) -> int | None:
        return self.manifest.eos if self.has_ends else None

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """How many tokens each sentence has."""
        lengths = np.empty(len(self), np.uint16 if self.manifest.longest < 2**16 else np.int64)
        for begin in range(0, len(self), CHUNK):  # of a large corpus the offsets alone would fill the memory
            steps = np.diff(self.offsets[begin : begin + CHUNK + 1])
            if steps.min(initial=0) < 0 or steps.max(initial=0) > self.manifest.longest:
                raise AlchemyError(f"{beside(self.path, OFFSETS)} is damaged", hint="build the corpus again")
            lengths[begin : begin + CHUNK] = steps
        return lengths

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What made the ids, as the build has put it beside them; None where another program made them."""
        told = self.manifest.tokenizer
        if not told:
            return None
        folder = self.path.parent / told["folder"]
        if not folder.is_dir():
            hint = "copy it along with the corpus, or build the corpus again"
            raise AlchemyError(f"the tokenizer of {self.path} is missing: there is no {folder}", hint=hint)
        tokenizer = load_tokenizer(folder)
        if tokenizer.digest != told["digest"]:
            raise AlchemyError(f"{folder} is not the tokenizer that made {self.path}", hint="build the corpus again")
        return tokenizer

    def __len__(self) -> int:
        return self.manifest.sentences

    def where(self, index: int) -> str:
        """File and line that a sentence was made of; of files with fields the number of the sentence there."""
        line = index
        for source in self.manifest.sources:
            if line < source["lines"]:
                lines = has_lines(Path(source["path"]))
                return f"{source['path']}:{line + 1}" if lines else f"{source['path']}, sentence {line + 1}"
            line -= source["lines"]
        return f"{self.path}, sentence {index}"

    @property
    def has_ends(self) -> bool:
        """Whether each sentence has a token for its end."""
        return bool(self.manifest.options.get("eos"))
