"""The pages of the documentation site, without building it."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from types import ModuleType

import pytest

from tools.docsite import pages, reference

NAV = pages.navigation()


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(pages.list_pages(NAV))
    assert {page: times for page, times in listed.items() if times > 1} == {}
    assert {file.name for file in (pages.ROOT / "docs").glob("*.md")} - set(listed) == set()


def test_every_entry_of_the_navigation_is_a_file() -> None:
    assert [page for page in pages.list_pages(NAV) if not (pages.ROOT / pages.repository_path(page)).is_file()] == []


def test_the_navigation_has_the_four_kinds_of_documentation() -> None:
    groups = [title for group in NAV for title in group]
    assert groups[:5] == ["Home", "Tutorials", "How-to guides", "Reference", "Explanation"]
    assert "中文" in groups


def test_every_part_is_in_the_api_reference() -> None:
    names = reference.names()
    text = "\n".join(reference.markdown(page, rows) for page, rows in names.items())
    rendered = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    parts = [name for _, name in reference.part_paths()]  # as `alchemy parts` lists them
    assert len(parts) > 100
    assert [name for name in parts if name not in rendered and f'type = "{name}"' not in text] == []
    assert len(rendered) == text.count("\n::: ")  # none twice


def test_every_top_level_name_is_in_the_api_reference() -> None:
    listed = {row.path.rpartition(".")[2] for row in reference.names()["alchemy"]}
    assert listed == set(reference.exports("alchemy"))


def test_links_and_blocks_are_rewritten() -> None:
    text = (
        "[a](../README.md#x) [b](run.md) [c](../alchemy/loop.py) [d](https://e.f) `[g](../h) <!-- i -->`\n\n"
        "<!-- not run: no -->\n```toml\n# file: a/b.toml\nx = 1  # [y](z.md)\n```\n"
        "<!-- output -->\n```text\n<!-- kept -->\n```\n"
    )
    assert pages.site_markdown(text, "docs/config.md") == (
        "[a](readme.md#x) [b](run.md) [c](source/alchemy/loop.py.md) [d](https://e.f) `[g](../h) <!-- i -->`\n\n"
        '```toml title="a/b.toml"\nx = 1  # [y](z.md)\n```\n'
        "```{ .text .output .no-copy }\n<!-- kept -->\n```\n"
    )


def test_code_in_a_table_has_its_bars() -> None:
    assert pages.site_markdown("| a |\n|---|\n| `b \\| c` |\n", "docs/config.md") == "| a |\n|---|\n| `b | c` |\n"


def test_a_link_from_outside_docs_is_rewritten() -> None:
    assert pages.site_markdown("[a](docs/run.md#its-life)", "README.md") == "[a](run.md#its-life)"
    assert pages.site_markdown("[a](../docs/run.md)", "recipes/README.md") == "[a](run.md)"


@pytest.mark.parametrize("module", [pages, reference], ids=lambda module: module.__name__)
def test_examples_of_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
