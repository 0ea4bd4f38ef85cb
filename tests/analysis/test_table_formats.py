"""Result tables in other formats: everything is escaped."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.table_files import parse_table
from alchemy.analysis.table_formats import escape_latex, to_csv, to_data, to_html, to_latex, to_markdown
from alchemy.analysis.tables import ResultTable, TableCell
from alchemy.config.toml_writer import format_inline

TEXT = 'title = "T"\ncaption = "100% of `a_b`"\nmetric = "f1_x"\nfirst_column = "model"\n'


def make(*names: str, cells: tuple[TableCell, ...] = ()) -> ResultTable:
    rows = "".join(f"[[rows]]\nname = {format_inline(name)}\n" for name in names)
    file = parse_table(TEXT + rows, Path("tables/t.toml"))
    given = cells or tuple(TableCell(str(place), value=float(place)) for place in range(len(names)))
    return ResultTable(file, list(file.rows), list(file.columns), [[cell] for cell in given], [])


CELLS = (
    TableCell("91.20", "0.50", 3, 91.2, 0.5, "computed", rank=1),
    TableCell("-1.5", value=-1.5, kind="typed", source="A & B", rank=2),
    TableCell("`x|y` | <b>", kind="typed", stale="old"),
)
NAMES = ("A&B", "[c]", "=1+1")


def test_latex() -> None:
    lines = to_latex(make(*NAMES, cells=CELLS)).splitlines()
    assert lines[1:] == [
        "% [c] / f1_x: A & B",
        r"\begin{table}",
        r"\centering",
        r"\caption{100\% of \texttt{a\_b}}",
        r"\label{tab:t}",
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"model & f1\_x \\",
        r"\midrule",
        r"A\&B & \textbf{91.20} $\pm$ 0.50 (3) \\",
        r"{[}c{]} & \underline{$-$1.5} \\",
        r"=1+1 & \texttt{x\textbar{}y} \textbar{} \textless{}b\textgreater{} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_markdown() -> None:
    assert to_markdown(make(*NAMES, cells=CELLS)).splitlines() == [
        r"| model | f1\_x |",
        "|---|---|",
        "| A&amp;B | **91.20** ± 0.50 (3) |",
        r"| \[c\] | <u>-1.5</u> |",
        r"| =1+1 | `x\|y` \| &lt;b> |",
        "",
        "100% of `a_b`",
        "",
        r"- \[c\] / f1\_x: A &amp; B",
    ]


def test_csv_has_full_numbers_and_no_formulas() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(make(*NAMES, cells=CELLS)))))
    assert rows == [
        ["model", "f1_x", "f1_x std", "f1_x n"],
        ["A&B", "91.2", "0.5", "3"],
        ["[c]", "-1.5", "", ""],
        ["'=1+1", "`x|y` | <b>", "", ""],
    ]


def test_html_and_json() -> None:
    text = to_html(make(*NAMES, cells=CELLS))
    assert '<td title="A &amp; B"><u>-1.5</u></td>' in text
    assert '<td title="stale: old"><code>x|y</code> | &lt;b&gt; <sup>†</sup></td>' in text
    data = json.loads(json.dumps(to_data(make(*NAMES, cells=CELLS)), allow_nan=False))
    assert data["rows"][0]["cells"]["f1_x"] == {
        "text": "91.20 ± 0.50 (3)", "kind": "computed", "value": 91.2, "std": 0.5, "n": 3, "rank": 1,
    }  # fmt: skip


HOSTILE = st.text(st.sampled_from(list("ab \\{}$&#%_^~<>|`\"'*[]-=+@\n\r\t\x1b\x00损")), min_size=1, max_size=12)


@given(HOSTILE, HOSTILE)
def test_no_text_can_leave_its_cell(name: str, value: str) -> None:
    table = make(f"x{name}", cells=(TableCell(value, kind="typed", source=value),))
    (row,) = re.findall(r"\\midrule\n(.*)\n\\bottomrule", to_latex(table))
    plain = re.sub(r"\\[{}$&#%_]", "", row)
    assert plain.count(" & ") == 1 and plain.endswith(r" \\") and "%" not in plain and "#" not in plain
    assert len(re.findall(r"(?<!\\)\|", to_markdown(table).splitlines()[2])) == 3
    assert len(list(csv.reader(io.StringIO(to_csv(table))))) == 2
    tags: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(to_html(table))
    assert set(tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "code"}
    for text in (to_latex(table), to_markdown(table), to_csv(table), to_html(table)):
        assert "\x1b" not in text and "\x00" not in text and "\r" not in text


@pytest.mark.parametrize("letter", list("\\{}$&#%_^~"))
def test_latex_escapes_every_special_character(letter: str) -> None:
    assert re.fullmatch(r"\\([{}$&#%_]|text[a-z]+\{\})", escape_latex(letter))
