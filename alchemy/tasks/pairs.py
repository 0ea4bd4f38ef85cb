"""Load the sentence pairs of a translation task, from corpora or raw text, and its tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset

from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.pipe_chain import link_of, title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.pairs import SIDES, EncodedPairs, EncodePairs, text_of
from alchemy.pipeline.processors import ParallelText
from alchemy.pipeline.tokenizers import keep_tokenizer, tokenizer_of
from alchemy.tasks.learn_tokenizer import check_vocabulary, has_size_option, is_class, learn_tokenizer
from alchemy.text import Tokenizer

LEARNT = "alchemy.text.BPE"
MOST, FEWEST, SHARE = 8000, 1000, 7  # vocabulary size: maximum, minimum, and number of pairs per token in between


class Pairs:
    """Loads the splits of a translation task, and loads or trains its tokenizers.

    `configured` maps "source" and "target" to their tokenizers in the config; by default, each uses the tokenizer of
    its corpus, or a BPE tokenizer is trained. With `shared`, one tokenizer is trained on both source and target texts.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        configured: Mapping[str, Any],
        learn: Mapping[str, Any],
        *,
        shared: bool,
        cache: bool,
        overwrite_cache: bool,
    ) -> None:
        self.tables, self.learn, self.shared = tables, learn, shared
        self.cache, self.overwrite_cache = cache, overwrite_cache
        self._sources: dict[str, Any] = {}
        self.corpora = {side: path for side in SIDES if (path := self._corpus(side))}
        self.tokenizers: dict[str, Tokenizer] = {}
        for side in SIDES:
            self.tokenizers[side] = self._tokenizer(side, configured)
            keep_tokenizer(self.tokenizers[side], side, str(configured[side] or self.corpora.get(side, "")))

    def load(self, split: str, pipes: Sequence[Mapping[str, Any]]) -> Any:
        """Return the dataset of a split: text pairs are tokenized, anything else is returned unchanged."""
        source = self._sources.pop(split, None) or self._build_source(split, pipes)
        if link_of(source).collate is not None or not self._has_texts(source, split):
            return source
        encoded: Any = EncodePairs(source, **self.tokenizers)
        if self.cache:
            encoded = Cache(encoded, overwrite_cache=self.overwrite_cache)
        return EncodedPairs(encoded, tokenizers=self.tokenizers, texts=None if split == "train" else source)

    def _has_texts(self, source: Any, split: str) -> bool:
        """Check the first samples and return whether they contain text rather than ids from a project's pipe."""
        if isinstance(source, IterableDataset):
            hint = "put alchemy.pipeline.lst.ItrToLst at the end of its pipes"
            text = f"translation needs indexable data, but {title(source)} is a stream"
            raise AlchemyError(text, section=f"task.datasets.{split}", hint=hint)
        first = [source[index] for index in range(min(len(source), 100))]
        if not first or (isinstance(first[0], Mapping) and not isinstance(first[0].get("source", ""), str)):
            return False
        for side in SIDES if split == "train" or "target" in first[0] else SIDES[:1]:
            texts = [text_of(sample, side, source, index) for index, sample in enumerate(first)]
            if split == "train":
                check_vocabulary(self.tokenizers[side], texts)
        return True

    def _build_source(self, split: str, pipes: Sequence[Mapping[str, Any]]) -> Any:
        return build_datapipes(pipes, section=f"task.datasets.{split}")

    # -- tokenizers
    def _corpus(self, side: str) -> str:
        """Return the path of the first source or target corpus, or "" if the splits are raw text."""
        pipes = [pipe for table in self.tables.values() for pipe in table.get("pipes") or () if side in pipe]
        return next((str(pipe[side]) for pipe in pipes if not _reads_text(pipe)), "")

    def _tokenizer(self, side: str, configured: Mapping[str, Any]) -> Tokenizer:
        named = configured[side]
        if named is None and self.corpora.get(side):
            own = Corpus(self.corpora[side]).tokenizer
            if own is None:
                hint = f"set {side}_tokenizer: the corpus was built by a different program"
                raise AlchemyError(f"the {side} tokenizer is unknown", section="task", hint=hint)
            return own
        named = LEARNT if named is None else named
        if not is_class(named):
            return tokenizer_of(named)
        if self.corpora:
            hint = "remove it: the corpora have their own tokenizers"
            raise AlchemyError(f"{named} is trained on texts, but the splits are corpora", section="task", hint=hint)
        if self.shared and "source" in self.tokenizers:
            return self.tokenizers["source"]
        sides = SIDES if self.shared else (side,)
        options = dict(self.learn)
        if "size" not in options and has_size_option(named):
            options["size"] = default_size(len(self._training_source()))
        return learn_tokenizer(named, self._texts(sides), options, " and the ".join(sides))

    def _training_source(self) -> Any:
        if "train" not in self._sources:
            table = self.tables.get("train") or {}
            if not table.get("pipes"):
                hint = "add [task.datasets.train] with pipes, or set source_tokenizer and target_tokenizer"
                raise AlchemyError("the source tokenizer is unknown", section="task", hint=hint)
            self._sources["train"] = self._build_source("train", table["pipes"])
        return self._sources["train"]

    def _texts(self, sides: Sequence[str]) -> Iterator[str]:
        source = self._training_source()
        for index in range(len(source)):
            sample = source[index]
            for side in sides:
                yield text_of(sample, side, source, index)


def default_size(pairs: int) -> int:
    """Return the default vocabulary size; it is smaller for small data, so that most tokens occur often enough.

    >>> default_size(100), default_size(20_000), default_size(1_000_000)
    (1000, 2857, 8000)
    """
    return min(MOST, max(FEWEST, pairs // SHARE))


def _reads_text(pipe: Mapping[str, Any]) -> bool:
    """Return whether `source` and `target` of a pipe are columns of a table."""
    kind = DataPipeline.resolve_registered_module(pipe["type"])
    return isinstance(kind, type) and issubclass(kind, ParallelText)
