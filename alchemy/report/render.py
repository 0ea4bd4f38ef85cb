"""Write the contents of a report as one HTML page that needs no other file and can load none.

The page is text: all data is in a JSON block, which a script that belongs to alchemy shows with `textContent`. The
content security policy allows only this script and this style sheet, by their hashes, and images inside the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from alchemy.analysis.record_table import html_table
from alchemy.errors import printable

PARTS = ("page.html", "page.css", "elements.js", "blocks.js", "chart.js", "media.js", "page.js")


def render_page(contents: Mapping[str, Any]) -> str:
    """Return a report, from the contents that `build_report` has collected, as HTML."""
    page, style, *scripts = (files("alchemy.report").joinpath("page", name).read_text("utf-8") for name in PARTS)
    script = "".join(scripts)
    clean = make_inert(contents)
    data = json.dumps(clean, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
    policy += "base-uri 'none'; form-action 'none'"
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(str(clean["title"])),
        "STYLE": style,
        "NUMBERS": _summarize(clean),
        "DATA": data.replace("<", "\\u003c"),  # so that no text ends the block
        "SCRIPT": script,
    }
    # in one pass: what one part contains is never taken for the mark of another
    first, *rest = page.split("{{")
    pieces = [(parts[name], text) for name, _, text in (piece.partition("}}") for piece in rest)]
    return first + "".join(part + text for part, text in pieces)


def make_inert(value: Any) -> Any:
    """Return JSON values whose texts have no control characters, and whose numbers are all finite.

    >>> make_inert({"a": ["\\x1b[31m", float("nan")]})
    {'a': ['\\\\u001b[31m', 'nan']}
    """
    if isinstance(value, str):
        return printable(value).encode("utf-8", "replace").decode("utf-8")  # lone surrogates become question marks
    if isinstance(value, Mapping):
        return {make_inert(str(key)): make_inert(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [make_inert(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _summarize(page: Mapping[str, Any]) -> str:
    """Return the numbers as an HTML table, for programs that do not run scripts, such as the preview of a mail."""
    sections = {section["id"]: section.get("blocks", []) for section in page["sections"]}
    tables = [block for block in _unfold(sections.get("numbers", [])) if block["kind"] == "table"]
    letters = [group["letter"] for group in page["groups"]]
    lines = [
        [_to_text(cell, letters) for cell in line]
        for block in tables[:1]
        for line in (block["columns"], *block["rows"])
    ]
    return html_table(lines) if lines else ""


def _unfold(blocks: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for block in blocks:
        yield from _unfold(block["value"]) if block["kind"] == "fold" else [block]


def _to_text(cell: object, letters: Sequence[str]) -> str:
    if not isinstance(cell, dict):
        return str(cell or "")
    return letters[cell["group"]] if "group" in cell else f"{cell['text']}{cell['small'] or ''}"
