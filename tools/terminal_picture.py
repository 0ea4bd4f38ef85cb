"""Draw docs/pictures/terminal.svg, the terminal session of the README, from commands that are really run.

python tools/terminal_picture.py docs/pictures/terminal.svg
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 108
PREPARE = """\
alchemy new sample --kind text
tail -q -n +2 sample/data/*.csv | sed '1i message,topic' > support.csv
alchemy new support --data support.csv
cd support && sed 's/num_warmup_steps/num_warmup_step/' train.toml > typo.toml"""
# shown command, what really runs in addition, the lines of the output to leave out
NOISE = r"INFO +(record|learned|finished|lengths|training|epoch [2-7]/|weights)|rows$|^means|^macro|^weighted"
SESSION = [
    ("alchemy run typo.toml", "", ""),
    ("alchemy run train.toml --test", "--device -1", NOISE),
    ("alchemy verify resume train.toml --updates 6", "--device -1", r"without interruption"),
]
STYLES = {r"^error:": "bold red", r"^\d+ error.*": "red", r"^(experiment  .*)": "bold", r"^equal:": "bold green"}

# rich's own template loads a font from the network
TEMPLATE = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#1e1e2e"/>
<g transform="translate(12, 12)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main(target: Path) -> None:
    """Run the session in a temporary folder and write the picture."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        _run(PREPARE, Path(folder))
        for command, extra, hidden in SESSION:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            for line in _run(f"{command} {extra}", Path(folder, "support")).splitlines():
                if line and not (hidden and re.search(hidden, line)):
                    console.print(_style(line), no_wrap=True, overflow="ellipsis", crop=True)
            console.print()
    target.write_text(console.export_svg(code_format=TEMPLATE, unique_id="terminal"), "utf-8")


def _run(command: str, folder: Path) -> str:
    environment = {**os.environ, "COLUMNS": str(WIDTH), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    pipe = subprocess.PIPE
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT)
    return done.stdout.decode()


def _style(line: str) -> Text:
    text = Text(line)
    for pattern, style in STYLES.items():
        text.highlight_regex(pattern, style)
    text.highlight_regex(r"^\d\d:\d\d:\d\d INFO", "dim")
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
