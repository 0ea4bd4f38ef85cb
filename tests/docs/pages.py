"""The pages of the documentation as scripts: their blocks, and how each kind is run.

A page is typed into a terminal, in a folder of its own. A block whose first line is `# file: NAME` is written to that
file; a `bash` block is run, and the next block starts in the folder where it ended; the `python` blocks of a page run
one after the other in one program, when the commands are done. A comment before a block says what is special about it:

    <!-- not run: REASON -->    it is left out
    <!-- exit: N -->            the command is meant to end with this code
    <!-- output -->             the text is what the block before it prints

The programs of zygote.py stand for `alchemy` and for Python where they can.

In an output, `...` stands for anything, alone on a line for any lines; times, dates and numbers with a point stand for
all their like; a line stands where it is, but others may be printed between two of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
KINDS = ("bash", "python", "toml", "json", "yaml", "ini", "text", "csv", "mermaid", "")
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run: [^>]+|exit: \d+|output) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
IN_BACKGROUND = re.compile(r" &$|--background", re.MULTILINE)
ANY = re.compile(r"\\\.\\\.\\\.")
ALIKE = (
    (re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{6}"), r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{6}"),
    (re.compile(r"\d\d:\d\d:\d\d"), r"\d\d:\d\d:\d\d"),
    (re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?"), r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"),
)


class Block(NamedTuple):
    line: int
    kind: str
    body: str
    mark: str

    @property
    def file(self) -> str:
        match = re.match(r"(?:#|//) file: (\S+)\n", self.body)
        return match[1] if match else ""

    @property
    def code(self) -> int:
        return int(self.mark.removeprefix("exit: ")) if self.mark.startswith("exit") else 0


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        yield Block(text[: match.start()].count("\n") + 1, match["kind"], match["body"], match["mark"] or "")


class Terminal:
    """A page that is being run."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.home = self.folder = folder
        self.programs = programs  # of zygote.py
        self.python: list[tuple[Block, Block | None]] = []  # with the output that belongs to it
        self.printed = ""

    def run(self, page: Path) -> None:
        before: Block | None = None
        for block in blocks(page):
            assert block.kind in KINDS, f"line {block.line}: no block is called {block.kind!r}"
            self._do(block, before)
            before = block
        self._run_python()

    def _do(self, block: Block, before: Block | None) -> None:
        if block.mark.startswith("not run"):
            return
        if block.mark == "output":
            assert before is not None, f"line {block.line}: of which block?"
            assert before.kind in ("bash", "python"), f"line {block.line}: of which block?"
            if before.kind == "bash":
                compare(block, self.printed)
            else:
                self.python[-1] = (self.python[-1][0], block)
        elif block.file:
            target = self.folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body, "utf-8")
        elif block.kind == "bash":
            self._shell(block, block.body)
        elif block.kind == "python":
            self.python.append((block, None))

    def _shell(self, block: Block, text: str) -> None:
        # what goes on in the background is killed by its number: there the real programs are needed
        quick = not IN_BACKGROUND.search(text)
        folders = [str(self.programs)] * quick + [str(Path(sys.executable).parent), os.environ["PATH"]]
        place = self.home / ".place"
        env = {**os.environ, "PATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1", "PLACE": str(place)}
        env |= {"PYTHON_EXEC": f"{self.programs}/rank"} if quick else {}
        command = ["bash", "-e", "-c", f"trap 'pwd > \"$PLACE\"' EXIT\n{text}"]
        done = subprocess.run(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240
        )
        self.printed, self.folder = done.stdout, Path(place.read_text().strip())
        assert done.returncode == block.code, f"line {block.line}: {block.body}\n{done.stdout[-4000:]}"

    def _run_python(self) -> None:
        if not self.python:
            return
        parts = [
            f"print('<<< {number} >>>', flush=True)\n{block.body}" for number, (block, _) in enumerate(self.python)
        ]
        (self.folder / "page.py").write_text("\n".join(parts), "utf-8")
        self._shell(Block(self.python[0][0].line, "python", "the python blocks of the page", ""), "page page.py")
        printed = re.split(r"<<< \d+ >>>\n", self.printed)[1:]
        for (_, output), text in zip(self.python, printed, strict=True):
            if output is not None:
                compare(output, text)


def compare(block: Block, printed: str) -> None:
    """Every line of an output block is among the lines printed, in the same order."""
    rest = [line.rstrip() for line in printed.splitlines()]
    for line in block.body.splitlines():
        if line.strip() in ("", "..."):
            continue
        found = next((place for place, text in enumerate(rest) if pattern(line.rstrip()).fullmatch(text)), None)
        assert found is not None, f"line {block.line}: {line!r} is not printed, or not in this order, in\n{printed}"
        rest = rest[found + 1 :]


def pattern(line: str) -> re.Pattern[str]:
    """What a line of an output block stands for."""
    kept: list[str] = []

    def keep(stands_for: str) -> str:
        kept.append(stands_for)
        return f"\0{len(kept) - 1}\0"

    for shape, stands_for in ALIKE:
        line = shape.sub(lambda _, stands_for=stands_for: keep(stands_for), line)  # type: ignore[misc]
    text = ANY.sub(".*", re.escape(line))
    return re.compile(re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text))
