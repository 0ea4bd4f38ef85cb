"""Processor for sequence tagging files with one token per line, such as CoNLL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.data.files import lines_of
from alchemy.data.messages import in_short
from alchemy.data.tables import BadRow, OnBad, Rows
from alchemy.data.tag_schemes import Scheme, SchemeName
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.processors.samples import FromFiles, convert_rows


@DataPipeline.register()
class Tagging(FromFiles, LstDataPipeline):
    """Reads lines of the form `token tag` with an empty line between sentences, as in CoNLL files.

    A sample has `tokens`, `tags`, `tag_ids` if the tags are known (from `types`, which the scheme expands to tags, or
    from `tags`, a list or a file), and, with a `scheme`, `spans` as `[start, end, type]`. `to` converts the tags to
    a different scheme. A tag sequence that violates its scheme makes a row bad, unless `violations` sets how to treat a
    tag that continues a span that never began: `"drop"` ignores it, and `"begin"` starts a span, as conlleval does.
    The number of violations is then logged, and `tags` is unchanged unless `to` is set.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        scheme: SchemeName = "",
        to: SchemeName = "",
        types: list[str] | str | None = None,
        tags: list[str] | str | None = None,
        token: int = 0,
        tag: int = -1,
        tagged: bool = True,
        delimiter: str = "",
        violations: Literal["error", "drop", "begin"] = "error",
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.scheme, self.to, self.violations = path, scheme, to, violations
        self.token, self.tag, self.tagged = token, tag, tagged
        self.delimiter, self.encoding = delimiter, encoding
        self.source = Scheme(scheme, begins=violations == "begin") if scheme else None
        self.target = Scheme(to) if to else None
        self.types = read_labels(types, what="types").names
        self.known = read_labels(self._tag_list(tags), what="tags")
        self.tags = self.known.names
        self.seen: set[str] = set()
        self.broken: list[str] = []
        self.fill(path, self._read, bad)
        keep_labels(self.tags, "tag_ids")
        if self.broken:
            text = "{} tags violate the scheme {}, the first at {}"
            logger.warning(text, len(self.broken), scheme, self.broken[0])

    def _tag_list(self, tags: list[str] | str | None) -> list[str] | str | None:
        scheme = self.target or self.source
        return scheme.all_tags(self.types) if self.types and scheme else tags

    def _read(self, path: Path) -> Rows:
        listed = lines_of(path, self.encoding)
        strange = next((number for number, line in enumerate(listed, 1) if "\r" in line.rstrip("\r")), 0)
        if strange:
            hint = "a lone carriage return is not a line ending: use Unix or Windows line endings"
            raise AlchemyError("carriage return inside a line", where=f"{path}:{strange}", hint=hint)
        rows = list(_sentences(listed))
        width = self._count_columns(f"{path}:{rows[0][0]}", rows[0][1][0]) if rows else 0
        return convert_rows(
            ((first, (first, lines)) for first, lines in rows), lambda row: self._sample(path, row[0], row[1], width)
        )

    def _cells(self, line: str) -> list[str]:
        if not self.delimiter:
            return line.split()
        return [cell.strip() or cell for cell in line.split(self.delimiter)]  # a token may be whitespace

    def _count_columns(self, where: str, line: str) -> int:
        """Return the number of columns of the first line."""
        width = len(self._cells(line))
        for name, column in {"token": self.token, **({"tag": self.tag} if self.tagged else {})}.items():
            if not -width <= column < width:
                raise AlchemyError(f"no column {column} for {name}: the line has {width} columns", where=where)
        if self.tagged and self.token % width == self.tag % width:
            hint = "set the delimiter, or tagged = false for a file without tags"
            raise AlchemyError("token and tag are the same column", where=where, hint=hint)
        return width

    def _sample(self, path: Path, first: int, lines: list[str], width: int) -> dict[str, Any]:
        rows = [self._cells(line) for line in lines]
        uneven = next((place for place, row in enumerate(rows) if len(row) != width), None)
        if uneven is not None:
            hint = "" if self.delimiter else "; set the delimiter if a token may be whitespace"
            raise BadRow(f"expected {width} cells as in the first line, got {len(rows[uneven])}{hint}", below=uneven)
        # interned, since the vocabulary is much smaller than the data
        sample: dict[str, Any] = {"tokens": [sys.intern(row[self.token]) for row in rows]}
        return sample | self._targets(path, first, [row[self.tag] for row in rows]) if self.tagged else sample

    def _targets(self, path: Path, first: int, tags: list[str]) -> dict[str, Any]:
        if self.source is None:
            tags = [sys.intern(tag) for tag in tags]
            return {"tags": tags} | self.known.numbers("tag_ids", tags)
        if not self.seen.issuperset(tags):
            self._check_tags(self.source, tags)
        self._check_violations(self.source, path, first, tags)
        spans = self.source.spans(tags)
        tags = [sys.intern(tag) for tag in (self.target.tags(spans, len(tags)) if self.target else tags)]
        return {"tags": tags, **self.known.numbers("tag_ids", tags), "spans": spans}

    def _check_tags(self, scheme: Scheme, tags: list[str]) -> None:
        """Validate tags not seen before; raise BadRow with the line of an invalid tag."""
        for place, tag in enumerate(tags):
            try:
                kind = scheme.read(tag)[1]
            except BadRow as error:
                raise BadRow(str(error), below=place) from error
            if self.types and kind and kind not in self.types:
                hint = did_you_mean(kind, self.types)
                text = f"unknown type {kind!r}, expected {in_short(self.types)}"
                raise BadRow(f"{text}; {hint}" if hint else text, below=place)
        self.seen.update(tags)

    def _check_violations(self, scheme: Scheme, path: Path, first: int, tags: list[str]) -> None:
        for place in scheme.violations(tags):
            line = min(place, len(tags) - 1)  # a violation at the end is reported on the last line
            if self.violations == "error":
                problem = scheme.describe_violation(tags, place)
                raise BadRow(f"{problem}; set violations = 'drop' to count such tags instead", below=line)
            self.broken.append(f"{path}:{first + line}")


def _sentences(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield `(first line number, lines)` for each sentence; a CoNLL `-DOCSTART-` line also ends a sentence."""
    start = 0
    for place, line in enumerate([*lines, ""]):
        if not line or line.isspace() or line.startswith("-DOCSTART-"):
            if start < place:
                yield start + 1, lines[start:place]
            start = place + 1
