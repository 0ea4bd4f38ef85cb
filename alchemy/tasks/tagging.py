"""Sequence tagging: predict tags and score the spans they encode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar, Literal

from loguru import logger

from alchemy.constraints import NonNegativeInt
from alchemy.data.tables import BadRow
from alchemy.data.tag_schemes import NoScheme, Scheme, SchemeName
from alchemy.errors import AlchemyError
from alchemy.metrics.scores import SpanScores, accuracy
from alchemy.pipeline import where_in
from alchemy.pipeline.encode import EncodeWords
from alchemy.pipeline.label_ids import LabelIds
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples, samples_of
from alchemy.tasks.text_task import TextTask, texts_of
from alchemy.text import Characters, Residues


@AlchemyTask.register()
class Tagging(TextTask):
    """Predicts one tag per word for samples with `tokens` and `tags`, as in alchemy.pipeline.processors.Tagging.

    `scheme` is the tagging scheme (BIO, BIOES, BMES..), used to score spans and to constrain a CRF. With `scheme = ""`,
    tags do not encode spans, and the score is the accuracy over all words. `unscored` is a tag that is not a label:
    words with this tag, such as residues without a known structure, count neither in the loss nor in the scores.
    `split` sets how prediction splits a text into words: at `"blanks"`, or into `"characters"`, the default for a
    character tokenizer.
    """

    processor: ClassVar[str] = "alchemy.pipeline.processors.Tagging"
    target: ClassVar[str] = "tags"
    needs = ("tokens",)
    packages = ("seqeval",)
    main_score = "f1"
    produces = {"": ("loss", "accuracy"), "scheme": ("f1", "precision", "recall")}

    def __init__(
        self,
        *,
        tokenizer: Any,
        learn: dict[str, Any] = {},
        labels: list[str] | str | None = None,
        scheme: SchemeName = "BIO",
        unscored: str = "",
        template: str = "",
        max_length: NonNegativeInt = 0,
        long: Literal["refuse", "only_first", "windows"] = "refuse",
        overlap: NonNegativeInt = 32,
        blank: bool = False,
        split: Literal["", "blanks", "characters"] = "",
        cache: bool = False,
        overwrite_cache: bool = False,
    ) -> None:
        self.split, self.unscored = split, unscored
        self.scheme, self.blank = Scheme(scheme, begins=True) if scheme else NoScheme(), blank
        self.main_score = self.main_score if scheme else "accuracy"
        super().__init__(
            tokenizer=tokenizer,
            learn=learn,
            labels=labels,
            template=template,
            max_length=max_length,
            long=long,
            overlap=overlap,
            cache=cache,
            overwrite_cache=overwrite_cache,
        )

    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return list(sample["tokens"])

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return [tag for tag in sample.get("tags", ()) if not self.unscored or tag != self.unscored]

    def question(self, item: object) -> dict[str, Any]:
        """Convert a text, a list of words, or a dict with `text` or `tokens` to a sample."""
        tokens = item.get("tokens") if isinstance(item, Mapping) else item if isinstance(item, list) else None
        if tokens is None:
            text = texts_of(item, "text")["text"]
            whole = self.split == "blanks" or not (self.split or isinstance(self.tokenizer, Characters | Residues))
            return {"tokens": text.split() if whole else [sign for sign in text if not sign.isspace()]}
        if not isinstance(tokens, list | tuple) or not tokens or not all(isinstance(t, str) and t for t in tokens):
            raise AlchemyError(f"the tokens are {repr(tokens)[:60]}, expected a list of non-empty words")
        return {"tokens": list(tokens)}

    def check(self, sample: Mapping[str, Any]) -> None:
        super().check(sample)
        self._check_tags(self.names(sample))

    def _find_labels(self, labels_option: list[str] | str | None) -> list[str]:
        labels = super()._find_labels(labels_option)
        self._check_tags(labels)
        return labels

    def _processor_labels(self, source: Samples) -> list[str]:
        return []  # the labels of a processor are span types, not tags

    def _check_tags(self, tags: Iterable[str]) -> None:
        """Raise on a tag that is not part of the scheme."""
        try:
            for tag in tags:
                self.scheme.read(tag)
        except BadRow as error:
            hint = "set the tagging scheme: scheme = 'BIOES', 'BMES', 'BILOU', 'IOB1' or 'BIO'"
            raise AlchemyError(str(error), section="task", hint=hint) from error

    def _check_source(self, source: Samples, split: str) -> None:
        """Run the base class checks and log how many tag sequences violate the scheme."""
        super()._check_source(source, split)
        broken = [index for index, sample in samples_of(source) if self.scheme.violations(list(self.names(sample)))]
        if broken:
            text = "{}: {} of {} texts have tags that violate {}, the first at {}: do they use a different scheme?"
            logger.warning(text, split, len(broken), len(source), self.scheme.name, where_in(source, broken[0]))

    def rules(self) -> dict[str, Any]:
        """Return which tags may begin a text, follow each other and end a text."""
        may = self.scheme.may_follow
        return {
            "begins": [may("O", tag) for tag in self.labels],
            "follows": [[may(one, other) for other in self.labels] for one in self.labels],
            "ends": [may(tag, "O") for tag in self.labels],
        }

    def encoded(self, source: Samples) -> Samples:
        tagged = "tags" in source[0]
        return EncodeWords(
            LabelIds(source, labels=self.labels, field="tags", to="tag_ids", ignored=self.unscored)
            if tagged
            else source,
            tokenizer=self.tokenizer,
            segments="segments",
            **self.encode_options(),
            blank=self.blank,
            words="words",
            align={"tag_ids": "targets"} if tagged else {},
        )

    def collate_options(self) -> dict[str, Any]:
        ids = {"mask": "mask", "value": self.tokenizer.pad or 0}
        # EncodeWords defines the padding of `targets`, which only tagged texts have
        return {"fields": {"input_ids": ids, "words": {"value": -1}}}

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        rows = []
        for place, (tokens, numbers) in enumerate(zip(batch["tokens"], outputs["tags"], strict=True)):
            # the truncated part of a text gets no tags
            predicted = [self.labels[number] for number in numbers] + ["O"] * (len(tokens) - len(numbers))
            gold = {"tags": batch["tags"][place]} if "tags" in batch else {}
            spans = {"spans": self.scheme.spans(predicted)} if self.scheme.name else {}
            rows.append({"tokens": tokens, **gold, "pred": predicted, **spans})
        return rows

    def report_options(self) -> dict[str, str]:
        return {"scheme": self.scheme.name} if self.scheme.name else {"kind": "words"}

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.scheme.name:
            pairs = [pair for row in answers for pair in zip(row["tags"], row["pred"]) if pair[0] != self.unscored]
            return {"accuracy": accuracy(*zip(*pairs)) if pairs else 0.0}
        gold, predicted = ([row[key] for row in answers] for key in ("tags", "pred"))
        spans = SpanScores(*([self.scheme.in_bioes(row) for row in rows] for rows in (gold, predicted)))
        tags = [list(chain.from_iterable(rows)) for rows in (gold, predicted)]
        return {**spans.scores(), "accuracy": accuracy(*tags) if tags[0] else 0.0}
