"""Show where a text was found in a record: the field, and the words around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.words import LONGEST, is_cjk, is_prefix, query_terms
from alchemy.records.failure import read_traceback
from alchemy.records.readme import read_text

AROUND = 40  # characters on each side of a match
MAX_MATCHES = 3  # per record
_IN_README = ("tag", "purpose", "tags", "notes")


class Match(NamedTuple):
    """A match: the field, the text around it, and the places of the words in this text."""

    where: str
    text: str
    spans: list[tuple[int, int]]


def search(index: RecordIndex, text: str, *, kind: str = "") -> list[int]:
    """Return the ids of the records that contain all words of a text, newest first."""
    if not query_terms(text):
        raise AlchemyError(f"there is no word to search for in {text!r}")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return [record for (record,) in index.query_groups(f'"{quoted}"', kind=kind, fold=False)]


def find_matches(index: RecordIndex, rows: Sequence[Row], text: str) -> dict[int, list[Match]]:
    """Return where each record contains words of a text; the fields with most of the words come first."""
    terms = query_terms(text)
    pattern = _compile(terms)
    configs = index.config(rows)
    found: dict[int, list[Match]] = {}
    for row in rows:
        matches = [_excerpt(where, own, pattern) for where, own in _fields(row, configs[row.id]) if pattern.search(own)]
        if any(match.where in _IN_README for match in matches):
            matches = [match for match in matches if match.where != "README"]
        found[row.id] = sorted(matches, key=lambda match: -len(_words(match)))[:MAX_MATCHES]
    return found


def _fields(row: Row, config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield "tag", row.tag
    yield "purpose", row.purpose
    yield "tags", ", ".join(row.tag_list)
    yield "notes", row.notes
    yield "reason", row.reason
    yield "variant", row.variant
    yield from (("config", f"{key} = {value}") for key, value in config.items() if key != "tag")
    yield "README", read_text(row.folder)
    yield "command", row.cmd
    if row.status == "failed":
        yield "traceback", read_traceback(row.folder)


def _compile(terms: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for words and their prefixes, and for Chinese characters anywhere."""
    parts = []
    for term in dict.fromkeys(terms):
        end = r"(?![^\W_])" if len(term) < LONGEST and not is_prefix(term) else ""
        # a lookahead, so that the overlapping pairs of a longer Chinese word are all found
        parts.append(re.escape(term) if is_cjk(term) else rf"(?<![^\W_]){re.escape(term)}{end}")
    return re.compile(f"(?=({'|'.join(parts)}))", re.IGNORECASE)


def _excerpt(where: str, text: str, pattern: re.Pattern[str]) -> Match:
    """Return the part of a text around its first match."""
    first = pattern.search(text)
    assert first is not None
    start = first.start(1) - AROUND if first.start(1) > 1.5 * AROUND else 0
    shown = text[start : first.end(1) + AROUND]
    head, tail = "…" if start else "", "…" if start + len(shown) < len(text) else ""
    shown = re.sub(r"\s", " ", f"{head}{shown}{tail}")
    return Match(where, shown, _merge([match.span(1) for match in pattern.finditer(shown)]))


def _merge(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap or touch.

    >>> _merge([(0, 2), (1, 3), (3, 4), (6, 7)])
    [(0, 4), (6, 7)]
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _words(match: Match) -> set[str]:
    return {match.text[start:end].lower() for start, end in match.spans}
