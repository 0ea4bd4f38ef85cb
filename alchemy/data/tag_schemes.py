"""Tags such as `B-PER` and the spans that they stand for, in every common scheme.

Spans are `[start, end, type]`, the end not included. Inside, the letters of all schemes are those of BIOES.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Literal

from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow
from alchemy.errors import AlchemyError, did_you_mean

SchemeName = Literal["", "BIO", "IOB1", "BIOES", "BMES", "BILOU"]  # "": none

# the letters of (first, inner, last, only) of a span
LETTERS = {"BIO": "BIIB", "IOB1": "IIII", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}
PLAIN = {
    "BIO": {"B": "B", "I": "I"},
    "IOB1": {"B": "B", "I": "I"},
    **{name: dict(zip(LETTERS[name], "BIES", strict=True)) for name in ("BIOES", "BMES", "BILOU")},
}


class Scheme:
    """One scheme, with what it has learned of the tags it was shorten: verdicts are looked up, not found again.

    >>> Scheme("BIO").spans(["B-PER", "I-PER", "O", "B-LOC"])
    [[0, 2, 'PER'], [3, 4, 'LOC']]
    >>> Scheme("BMES").tags([[0, 2, "PER"], [3, 4, "LOC"]], 4)
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """

    def __init__(self, name: str, *, begins: bool = False) -> None:
        if name not in LETTERS:
            offer = did_you_mean(name, LETTERS) or f"it may be {', '.join(LETTERS)}"
            raise AlchemyError(f"there is no scheme {name!r}", hint=offer)
        self.name = name
        self.begins = begins or name == "IOB1"

    def read(self, tag: str) -> tuple[str, str]:
        """The letter of a tag and its type; one that the scheme does not have is a bad row."""
        return _read(self.name, tag)

    def may_follow(self, before: str, tag: str) -> bool:
        """Whether a tag may stand behind another; `O` stands before the first one, and behind the last."""
        return _may_follow(self.name, before, tag)

    def violations(self, tags: Sequence[str]) -> list[int]:
        """The places of tags that may not follow the one before them; the end of the sentence is one more place."""
        pairs = pairwise(["O", *tags, "O"])
        return [place for place, pair in enumerate(pairs) if not _may_follow(self.name, *pair)]

    def in_words(self, tags: Sequence[str], place: int) -> str:
        """A violation, told."""
        if place == len(tags):
            return f"the sentence ends after {tags[-1]}, which {self.name} does not allow"
        before = f"follows {tags[place - 1]}" if place else "stands at the beginning"
        return f"the tag {tags[place]} {before}, which {self.name} does not allow"

    def spans(self, tags: Sequence[str]) -> list[list[int | str]]:
        """The spans of a sentence. A tag inside a span that never began belongs to none, or `begins` one."""
        spans: list[list[int | str]] = []
        start, kind = -1, ""
        for place, tag in enumerate(tags):
            letter, own = _read(self.name, tag)
            if start >= 0 and (letter in "OBS" or own != kind):
                spans.append([start, place, kind])
                start = -1
            if start < 0 and (letter in "BS" or (self.begins and letter != "O")):
                start, kind = place, own
            if start >= 0 and letter in "ES":
                spans.append([start, place + 1, kind])
                start = -1
        return spans if start < 0 else [*spans, [start, len(tags), kind]]

    def tags(self, spans: Sequence[Sequence[int | str]], length: int) -> list[str]:
        """The tags of a sentence of some length; spans that overlap have none."""
        first, inner, last, only = tuple(LETTERS[self.name])
        tags = ["O"] * length
        before: Sequence[int | str] = (0, 0, "")
        for start, end, kind in sorted(spans, key=lambda span: span[0]):
            start, end = int(start), int(end)
            if start < int(before[1]):
                raise BadRow(f"the spans {list(before)} and {[start, end, kind]} overlap: no tags can tell them apart")
            letters = [first, *inner * (end - start - 2), last] if end - start > 1 else [only]
            if self.name == "IOB1" and before[1] == start and before[2] == kind:
                letters[0] = "B"  # only there does this scheme mark a beginning
            tags[start:end] = [f"{letter}-{kind}" for letter in letters]
            before = (start, end, kind)
        return tags

    def in_bioes(self, tags: Sequence[str]) -> list[str]:
        """The same spans in tags of BIOES, as scores read them."""
        return Scheme("BIOES").tags(self.spans(tags), len(tags))

    def all_tags(self, types: Sequence[str]) -> list[str]:
        """Every tag that there can be: `O` first, then those of each type."""
        letters = list(dict.fromkeys(("B" if self.name == "IOB1" else "") + LETTERS[self.name]))
        return ["O", *(f"{letter}-{kind}" for kind in types for letter in letters)]


@cache  # of few tags, whatever the number of sentences
def _read(scheme: str, tag: str) -> tuple[str, str]:
    letter, _, kind = tag.partition("-")
    if tag == "O":
        return "O", ""
    if letter not in PLAIN[scheme] or not kind:
        expected = ", ".join(["O", *(f"{letter}-TYPE" for letter in PLAIN[scheme])])
        raise BadRow(f"the tag {shorten(tag)} is not of the scheme {scheme}, expected {expected}")
    return PLAIN[scheme][letter], kind


@cache
def _may_follow(scheme: str, before: str, tag: str) -> bool:
    (last, old), (letter, new) = _read(scheme, before), _read(scheme, tag)
    opened, goes_on = last in "BI", letter in "IE"
    if scheme != "IOB1" and (goes_on or (opened and "E" in PLAIN[scheme].values())):
        return opened and goes_on and old == new
    return True
