"""Common names of columns and files, and their meanings."""

from __future__ import annotations

import re

_NAMES = {
    "text": """text texts sentence sent content title headline review comment body message tweet document doc abstract
        question query utterance description summary input 文本 内容 标题 正文 句子 评论 评价 问题 新闻 文章 摘要""",
    "label": """label labels category categories class target sentiment polarity topic intent tag tags rating stars
        score type emotion relation y is_duplicate gold_label similarity
        标签 类别 分类 类目 情感 主题 意图 评分 种类 类型 相似度""",
    "first": """sentence1 sentence_1 text1 text_1 text_a sentence_a premise question1 question_1 q1 query s1
        句子1 文本1 问题1 前提""",
    "second": """sentence2 sentence_2 text2 text_2 text_b sentence_b hypothesis question2 question_2 q2 answer passage
        document title s2 pair 句子2 文本2 问题2 假设""",
    "source": "source src source_text en eng english input 英文 原文 源文",
    "target": """target tgt trg target_text translation zh cmn chinese de german fr french ja es ru output 中文 译文""",
    "id": "id idx index uid guid uuid no number row key docid pairid unnamed:_0 编号 序号",
}
# most specific names first
NAMES = {what: tuple(listed.split()) for what, listed in _NAMES.items()}
KNOWN = frozenset(name for listed in NAMES.values() for name in listed)

SPLITS = {
    "train": ("train", "training", "trn"),
    "dev": ("dev", "valid", "val", "validation", "develop", "devel"),
    "test": ("test", "tst", "testing"),
}


def normalize(name: str) -> str:
    """Normalize a name for lookup: lower case, with underscores between words.

    >>> normalize(" Sentence 1"), normalize("reviewText")
    ('sentence_1', 'review_text')
    """
    return re.sub(r"[\s\-.]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())).lower()


def rank(name: str, what: str) -> tuple[int, bool] | None:
    """Return a sort key for how well a name matches a meaning; None if it contains no known word.

    >>> rank("label", "label") < rank("topic", "label") < rank("star_rating", "label"), rank("text_id", "text")
    (True, None)
    """
    known, words = NAMES[what], normalize(name).split("_")
    if normalize(name) in known:
        return known.index(normalize(name)), False
    places = [known.index(word) for word in words if word in known]
    return (min(places), True) if places and not set(words) & set(NAMES["id"]) else None


def split_of(file: str) -> str:
    """Return the split that a file name refers to, or "".

    >>> split_of("TREC.train.all"), split_of("test_2016_flickr.en"), split_of("valid.tsv.gz"), split_of("latest.csv")
    ('train', 'test', 'dev', '')
    """
    words = re.split(r"[\W_]+", file.lower())
    return next((split for word in words for split, names in SPLITS.items() if word in names), "")
