"""Run the pages of the documentation as scripts.

Each page runs in a temporary folder, as if typed into a terminal. A block whose first line is `# file: NAME` is written
to that file. A `bash` block is run, and the next block starts in the folder where it ended. The `python` blocks of a
page run one after the other in one program, after the commands. A comment before a block changes how it is run:

    <!-- not run: REASON -->    skip the block
    <!-- needs: PACKAGE -->     skip the block and its output if an optional package is missing
    <!-- exit: N -->            the command must exit with this code
    <!-- output -->             the text is the output of the previous block

The programs of zygote.py replace `alchemy` and Python where possible.

In an output, `...` matches anything, and any lines if it is alone on a line. Times, dates and decimal numbers match any
other, as do two or more spaces, since the columns of a table are as wide as their values. Lines must be printed in the
same order, possibly with others in between.
"""

from __future__ import annotations

import importlib.util
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
    r"(?:<!-- (?P<mark>not run: [^>]+|needs: \w+|exit: \d+|output) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
IN_BACKGROUND = re.compile(r" &$|--background", re.MULTILINE)
ANY = re.compile(r"\\\.\\\.\\\.")
GAP = re.compile(r"(?:\\ ){2,}")
ALIKE = (
    (re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{6}"), r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{6}"),
    (re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"), r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(?:\.\d+)?"),  # a short id
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d\b"), r"\d{4}-\d\d-\d\d \d\d:\d\d"),
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
    def is_skipped(self) -> bool:
        package = self.mark.removeprefix("needs: ") if self.mark.startswith("needs") else ""
        return self.mark.startswith("not run") or bool(package and importlib.util.find_spec(package) is None)

    @property
    def code(self) -> int:
        return int(self.mark.removeprefix("exit: ")) if self.mark.startswith("exit") else 0


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in BLOCK.finditer(text):
        yield Block(text[: match.start()].count("\n") + 1, match["kind"], match["body"], match["mark"] or "")


class Terminal:
    """A page being run."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.home = self.folder = folder
        self.programs = programs  # programs of zygote.py
        self.python: list[tuple[Block, Block | None]] = []  # with the expected output of each
        self.printed = ""

    def run(self, page: Path) -> None:
        before: Block | None = None
        for block in blocks(page):
            assert block.kind in KINDS, f"line {block.line}: no block is called {block.kind!r}"
            self._do(block, before)
            before = block
        self._run_python()

    def _do(self, block: Block, before: Block | None) -> None:
        if block.is_skipped:
            return
        if block.mark == "output":
            assert before is not None, f"line {block.line}: of which block?"
            if before.is_skipped:
                return
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
        # background jobs are killed by process id, which requires the real programs
        quick = not IN_BACKGROUND.search(text) and not block.mark.startswith("needs")
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
    """Check that every line of an output block is among the printed lines, in order."""
    rest = [line.rstrip() for line in printed.splitlines()]
    for line in block.body.splitlines():
        if line.strip() in ("", "..."):
            continue
        found = next((place for place, text in enumerate(rest) if pattern(line.rstrip()).fullmatch(text)), None)
        assert found is not None, f"line {block.line}: {line!r} is not printed, or not in this order, in\n{printed}"
        rest = rest[found + 1 :]


def pattern(line: str) -> re.Pattern[str]:
    """Return the pattern that a line of an output block matches."""
    kept: list[str] = []

    def keep(stands_for: str) -> str:
        kept.append(stands_for)
        return f"\0{len(kept) - 1}\0"

    for shape, stands_for in ALIKE:
        line = shape.sub(lambda _, stands_for=stands_for: keep(stands_for), line)  # type: ignore[misc]
    text = GAP.sub(" {2,}", ANY.sub(".*", re.escape(line)))
    return re.compile(re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text))
