"""Processor for relation classification: sentences with two marked entities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from alchemy.constraints import Distinct, NotEmpty, Sign
from alchemy.data.tables import BadRow, FormatName, OnBad, Rows, TableFormat, open_table
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.classification import label_fields, text_field
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.processors.samples import FromFiles, convert_rows


@DataPipeline.register()
class Relation(FromFiles, LstDataPipeline):
    """Reads a label and a text such as `The <e1> company </e1> makes <e2> chairs </e2>.`, as in SemEval-2010.

    A sample has `text` without the markers, its words as `tokens`, `label` and `label_id`. `e1` and `e2` are the marked
    spans `[start, end)` in characters, `e1_tokens` and `e2_tokens` in words. `indicators = ["$", "#"]` inserts one
    of these words on both sides of each entity. With `tokens = "characters"`, for Chinese and similar scripts, every
    non-whitespace character is a token, and so is each indicator.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        label: str | int | None = 0,
        text: str | int = 1,
        labels: list[str] | str | None = None,
        label_by: Literal["name", "index"] = "name",
        marks: Annotated[list[str], NotEmpty(), Distinct()] = ["e1", "e2"],
        indicators: list[str] | None = None,
        tokens: Literal["words", "characters"] = "words",
        format: FormatName = "",
        delimiter: Sign = "",
        header: bool | None = None,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.label, self.text = path, label, text
        self.marked = Marks(marks, indicators, tokens)
        self.known = read_labels(labels, label_by)
        self.labels = self.known.names
        header = not isinstance(text, int) if header is None else header
        self.layout = TableFormat(format, delimiter, header=header, encoding=encoding)
        self.fill(path, self._read, bad)
        keep_labels(self.labels, "label_id")

    def _read(self, path: Path) -> Rows:
        table = open_table(path, self.layout)
        text, label = text_field("text", table.cell(self.text)), label_fields(table, self.label, self.known.single)
        return convert_rows(table.rows, lambda row: self.marked.read(text(row)["text"]) | label(row))


class Marks:
    """Parses texts with markers such as `<e1> .. </e1>` into plain text, tokens and marked spans."""

    def __init__(self, marks: Sequence[str], indicators: Sequence[str] | None = None, tokens: str = "words") -> None:
        self.marks, self.indicators, self.tokens = list(marks), indicators, tokens
        whole = "".join(f"{re.escape(word)}|" for word in indicators or ())
        self.token = re.compile(r"\S+" if tokens == "words" else rf"{whole}\S")
        self.mark = re.compile(rf"(\s*)<(/?)({'|'.join(map(re.escape, marks))})>(\s*)")

    def read(self, text: str) -> dict[str, Any]:
        """Return the fields of a sample; raise BadRow if a marker is missing."""
        plain, place = "", 0
        ends: dict[str, int] = {}
        for match in self.mark.finditer(text):
            plain += text[place : match.start()]
            place = match.end()
            plain, ends[match[2] + match[3]] = self._append_marker(plain, match, ends)
        plain = (plain + text[place:]).rstrip()
        spans = {name: self._span(ends, name) for name in self.marks}
        words = list(self.token.finditer(plain))
        tokens = {f"{name}_tokens": list(_word_range(words, *span)) for name, span in spans.items()}
        return {"text": plain, "tokens": [word[0] for word in words], **spans, **tokens}

    def _append_marker(self, plain: str, match: re.Match[str], ends: dict[str, int]) -> tuple[str, int]:
        """Return the text up to and including a marker, and the position where the entity starts or ends."""
        before, closes, name, after = match.groups()
        if closes + name in ends:
            raise BadRow(f"duplicate marker <{closes}{name}>, expected it once")
        word = self.indicators[self.marks.index(name)] if self.indicators else ""
        # spaces inside the markers are dropped, spaces outside are kept; words must not run together
        outer, inner = (after, before) if closes else (before, after)
        beyond = match.string[match.end() :][:1] if closes else plain[-1:]
        stuck = inner and beyond.isalnum() and self.tokens == "words"
        blank = " " if word or outer or stuck else ""
        if closes:
            return f"{plain} {word}{blank}" if word else plain + blank, len(plain)
        plain = f"{plain}{blank}{word}{' ' * bool(word)}".lstrip()
        return plain, len(plain)

    def _span(self, ends: dict[str, int], name: str) -> list[int]:
        for mark in (name, f"/{name}"):
            if mark not in ends:
                raise BadRow(f"missing marker <{mark}>, expected <{name}> and </{name}> once each")
        start, end = ends[name], ends[f"/{name}"]
        if start >= end:
            raise BadRow(f"no text between <{name}> and </{name}>")
        return [start, end]


def _word_range(words: list[re.Match[str]], start: int, end: int) -> Iterator[int]:
    """Yield the start and the exclusive end of the words that overlap a span."""
    inside = [place for place, word in enumerate(words) if word.start() < end and start < word.end()]
    yield inside[0]
    yield inside[-1] + 1
