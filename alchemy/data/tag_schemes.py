"""Convert between tags such as `B-PER` and spans, in all common tagging schemes.

Spans are `[start, end, type]` with an exclusive end. Internally, the letters of all schemes are mapped to BIOES.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Literal

from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow
from alchemy.errors import AlchemyError, did_you_mean

SchemeName = Literal["", "BIO", "IOB1", "BIOES", "BMES", "BILOU"]  # "": no scheme

# the letters for the first, inner, last and only token of a span
LETTERS = {"BIO": "BIIB", "IOB1": "IIII", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}
PLAIN = {
    "BIO": {"B": "B", "I": "I"},
    "IOB1": {"B": "B", "I": "I"},
    **{name: dict(zip(LETTERS[name], "BIES", strict=True)) for name in ("BIOES", "BMES", "BILOU")},
}


class Scheme:
    """A tagging scheme. With `begins`, an inner tag that does not continue a span begins a new one.

    >>> Scheme("BIO").spans(["B-PER", "I-PER", "O", "B-LOC"])
    [[0, 2, 'PER'], [3, 4, 'LOC']]
    >>> Scheme("BMES").tags([[0, 2, "PER"], [3, 4, "LOC"]], 4)
    ['B-PER', 'E-PER', 'O', 'S-LOC']
    """

    def __init__(self, name: str, *, begins: bool = False) -> None:
        if name not in LETTERS:
            hint = did_you_mean(name, LETTERS) or f"choose {', '.join(LETTERS)}"
            raise AlchemyError(f"unknown scheme {name!r}", hint=hint)
        self.name = name
        self.begins = begins or name == "IOB1"

    def read(self, tag: str) -> tuple[str, str]:
        """Return the letter and the type of a tag; raise BadRow if it is not in the scheme."""
        return _read(self.name, tag)

    def may_follow(self, before: str, tag: str) -> bool:
        """Return whether `tag` may follow `before`; use `O` before the first and after the last tag."""
        return _may_follow(self.name, before, tag)

    def violations(self, tags: Sequence[str]) -> list[int]:
        """Return the positions of tags that may not follow the previous tag; `len(tags)` is the end of the sentence."""
        pairs = pairwise(["O", *tags, "O"])
        return [position for position, pair in enumerate(pairs) if not _may_follow(self.name, *pair)]

    def describe_violation(self, tags: Sequence[str], place: int) -> str:
        """Return a message for the violation at position `place`."""
        if place == len(tags):
            return f"the sentence ends after {tags[-1]}, which {self.name} does not allow"
        before = f"follows {tags[place - 1]}" if place else "is at the beginning"
        return f"the tag {tags[place]} {before}, which {self.name} does not allow"

    def spans(self, tags: Sequence[str]) -> list[list[int | str]]:
        """Return the spans of a sentence. Inner tags that do not continue a span are ignored unless `begins` is set."""
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
        """Return the tags of a sentence with `length` tokens; raise BadRow if spans overlap."""
        first, inner, last, only = tuple(LETTERS[self.name])
        tags = ["O"] * length
        before: Sequence[int | str] = (0, 0, "")
        for start, end, kind in sorted(spans, key=lambda span: span[0]):
            start, end = int(start), int(end)
            if start < int(before[1]):
                raise BadRow(f"the spans {list(before)} and {[start, end, kind]} overlap, which tags cannot represent")
            letters = [first, *inner * (end - start - 2), last] if end - start > 1 else [only]
            if self.name == "IOB1" and before[1] == start and before[2] == kind:
                letters[0] = "B"  # IOB1 marks the first token only after a span of the same type
            tags[start:end] = [f"{letter}-{kind}" for letter in letters]
            before = (start, end, kind)
        return tags

    def in_bioes(self, tags: Sequence[str]) -> list[str]:
        """Convert tags to BIOES, which the metrics use."""
        return Scheme("BIOES").tags(self.spans(tags), len(tags))

    def all_tags(self, types: Sequence[str]) -> list[str]:
        """Return all possible tags: `O`, then the tags of each type."""
        letters = list(dict.fromkeys(("B" if self.name == "IOB1" else "") + LETTERS[self.name]))
        return ["O", *(f"{letter}-{kind}" for kind in types for letter in letters)]


class NoScheme(Scheme):
    """Tags that do not encode spans, such as parts of speech: any tag may follow any other."""

    name = ""

    def __init__(self) -> None:
        pass

    def read(self, tag: str) -> tuple[str, str]:
        return "", tag

    def may_follow(self, before: str, tag: str) -> bool:
        return True

    def violations(self, tags: Sequence[str]) -> list[int]:
        return []


@cache  # there are few distinct tags
def _read(scheme: str, tag: str) -> tuple[str, str]:
    letter, _, kind = tag.partition("-")
    if tag == "O":
        return "O", ""
    if letter not in PLAIN[scheme] or not kind:
        expected = ", ".join(["O", *(f"{letter}-TYPE" for letter in PLAIN[scheme])])
        raise BadRow(f"the tag {shorten(tag)} is not a {scheme} tag, expected {expected}")
    return PLAIN[scheme][letter], kind


@cache
def _may_follow(scheme: str, before: str, tag: str) -> bool:
    (last, old), (letter, new) = _read(scheme, before), _read(scheme, tag)
    is_open, continues = last in "BI", letter in "IE"
    if scheme != "IOB1" and (continues or (is_open and "E" in PLAIN[scheme].values())):
        return is_open and continues and old == new
    return True
