"""Every command, config and code block of the documentation is run, page by page.

A page is a script in a folder of its own. A block whose first line is `# file: NAME` is written to that file; a `bash`
block is run; a `python` block is run in one namespace for the page. A block after `<!-- not run: REASON -->` is left out,
and `<!-- exit: N -->` names the exit code that a command is meant to have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run: [^>]+|exit: \d+) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


class Block(NamedTuple):
    line: int
    kind: str
    body: str
    mark: str

    @property
    def file(self) -> str:
        match = re.match(r"(?:#|//) file: (\S+)\n", self.body)
        return match[1] if match else ""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        yield Block(text[: match.start()].count("\n") + 1, match["kind"], match["body"], match["mark"] or "")


def in_shell(block: Block, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-e", "-c", block.body], cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    expected = int(block.mark.removeprefix("exit: ")) if block.mark else 0
    assert done.returncode == expected, f"line {block.line}: {block.body}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def in_python(blocks: list[Block], folder: Path) -> None:
    script = folder / "page.py"
    script.write_text("\n".join(block.body for block in blocks), "utf-8")
    in_shell(Block(blocks[0].line, "bash", "python page.py", ""), folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    python: list[Block] = []
    ran = 0
    for block in blocks(page):
        assert block.kind in ("bash", "python", "toml", "json", "ini", "text", ""), f"line {block.line}: {block.kind}"
        if block.mark.startswith("not run"):
            continue
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body, "utf-8")
        elif block.kind == "bash":
            in_shell(block, tmp_path)
            ran += 1
        elif block.kind == "python":
            python.append(block)
    if python:
        in_python(python, tmp_path)
    assert ran or python or not list(blocks(page)) or all(b.mark or b.file or b.kind != "bash" for b in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text("utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
