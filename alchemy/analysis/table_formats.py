"""Result tables as LaTeX, Markdown, CSV, HTML and JSON. All text is escaped; `code` in backticks stays code."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable
from typing import Any

from alchemy.analysis.tables import ResultTable, TableCell
from alchemy.errors import printable

_CODE = re.compile(r"`([^`]+)`")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", '"': "{''}", "±": r"$\pm$", "†": r"$\dagger$",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after a line break, LaTeX would read them as arguments of the break
}  # fmt: skip
_MARKDOWN = re.compile(r"([\\`*_\[\]|])")


def to_latex(table: ResultTable) -> str:
    """Format a table with the rules of the LaTeX package booktabs."""
    text = _render_text(escape_latex, r"\texttt{%s}")
    columns = "".join("l" if _is_text(table, place) else "r" for place in range(len(table.columns)))
    caption = text(table.file.spec.caption or table.file.spec.title)
    label = re.sub(r"[^A-Za-z0-9.-]", "-", table.file.name)
    lines = [f"% {note}" for note in _notes(table)]
    lines += [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}"] if caption else []
    lines += [rf"\begin{{tabular}}{{l{columns}}}", r"\toprule"]
    lines += [" & ".join(text(name) for name in _header(table)) + r" \\", r"\midrule"]
    for row, cells in zip(table.rows, table.cells, strict=True):
        shown = (_emphasize(cell, text, r"\textbf{%s}", r"\underline{%s}", r" $\pm$ ") for cell in cells)
        lines.append(" & ".join([text(row.name), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def to_markdown(table: ResultTable) -> str:
    """Format a table as a table of GitHub Markdown, followed by its caption and the sources of cells."""
    text = _render_text(escape_markdown, "`%s`", lambda part: part.replace("|", "\\|"))
    numbers = ["---" if _is_text(table, place) else "---:" for place in range(len(table.columns))]
    lines = [_markdown_row(map(text, _header(table))), f"|---|{'|'.join(numbers)}|"]
    for row, cells in zip(table.rows, table.cells, strict=True):
        shown = (_emphasize(cell, text, "**%s**", "<u>%s</u>", " ± ") for cell in cells)
        lines.append(_markdown_row([text(row.name), *shown]))
    caption = text(table.file.spec.caption)
    lines += ["", caption] if caption else []
    sources = [f"- {text(', '.join(cells))}: {text(source)}" for source, cells in table.sources().items()]
    return "\n".join([*lines, "", *sources] if sources else lines)


def to_html(table: ResultTable) -> str:
    """Format a table as an HTML element that needs no style sheet; the sources of cells are shown as tooltips."""
    text = _render_text(html.escape, "<code>%s</code>")
    title = text(table.file.spec.caption or table.file.spec.title)
    lines = ["<table>", *([f"<caption>{title}</caption>"] if title else [])]
    lines.append(
        "<thead><tr>" + "".join(f'<th scope="col">{text(name)}</th>' for name in _header(table)) + "</tr></thead>"
    )
    lines.append("<tbody>")
    for row, cells in zip(table.rows, table.cells, strict=True):
        shown = [f'<th scope="row">{text(row.name)}</th>']
        for cell in cells:
            mark = " <sup>†</sup>" if cell.stale else ""
            hint = "; ".join(filter(None, [cell.source, f"stale: {cell.stale}" if cell.stale else ""]))
            title = f' title="{html.escape(_clean(hint))}"' if hint else ""
            inside = _emphasize(cell, text, "<strong>%s</strong>", "<u>%s</u>", " ± ")
            shown.append(f"<td{title}>{inside}{mark}</td>")
        lines.append(f"<tr>{''.join(shown)}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def to_csv(table: ResultTable) -> str:
    """Format a table as CSV, with numbers in full precision; `std` and `n` get their own columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    spread = [
        any(line[place].spread or line[place].n > 1 for line in table.cells) for place in range(len(table.columns))
    ]
    header: list[object] = [table.first_column]
    for column, wide in zip(table.columns, spread, strict=True):
        header += [column.name, f"{column.name} std", f"{column.name} n"] if wide else [column.name]
    writer.writerow(map(_csv_cell, header))
    for row, cells in zip(table.rows, table.cells, strict=True):
        line: list[object] = [row.name]
        for cell, wide in zip(cells, spread, strict=True):
            line += [cell.text if cell.value is None else cell.value]
            line += ["" if cell.std is None else cell.std, cell.n or ""] if wide else []
        writer.writerow(map(_csv_cell, line))
    return out.getvalue().removesuffix("\n")


def to_data(table: ResultTable) -> dict[str, Any]:
    """Return a table as data for JSON."""
    spec = table.file.spec
    rows = []
    for row, cells in zip(table.rows, table.cells, strict=True):
        named = {
            column.name: _cell_data(cell)
            for column, cell in zip(table.columns, cells, strict=True)
            if str(cell) or cell.stale
        }
        rows.append({"name": row.name, "cells": named})
    return {
        "name": table.file.name,
        "path": str(table.file.path),
        "title": spec.title,
        "caption": spec.caption,
        "columns": [column.name for column in table.columns],
        "rows": rows,
        "warnings": [str(warning) for warning in table.warnings],
    }


def escape_latex(text: str) -> str:
    r"""
    >>> print(escape_latex("R&D_50% ± 1 --x"), escape_latex("-1.5"))
    R\&D\_50\% $\pm$ 1 -{}-x $-$1.5
    """
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"^-(?=[\d.])", "$-$", re.sub(r"-(?=-)", "-{}", escaped))  # two hyphens would become a dash


def escape_markdown(text: str) -> str:
    r"""
    >>> print(escape_markdown("<b> a_b | *c*"))
    &lt;b> a\_b \| \*c\*
    """
    return _MARKDOWN.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def safe_cell(value: object) -> object:
    """Return a CSV cell that a spreadsheet does not evaluate as a formula, without control characters.

    >>> safe_cell("=1+1"), safe_cell(-0.5), safe_cell("-0.5")
    ("'=1+1", -0.5, '-0.5')
    """
    value = printable(value) if isinstance(value, str) else value
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def _csv_cell(value: object) -> object:
    return safe_cell(_clean(value)) if isinstance(value, str) else value


def _cell_data(cell: TableCell) -> dict[str, Any]:
    data: dict[str, Any] = {"text": str(cell), "kind": cell.kind}
    for name, number in (("value", cell.value), ("std", cell.std)):
        if number is not None:
            data[name] = number if math.isfinite(number) else str(number)
    extra = {"n": cell.n, "rank": cell.rank, "source": cell.source, "stale": cell.stale, "runs": list(cell.runs)}
    return data | {name: value for name, value in extra.items() if value}


def _clean(text: str) -> str:
    """Return a text on one line, without control characters."""
    return printable(" ".join(text.split()))


def _render_text(
    escape: Callable[[str], str], code: str, escape_code: Callable[[str], str] | None = None
) -> Callable[[str], str]:
    """Return a function that escapes a text and formats the parts in backticks as code."""

    def render(text: str) -> str:
        parts = _CODE.split(_clean(text))  # code is at odd positions
        return "".join(
            code % (escape_code or escape)(part) if place % 2 else escape(part) for place, part in enumerate(parts)
        )

    return render


def _emphasize(cell: TableCell, text: Callable[[str], str], best: str, second: str, plus_minus: str) -> str:
    """Format a cell; only the number itself is bold or underlined."""
    shown = text(cell.text)
    shown = best % shown if cell.rank == 1 else second % shown if cell.rank == 2 else shown
    shown += f"{plus_minus}{cell.spread}" if cell.spread else ""
    return f"{shown} ({cell.n})" if cell.n > 1 else shown


def _header(table: ResultTable) -> list[str]:
    return [table.first_column, *(column.name for column in table.columns)]


def _markdown_row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _is_text(table: ResultTable, place: int) -> bool:
    """Return whether a column contains text; empty cells do not count."""
    return any(line[place].text and line[place].value is None for line in table.cells)


def _notes(table: ResultTable) -> list[str]:
    """Return the comments at the top of a LaTeX table."""
    lines = [f"`alchemy table show {table.file.name} --format latex`; needs the package booktabs"]
    lines += [f"{', '.join(cells)}: {source}" for source, cells in table.sources().items()]
    return [_clean(line) for line in lines]
