"""BLEU: the tokenizer depends on the script of the references, and the score equals that of sacrebleu."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sacrebleu

from alchemy.errors import AlchemyError
from alchemy.metrics import bleu_chrf
from alchemy.metrics.bleu_chrf import BleuScorer, bleu, chrf, detect_tokenizer, text_scores
from tests.logs import warned

WORDS = {
    "de": ["der", "kleine", "Hund", "läuft,", "und", "die", "Katze", "sieht", "ihn", "nicht."],
    "ru": ["собака", "бежит", "и", "кошка", "её", "не", "видит", "."],
    "zh": list("我们今天去北京看朋友，汤姆不在家。"),
    "ko": ["개가", "달리고", "고양이는", "보지", "않는다", "."],
    "th": list("สุนัขตัวเล็กวิ่งเร็วมาก"),
    "ja": list("私は犬がすきです。東京へ行きました。"),
}
JOIN = {"zh": "", "th": "", "ja": ""}


def corpus(language: str) -> tuple[list[str], list[str]]:
    draw = random.Random(language)
    gold = [[draw.choice(WORDS[language]) for _ in range(12)] for _ in range(20)]
    said = [[draw.choice(WORDS[language]) if draw.random() < 0.3 else word for word in row] for row in gold]
    join = JOIN.get(language, " ").join
    return [join(row) for row in gold], [join(row) for row in said]


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [("de", "13a"), ("ru", "13a"), ("zh", "zh"), ("ko", "char"), ("th", "char"), ("ja", "char")],
)
def test_bleu_is_that_of_sacrebleu_with_the_tokenizer_of_the_language(
    language: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as if the Japanese and Korean dictionaries were not installed
    monkeypatch.setattr(bleu_chrf, "PACKAGES", {"ja-mecab": ("no_such_package",), "ko-mecab": ("no_such_package",)})
    gold, said = corpus(language)
    found = text_scores(gold, said)
    assert found["bleu"] == sacrebleu.corpus_bleu(said, [gold], tokenize=tokenizer).score > 10
    assert found["bleu_tokenizer"] == tokenizer and f"tok:{tokenizer}|" in found["bleu_signature"]
    assert found["chrf"] == chrf(gold, said) == sacrebleu.corpus_chrf(said, [gold]).score
    assert ("bleu_words" in found) is (language not in JOIN)


def test_a_chinese_target_no_longer_scores_0() -> None:
    gold, said = corpus("zh")
    assert bleu(gold, said, "13a") < 1 < 40 < bleu(gold, said)
    assert bleu(gold, said, "zh") == bleu(gold, said)


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("使用 PyTorch 训练 Transformer 模型", "zh"),
        ("She said 你好 to everybody in the room.", "13a"),
        ("我喜欢看の字", "ja-mecab"),
        ("漢字とかな", "ja-mecab"),
        ("", "13a"),
        ("12 + 3 = 15", "13a"),
    ],
)
def test_the_script_is_that_of_most_letters(text: str, tokenizer: str) -> None:
    assert detect_tokenizer([text]) == tokenizer


def test_a_named_tokenizer_goes_first_and_one_that_is_not_there_is_refused() -> None:
    gold, said = corpus("zh")
    assert BleuScorer("char")(gold, said).tokenize == "char"
    wrong: Any = "zhh"
    with pytest.raises(AlchemyError, match="unknown sacrebleu tokenizer 'zhh'; choose one of 13a, intl, zh"):
        BleuScorer(wrong)


def test_a_tokenizer_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu_chrf, "PACKAGES", {"ja-mecab": ("no_such_package",)})
    with pytest.raises(AlchemyError, match=r"'ja-mecab' needs the package no_such_package; install .*sacrebleu\[ja\]"):
        BleuScorer("ja-mecab")


def test_what_was_chosen_and_a_score_of_0_are_said_once() -> None:
    count = BleuScorer()
    with warned("INFO") as lines:
        for _ in range(2):
            count(["我放弃。"], ["我放弃。"])
            assert count(["我放弃。"], ["dog dog dog dog"]).score == 0
            assert count(["我放弃。"], [""]).score == 0
    assert lines[0].startswith("computing BLEU with the tokenizer 'zh'")
    assert lines[1].startswith("BLEU is 0, but 1 of 1 predictions are not empty; check tokenize = 'zh' (predicted ")
    assert len(lines) == 2
