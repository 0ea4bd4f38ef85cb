"""Texts into other texts: training on pairs, and texts that are written and scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

from alchemy.constraints import NonNegativeInt
from alchemy.data.pipe_chain import link_of
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.generate import Ensemble, Hypothesis, Limits, Search, Special, TextGenerator
from alchemy.metrics.bleu_chrf import BleuScorer, Tokenize, text_scores
from alchemy.pipeline.encode import Encode
from alchemy.pipeline.output_rows import OrderedRows, record_file, written_if_possible
from alchemy.registry import build, construct
from alchemy.seeds import derive
from alchemy.task import AlchemyTask
from alchemy.tasks.alignment import Pair, Unit, between_words, looked_at, words_of
from alchemy.tasks.data_checks import Samples
from alchemy.tasks.length_report import log_lengths
from alchemy.tasks.pairs import Pairs
from alchemy.tasks.text_task import DEFAULT_LENGTH, shuffle_training, texts_of
from alchemy.text import Tokenizer

END = "</s>"  # how the end of a text is told among its tokens
DEFAULT_SEARCH = {"type": "alchemy.generate.BeamSearch", "beam": 4}


@AlchemyTask.register()
class Translation(AlchemyTask):
    """Targets for sources: of raw text, as processors.ParallelText reads it, or of corpora, as corpora.Parallel does.

    A tokenizer is a folder, a table, or a class such as "alchemy.text.BPE" that learns from the training texts of its
    side, or with `shared` from those of both, with what its `train` takes as `learn`; `tokenizer` names both.
    By default corpora have theirs, and raw text learns BPE. `cache` keeps raw text that was encoded.
    With a table `search`, such as `{ type = "alchemy.generate.BeamSearch", beam = 5 }`, an evaluation also writes
    texts, and scores them by BLEU and chrF: of raw text by default, with a beam of 4. `limits` has the keys of
    alchemy.generate.Limits. With `tokens` answers also tell the tokens of each text with their log-probabilities, with
    `alignments` pairs of numbers of "words" or "tokens", of the source and of the text. `tokenize` is the tokenizer of
    sacrebleu for BLEU, such as "zh"; by default that which suits the script of the targets. Texts of more than
    `max_length` tokens are refused: by default as many as the network takes, or else 1024.
    """

    processor: ClassVar[str] = "alchemy.pipeline.processors.ParallelText"
    batches: ClassVar[dict[str, int]] = {"max_tokens": 1024}
    writes_texts = True
    reads = "source"
    packages = {"search": ("sacrebleu",)}
    produces = {"": ("loss", "ppl"), "search": ("bleu", "bleu_words", "chrf")}

    def __init__(
        self,
        *,
        tokenizer: Any = None,
        source_tokenizer: Any = None,
        target_tokenizer: Any = None,
        learn: dict[str, Any] = {},
        shared: bool = False,
        search: dict[str, Any] | None = None,
        limits: dict[str, Any] = {},
        max_length: NonNegativeInt = 0,
        tokens: bool = False,
        alignments: Unit = "",
        tokenize: Tokenize = "",
        cache: bool = False,
        overwrite_cache: bool = False,
    ) -> None:
        super().__init__()
        self.max_length, self.tokens, self.alignments = max_length, tokens, alignments
        told = {"source": source_tokenizer, "target": target_tokenizer}
        told = {side: tokenizer if own is None else own for side, own in told.items()}
        kept = {"cache": cache, "overwrite_cache": overwrite_cache}
        self._pairs = Pairs(self.cfg.get("datasets") or {}, told, learn, shared=shared, **kept)
        self.source_tokenizer, self.target_tokenizer = self._pairs.tokenizers.values()
        if search is None:  # corpora are also for models that are only to be scored by their loss
            search = {} if self._pairs.corpora else DEFAULT_SEARCH
        eos = self.target_tokenizer.eos
        if eos is None:
            raise AlchemyError("the tokenizer of the target has no token for the end of a sentence", section="task")
        self.special = Special(begin=eos, eos=eos, pad=self.target_tokenizer.pad, unk=self.target_tokenizer.unk)
        # limits are checked although nothing may be written yet
        most: Limits = construct(Limits, limits, section="task.limits")
        self.writer = (
            TextGenerator(build(Search, search, section="task.search"), self.special, most) if search else None
        )
        self.main_score, self.main_mode = ("bleu", "max") if self.writer else ("loss", "min")
        self.engine: Callable[[Mapping[str, Any]], list[list[Hypothesis]]] = self.searched  # another may take its place
        self.others: list[Any] = []  # models that write together with that of the run
        self._answers = OrderedRows()
        self._bleu = BleuScorer(tokenize)

    @property
    def longest(self) -> int | None:
        """The most tokens that all models take."""
        told = [model.max_positions() for model in (self.run.model, *self.others)]
        return min((most for most in told if most is not None), default=None)

    @property
    def most(self) -> int:
        """The most tokens of a text that is read, whether or not the models take more."""
        longest = self.longest
        if longest is not None and self.max_length > longest:
            text = f"max_length = {self.max_length}, and the network takes {longest} tokens"
            raise AlchemyError(text, section="task", hint=f"set max_length = {longest} or less")
        return self.max_length or longest or DEFAULT_LENGTH

    def _limit(self, who: str, most: int) -> tuple[str, str]:
        """What an error says of the limit, and how to raise it."""
        if self.max_length or self.longest is None:
            return f"at most {most} are read", "set a larger max_length in [task]"
        return f"{who} takes {most}", "increase the maximum length of the network"

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        pipes = kwargs.pop("pipes", None)
        if not pipes:
            super().load_dataset(split, **kwargs)
        data, options = self._pairs.load(split, pipes), kwargs
        self._datasets[split] = data, options
        if not options.keys() & {"batch_size", "max_tokens", "max_sentences", "batch_sampler"}:
            options |= self.batches
        shuffle_training(options, split)
        link = link_of(data)
        for side, lengths in link.lengths().items():
            if len(lengths):
                worst = int(lengths.argmax())
                log_lengths(split, lengths, int(lengths[worst]), partial(link.where, worst), side)
        if self.run.model is None or not link.lengths():
            return
        if "max_length" in options and not self.max_length and self.longest is None:
            return  # the loader holds its own limit
        longest = self.most
        budget = options.keys() & {"max_tokens", "max_sentences"}
        if budget and options.setdefault("max_length", longest) <= longest and "too_long" in options:
            return  # long ones are left out, or cut
        longest -= longest % link.multiple  # rows are padded up to one
        for side, lengths in link.lengths().items():
            worst = int(lengths.argmax()) if len(lengths) else 0
            if len(lengths) and lengths[worst] > longest:
                limit, way = self._limit("the network", longest)
                raise AlchemyError(
                    f"the {side} has {lengths[worst]} tokens, and {limit}",
                    where=link.where(worst),
                    section=f"task.datasets.{split}",
                    hint=f'set too_long = "skip" or "truncate" beside max_tokens, or {way}',
                )

    # -- questions
    def question(self, item: object) -> dict[str, Any]:
        """A text, or a dict with it as `text`, and what its translation begins with as `prefix`.

        Of two texts, as a tuple or as `text` and `pair`, it is asked how likely the second is for the first.
        """
        if (isinstance(item, tuple | list) and len(item) == 2) or (isinstance(item, Mapping) and "pair" in item):
            asked = texts_of(item, "text", "pair")
            self._check_length(asked["pair"], "target")
            return asked
        if self.writer is None:
            hint = "set task.search.type=alchemy.generate.BeamSearch"
            raise AlchemyError("the config has no table `search`, so nothing is written", hint=hint)
        prefix = item.get("prefix", "") if isinstance(item, Mapping) else ""
        if not isinstance(prefix, str):
            raise AlchemyError(f"the prefix is {repr(prefix)[:60]}, expected a text")
        self._check_length(prefix, "prefix")
        return {**texts_of(item, "text"), "prefix": prefix}

    def _check_length(self, text: str, what: str) -> None:
        length = len(self.target_tokenizer.encode(text)) + 1
        if length > self.most:
            limit, way = self._limit("the model", self.most)
            raise AlchemyError(
                f"the {what} has {length} tokens with its end, and {limit}", hint=f"shorten it, or {way}"
            )

    def encoded(self, source: Samples) -> Samples:
        """Samples of text with the ids of the source, as a corpus has them."""
        own = not (self.others or self.max_length) and self.longest is not None  # which the predictor checks
        most = 0 if own else self.most
        pipe = Encode(source, tokenizer=self.source_tokenizer, to=self.reads, template="$A eos", max_length=most)
        pipe.places.cuts = ()  # a source is refused, never cut
        return pipe

    def collate_options(self) -> dict[str, Any]:
        return {"fields": {self.reads: {"mask": "source_mask", "value": self.source_tokenizer.pad or 0}}}

    # -- evaluation
    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        batch = self.to_device(batch)
        if "source_mask" in batch:  # texts that somebody asks about
            batch["source_lengths"] = batch["source_mask"].sum(1)
        if needs_loss and "target" in batch:
            log_prob = cast(Any, self.run.model).log_prob(self.run_model(batch, needs_loss=True), batch)
            self.run.metrics.log("log_prob", log_prob, batch["target_lengths"].sum())
        rows: Any = self._scored(batch) if "pair" in batch else self._rows(batch)
        self._answers.add(rows, self.run.progress.evaluated_samples)
        for pipe in self.outputpipes:
            rows = pipe(rows, batch)
        return "", rows

    def _rows(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self.writer is None:
            return []
        found = self.engine(batch)
        sources = self._texts(batch, "source", self.source_tokenizer)
        rows = [{"source": source, **self._said(texts)} for source, texts in zip(sources, found, strict=True)]
        for row, pairs in zip(rows, self._aligned(batch, found)):
            row["alignments"] = pairs
        if "target" in batch:
            for row, target in zip(rows, self._texts(batch, "target", self.target_tokenizer), strict=True):
                row["target"] = target
        return rows

    def _texts(self, batch: Mapping[str, Any], side: str, tokenizer: Tokenizer) -> list[str]:
        """The texts of a side as they were read; those of corpora as their ids decode."""
        own: list[str] | None = batch.get(f"{side}_text")
        return [tokenizer.decode(row) for row in batch[side].tolist()] if own is None else own

    def searched(self, batch: Mapping[str, Any]) -> list[list[Hypothesis]]:
        """The texts of each source of a batch, best first, by the search of the config."""
        model: Any = self.run.model
        writer = cast(TextGenerator, self.writer)
        steps = Ensemble([each.walk(batch) for each in (model, *self.others)])
        # what is drawn depends on the source, not on its place in the data or in a batch
        read = model.rows(batch)
        numbers = [derive(0, *row[:length]) for row, length in zip(read.ids_BT.tolist(), read.lengths_B.tolist())]
        prefixes = [self.target_tokenizer.encode(text) for text in batch.get("prefix", ())]
        return writer(steps, batch["source_lengths"], prefixes, numbers, self.longest)

    def _said(self, texts: list[Hypothesis]) -> dict[str, Any]:
        said = [self.target_tokenizer.decode(text.tokens) for text in texts]
        more: dict[str, Any] = {}
        if len(texts) > 1 or self.tokens or self.alignments:
            more = {"nbest": said, "scores": [text.score for text in texts]}
        if self.tokens:
            more["tokens"] = [self._spelt(text.tokens) for text in texts]
            more["token_scores"] = [text.token_scores for text in texts]
        return {"pred": said[0], "score": texts[0].score, **more}

    def _spelt(self, ids: Sequence[int]) -> list[str]:
        """Each token as it reads by itself."""
        return [END if token == self.special.eos else self.target_tokenizer.decode([token]) for token in ids]

    def _scored(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """How likely the second text of each pair is for the first."""
        ids = [[*self.target_tokenizer.encode(text), self.special.eos] for text in batch["pair"]]
        logs = cast(Any, self.run.model).logs(batch, ids)
        return [
            {"text": text, "pair": pair, "score": math.fsum(row), "tokens": self._spelt(tokens), "token_scores": row}
            for text, pair, tokens, row in zip(batch["text"], batch["pair"], ids, logs, strict=True)
        ]

    def _aligned(self, batch: Mapping[str, Any], found: list[list[Hypothesis]]) -> list[list[list[Pair]]]:
        """The pairs of each text of each source; nothing unless they are wanted."""
        if not self.alignments:
            return []
        texts = [[text.tokens for text in several] for several in found]
        each = zip(*(model.attended(batch, texts) for model in (self.run.model, *self.others)), strict=True)
        pairs = iter([looked_at(cast(Any, sum(weights))) for weights in each])
        if self.alignments == "tokens":
            return [[next(pairs) for _ in several] for several in texts]
        read = cast(Any, self.run.model).rows(batch)
        sources = [
            words_of(self.source_tokenizer, row[: length - 1])
            for row, length in zip(read.ids_BT.tolist(), read.lengths_B.tolist())
        ]
        return [
            [between_words(next(pairs), source, words_of(self.target_tokenizer, text[:-1])) for text in several]
            for source, several in zip(sources, texts)
        ]

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self._answers.begin()
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        rows = self._answers.end()
        scored = bool(rows) and "target" in rows[0]
        found = {}
        if scored:
            found = text_scores([row["target"] for row in rows], [row["pred"] for row in rows], self._bleu)
            self._write_signature(split, found)
        log_prob = self.run.metrics.current.mean("log_prob")
        ppl = {} if log_prob is None else {"ppl": perplexity(log_prob)}
        return super().end_eval(split, **({"preds": rows} if rows else {}), **ppl, **found, **kwargs)

    def _write_signature(self, split: str, found: Mapping[str, Any]) -> None:
        """Puts into the record how BLEU was counted, so that others can compare."""
        with written_if_possible(self.run, "the signature of BLEU"):
            path = record_file(self.run, f"results/{split}_bleu.txt", step_tag=False)
            if path is not None:
                write_atomic(path, f"BLEU {found['bleu']:.2f} {found['bleu_signature']}\n")


def perplexity(log_prob: float) -> float:
    """That of tokens with this mean log-probability.

    >>> perplexity(math.log(0.25)), perplexity(-1000.0)
    (4.0, inf)
    """
    return math.exp(-log_prob) if -log_prob < 700 else math.inf
