"""Processor for texts with labeled spans, one JSON object per line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow, OnBad, Rows, TableFormat, open_table
from alchemy.data.tag_schemes import Scheme, SchemeName
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.classification import text_field
from alchemy.pipeline.processors.labels import keep_labels, name_of, read_labels
from alchemy.pipeline.processors.samples import FromFiles, convert_rows


@DataPipeline.register()
class Spans(FromFiles, LstDataPipeline):
    """Reads lines such as `{"text": "..", "spans": [[0, 2, "PER"]]}`; a span may also be `{"start", "end", "label"}`.

    A sample has `text`, `spans` as `[start, end, label]` in characters with an exclusive end, and, if `labels` is set,
    `label_ids`, one per span. `scheme` adds the characters as `tokens` and their `tags`; spans must then not overlap.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        text: str = "text",
        spans: str = "spans",
        labels: list[str] | str | None = None,
        scheme: SchemeName = "",
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.text, self.spans, self.scheme, self.encoding = path, text, spans, scheme, encoding
        self.known = read_labels(labels)
        self.labels = self.known.names
        self.target = Scheme(scheme) if scheme else None
        all_tags = self.target.all_tags(self.labels) if self.target and self.labels else None
        self.tags = read_labels(all_tags)
        self.fill(path, self._read, bad)
        keep_labels(self.labels, "label_ids")
        keep_labels(self.tags.names, "tag_ids")

    def _read(self, path: Path) -> Rows:
        table = open_table(path, TableFormat("jsonl", encoding=self.encoding))
        text, spans = text_field("text", table.cell(self.text)), table.cell(self.spans)
        return convert_rows(table.rows, lambda row: self._sample(text(row)["text"], spans(row)))

    def _sample(self, text: str, listed: object) -> dict[str, Any]:
        if not isinstance(listed, list):
            raise BadRow(f"the spans are {shorten(listed)}, expected a list [[start, end, label], ..]")
        spans = [_parse_span(item, len(text)) for item in listed]
        sample = {"text": text, "spans": spans, **self.known.numbers("label_ids", [span[2] for span in spans])}
        if self.target is None:
            return sample
        tags = self.target.tags(spans, len(text))
        return sample | {"tokens": list(text), "tags": tags} | self.tags.numbers("tag_ids", tags)


def _parse_span(item: object, length: int) -> list[Any]:
    """Return a span as `[start, end, label]`; raise BadRow if it is not within a text of `length` characters."""
    if isinstance(item, dict):
        item = [item.get(key) for key in ("start", "end", "label")]
    if not isinstance(item, list) or len(item) != 3 or not all(type(number) is int for number in item[:2]):
        raise BadRow(f"the span {shorten(item)} is not [start, end, label]")
    start, end, label = item
    if not 0 <= start < end <= length:
        raise BadRow(f"the span {shorten(item)} is outside the text, which has {length} characters")
    return [start, end, name_of(label)]
