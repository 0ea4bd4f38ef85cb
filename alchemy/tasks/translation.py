"""Translation: train on sentence pairs, generate translations and score them."""

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
from alchemy.pipeline.output_rows import OrderedRows, record_file, tolerate_write_errors
from alchemy.registry import build, construct
from alchemy.seeds import derive
from alchemy.task import AlchemyTask
from alchemy.tasks.alignment import Pair, Unit, align_tokens, align_words, word_indices
from alchemy.tasks.data_checks import Samples
from alchemy.tasks.length_report import log_lengths
from alchemy.tasks.pairs import Pairs
from alchemy.tasks.supervised_task import shuffle_training
from alchemy.tasks.text_task import DEFAULT_LENGTH, texts_of
from alchemy.text import Tokenizer

END = "</s>"  # how EOS is shown in a list of tokens
ALIGNED = 3  # translations of an evaluation whose alignments are logged
SAMPLES = 20  # translations of an evaluation that are logged
DEFAULT_SEARCH = {"type": "alchemy.generate.BeamSearch", "beam": 4}


@AlchemyTask.register()
class Translation(AlchemyTask):
    """Translates sources to targets; trains on raw text (processors.ParallelText) or corpora (corpora.Parallel).

    A tokenizer is a folder, a table, or a class such as "alchemy.text.BPE" that is trained on the source or target
    texts of the training data (with `shared`, on both). `learn` passes options to its `train` method, and `tokenizer`
    sets both tokenizers. By default, corpora use their own tokenizers, and BPE is trained on raw text. `cache` caches
    tokenized raw text.

    With a `search` table, such as `{ type = "alchemy.generate.BeamSearch", beam = 5 }`, an evaluation also generates
    translations and scores them with BLEU and chrF; for raw text, this is the default, with a beam of 4. `limits`
    accepts the keys of alchemy.generate.Limits. `tokens` adds the tokens of each text and their log-probabilities to
    predictions, and `alignments` adds index pairs of source and target "words" or "tokens". `tokenize` is the sacrebleu
    tokenizer for BLEU, such as "zh"; the default depends on the script of the targets. Texts longer than `max_length`
    tokens raise an error; the default is the maximum length of the network, or 1024 if it has none.
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
        configured = {"source": source_tokenizer, "target": target_tokenizer}
        configured = {side: tokenizer if own is None else own for side, own in configured.items()}
        kept = {"cache": cache, "overwrite_cache": overwrite_cache}
        self._pairs = Pairs(self.cfg.get("datasets") or {}, configured, learn, shared=shared, **kept)
        self.source_tokenizer, self.target_tokenizer = self._pairs.tokenizers.values()
        if search is None:  # models trained on corpora may be evaluated by loss only
            search = {} if self._pairs.corpora else DEFAULT_SEARCH
        eos = self.target_tokenizer.eos
        if eos is None:
            raise AlchemyError("the target tokenizer has no EOS token", section="task")
        self.special = Special(begin=eos, eos=eos, pad=self.target_tokenizer.pad, unk=self.target_tokenizer.unk)
        # validate the limits even if there is no search
        most: Limits = construct(Limits, limits, section="task.limits")
        self.writer = (
            TextGenerator(build(Search, search, section="task.search"), self.special, most) if search else None
        )
        self.main_score, self.main_mode = ("bleu", "max") if self.writer else ("loss", "min")
        self.engine: Callable[[Mapping[str, Any]], list[list[Hypothesis]]] = (
            self.generate
        )  # can be replaced with a different engine
        self.others: list[Any] = []  # the other models of an ensemble
        self._answers = OrderedRows()
        self._split, self._aligned = "", 0  # the split that is evaluated, and how many of its alignments are logged
        self._bleu = BleuScorer(tokenize)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that all models accept."""
        limits = [model.max_positions() for model in (self.run.model, *self.others)]
        return min((most for most in limits if most is not None), default=None)

    @property
    def most(self) -> int:
        """The maximum number of tokens in a text, from the config, the models or the default."""
        longest = self.longest
        if longest is not None and self.max_length > longest:
            text = f"max_length = {self.max_length}, but the network takes at most {longest} tokens"
            raise AlchemyError(text, section="task", hint=f"set max_length = {longest} or less")
        return self.max_length or longest or DEFAULT_LENGTH

    def _limit(self, who: str, most: int) -> tuple[str, str]:
        """Return the description of the limit for an error message, and how to increase the limit."""
        if self.max_length or self.longest is None:
            return f"the limit is {most}", "increase max_length in [task]"
        return f"{who} takes at most {most}", "increase the maximum length of the network"

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
            return  # the loader applies its own limit
        longest = self.most
        budget = options.keys() & {"max_tokens", "max_sentences"}
        if budget and options.setdefault("max_length", longest) <= longest and "too_long" in options:
            return  # long texts are skipped or truncated
        longest -= longest % link.multiple  # rows are padded to a multiple
        for side, lengths in link.lengths().items():
            worst = int(lengths.argmax()) if len(lengths) else 0
            if len(lengths) and lengths[worst] > longest:
                limit, way = self._limit("the network", longest)
                raise AlchemyError(
                    f"the {side} has {lengths[worst]} tokens, but {limit}",
                    where=link.where(worst),
                    section=f"task.datasets.{split}",
                    hint=f'set too_long = "skip" or "truncate" next to max_tokens, or {way}',
                )

    # -- prediction inputs
    def question(self, item: object) -> dict[str, Any]:
        """Convert a text, or a dict with `text` and the `prefix` of its translation, to a sample.

        Two texts, as a tuple or as `text` and `pair`, request the log-probability of the second given the first.
        """
        if (isinstance(item, tuple | list) and len(item) == 2) or (isinstance(item, Mapping) and "pair" in item):
            asked = texts_of(item, "text", "pair")
            self._check_length(asked["pair"], "target")
            return asked
        if self.writer is None:
            hint = "set task.search.type=alchemy.generate.BeamSearch"
            raise AlchemyError("the config has no `search` table, so nothing can be generated", hint=hint)
        prefix = item.get("prefix", "") if isinstance(item, Mapping) else ""
        if not isinstance(prefix, str):
            raise AlchemyError(f"the prefix is {repr(prefix)[:60]}, expected a string")
        self._check_length(prefix, "prefix")
        return {**texts_of(item, "text"), "prefix": prefix}

    def _check_length(self, text: str, what: str) -> None:
        length = len(self.target_tokenizer.encode(text)) + 1
        if length > self.most:
            limit, way = self._limit("the model", self.most)
            raise AlchemyError(f"the {what} has {length} tokens with EOS, but {limit}", hint=f"shorten it, or {way}")

    def encoded(self, source: Samples) -> Samples:
        """Return text samples with source ids, in the same form as a corpus."""
        own = not (self.others or self.max_length) and self.longest is not None  # then the predictor checks the limit
        most = 0 if own else self.most
        pipe = Encode(source, tokenizer=self.source_tokenizer, to=self.reads, template="$A eos", max_length=most)
        pipe.places.cuts = ()  # a long source raises an error and is never truncated
        return pipe

    def collate_options(self) -> dict[str, Any]:
        return {"fields": {self.reads: {"mask": "source_mask", "value": self.source_tokenizer.pad or 0}}}

    # -- evaluation
    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        batch = self.to_device(batch)
        if "source_mask" in batch:  # prediction inputs
            batch["source_lengths"] = batch["source_mask"].sum(1)
        if needs_loss and "target" in batch:
            log_prob = cast(Any, self.run.model).log_prob(self.run_model(batch, needs_loss=True), batch)
            self.run.metrics.log("log_prob", log_prob, batch["target_lengths"].sum())
        rows: Any = self._score_pairs(batch) if "pair" in batch else self._rows(batch)
        self._answers.add(rows, self.run.progress.evaluated_samples)
        for pipe in self.outputpipes:
            rows = pipe(rows, batch)
        return "", rows

    def probe(self, batch: Any) -> object:
        return self._score_pairs(batch) if "pair" in batch else super().probe(batch)

    def spell(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the source and target tokens of the first sample of a batch, for attention maps."""
        ids = self._pair_ids(batch)[0] if "pair" in batch else batch["target"][0].tolist()
        source = self.source_tokenizer.spell(batch["source"][0].tolist())
        return {"source": source, "target": self.target_tokenizer.spell(ids)}

    def _pair_ids(self, batch: Mapping[str, Any]) -> list[list[int]]:
        return [[*self.target_tokenizer.encode(text), self.special.eos] for text in batch["pair"]]

    def _rows(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        if self.writer is None:
            return []
        found = self.engine(batch)
        sources = self._texts(batch, "source", self.source_tokenizer)
        rows = [{"source": source, **self._format_texts(texts)} for source, texts in zip(sources, found, strict=True)]
        self._log_alignments(batch, found)
        for row, pairs in zip(rows, self._align(batch, found)):
            row["alignments"] = pairs
        if "target" in batch:
            for row, target in zip(rows, self._texts(batch, "target", self.target_tokenizer), strict=True):
                row["target"] = target
        return rows

    def _texts(self, batch: Mapping[str, Any], side: str, tokenizer: Tokenizer) -> list[str]:
        """Return the raw source or target texts, or the decoded ids for corpora."""
        own: list[str] | None = batch.get(f"{side}_text")
        return [tokenizer.decode(row) for row in batch[side].tolist()] if own is None else own

    def generate(self, batch: Mapping[str, Any]) -> list[list[Hypothesis]]:
        """Generate texts for each source in a batch with the configured search, best first."""
        model: Any = self.run.model
        writer = cast(TextGenerator, self.writer)
        steps = Ensemble([each.walk(batch) for each in (model, *self.others)])
        # sampling is seeded by the source, not by its position in the data or in a batch
        read = model.rows(batch)
        numbers = [derive(0, *row[:length]) for row, length in zip(read.ids_BT.tolist(), read.lengths_B.tolist())]
        prefixes = [self.target_tokenizer.encode(text) for text in batch.get("prefix", ())]
        return writer(steps, batch["source_lengths"], prefixes, numbers, self.longest)

    def _format_texts(self, texts: list[Hypothesis]) -> dict[str, Any]:
        decoded = [self.target_tokenizer.decode(text.tokens) for text in texts]
        more: dict[str, Any] = {}
        if len(texts) > 1 or self.tokens or self.alignments:
            more = {"nbest": decoded, "scores": [text.score for text in texts]}
        if self.tokens:
            more["tokens"] = [self._spell_tokens(text.tokens) for text in texts]
            more["token_scores"] = [text.token_scores for text in texts]
        return {"pred": decoded[0], "score": texts[0].score, **more}

    def _spell_tokens(self, ids: Sequence[int]) -> list[str]:
        """Decode each token separately."""
        return [END if token == self.special.eos else self.target_tokenizer.decode([token]) for token in ids]

    def _score_pairs(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the log-probability of the second text of each pair given the first."""
        ids = self._pair_ids(batch)
        logs = cast(Any, self.run.model).logs(batch, ids)
        return [
            {
                "text": text,
                "pair": pair,
                "score": math.fsum(row),
                "tokens": self._spell_tokens(tokens),
                "token_scores": row,
            }
            for text, pair, tokens, row in zip(batch["text"], batch["pair"], ids, logs, strict=True)
        ]

    def _align(self, batch: Mapping[str, Any], found: list[list[Hypothesis]]) -> list[list[list[Pair]]]:
        """Return the alignments of each text generated for each source, or an empty result if they are disabled."""
        if not self.alignments:
            return []
        texts = [[text.tokens for text in several] for several in found]
        each = zip(*(model.attended(batch, texts) for model in (self.run.model, *self.others)), strict=True)
        pairs = iter([align_tokens(cast(Any, sum(weights))) for weights in each])
        if self.alignments == "tokens":
            return [[next(pairs) for _ in several] for several in texts]
        read = cast(Any, self.run.model).rows(batch)
        sources = [
            word_indices(self.source_tokenizer, row[: length - 1])
            for row, length in zip(read.ids_BT.tolist(), read.lengths_B.tolist())
        ]
        return [
            [align_words(next(pairs), source, word_indices(self.target_tokenizer, text[:-1])) for text in several]
            for source, several in zip(sources, texts)
        ]

    def _log_alignments(self, batch: Mapping[str, Any], found: list[list[Hypothesis]]) -> None:
        """Log what the first translations of an evaluation attend to."""
        chosen = found[: ALIGNED - self._aligned] if self._split else []
        if not chosen or not self.run.media.is_open:
            return
        model, first = cast(Any, self.run.model), self._aligned + 1
        self._aligned += len(chosen)
        texts = [[several[0].tokens] for several in chosen]
        try:
            weights = model.attended(batch, [*texts, *[[]] * (len(found) - len(chosen))])
        except AlchemyError:  # a network without attention
            return
        sources = model.rows(batch).ids_BT.tolist()
        for number, (weights_TS, (tokens,), source) in enumerate(zip(weights, texts, sources), start=first):
            names = self.target_tokenizer.spell(tokens), self.source_tokenizer.spell(source[: weights_TS.shape[1]])
            example = self.target_tokenizer.decode(tokens)
            self.run.log_attention(f"{self._split}/alignment/{number}", weights_TS, *names, example=example)

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self._split, self._aligned = split, 0
        self._answers.begin()
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        rows = self._answers.end()
        scored = bool(rows) and "target" in rows[0]
        self._log_samples(split, rows)
        found = {}
        if scored:
            found = text_scores([row["target"] for row in rows], [row["pred"] for row in rows], self._bleu)
            self._write_signature(split, found)
        log_prob = self.run.metrics.current.mean("log_prob")
        ppl = {} if log_prob is None else {"ppl": perplexity(log_prob)}
        return super().end_eval(split, **({"preds": rows} if rows else {}), **ppl, **found, **kwargs)

    def _log_samples(self, split: str, rows: list[dict[str, Any]]) -> None:
        names = [name for name in ("source", "target", "pred") if rows and name in rows[0]]
        if self.run.group.is_main and names:
            self.run.log_table(
                f"{split}/translations", names, [[row[name] for name in names] for row in rows[:SAMPLES]]
            )

    def _write_signature(self, split: str, found: Mapping[str, Any]) -> None:
        """Write the BLEU score and its sacrebleu signature to the record."""
        with tolerate_write_errors(self.run, "the BLEU signature"):
            path = record_file(self.run, f"results/{split}_bleu.txt", step_tag=False)
            if path is not None:
                write_atomic(path, f"BLEU {found['bleu']:.2f} {found['bleu_signature']}\n")


def perplexity(log_prob: float) -> float:
    """Return the perplexity for a mean log-probability per token.

    >>> perplexity(math.log(0.25)), perplexity(-1000.0)
    (4.0, inf)
    """
    return math.exp(-log_prob) if -log_prob < 700 else math.inf
