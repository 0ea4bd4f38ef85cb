"""Run the programs of other frameworks on the `from-*.md` pages, and compare their scores with ours.

The ordinary test of a page skips a block marked `<!-- not run: needs NAME -->`, and the block marked
`<!-- not run: output of NAME -->` that shows what it prints. Here both count, if the framework is installed.
fairseq does not import on Python 3.11: put the programs of another environment on PATH to run its page.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs import pages, zygote

DOCS = pages.ROOT / "docs"


class Guide(NamedTuple):
    page: str
    needs: str  # modules or, with a dash, programs
    theirs: str  # patterns of the scores
    ours: str
    within: float


GUIDES = [
    Guide("from-hf-trainer.md", "transformers accelerate", r"^test accuracy (\S+)$", r"accuracy (\S+) +records/", 0.1),
    Guide("from-lightning.md", "lightning", r"^test accuracy (\S+)$", r"accuracy (\S+) +records/", 0.1),
    Guide("from-hydra.md", "hydra", r"^dev loss (\S+)$", r"loss (\S+) +records/", 0.005),
    Guide("from-fairseq.md", "fairseq-train fairseq-generate", r"BLEU = (\S+) ", r"bleu (\S+) +records/", 20),
]


class Both(pages.Terminal):
    """A page that is run with the blocks of the other framework."""

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder, programs)
        self.log: list[str] = []

    def _do(self, block: pages.Block, before: pages.Block | None) -> None:
        mark = block.mark
        if mark.startswith("not run: needs "):
            mark = ""
        elif mark.startswith("not run: output of "):
            mark = "output"
        super()._do(block._replace(mark=mark), before)

    def _shell(self, block: pages.Block, text: str) -> None:
        super()._shell(block, text)
        self.log.append(self.printed)


def missing(needs: str) -> list[str]:
    """Return the modules and programs that are not installed."""
    return [
        name for name in needs.split() if not (shutil.which(name) if "-" in name else importlib.util.find_spec(name))
    ]


def scores(pattern: str, log: str) -> list[float]:
    return [float(score) for score in re.findall(pattern, log, re.MULTILINE)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with zygote.started(tmp_path_factory.mktemp("zygote")) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.page)
def test_both_programs_run_and_reach_comparable_scores(guide: Guide, tmp_path: Path, programs: Path) -> None:
    if names := missing(guide.needs):
        pytest.skip(f"not installed or not on PATH: {', '.join(names)}")
    terminal = Both(tmp_path, programs)
    terminal.run(DOCS / guide.page)
    log = "\n".join(terminal.log)
    theirs, ours = scores(guide.theirs, log), scores(guide.ours, log)
    assert theirs, log
    assert len(theirs) == len(ours), log
    assert all(abs(a - b) <= guide.within for a, b in zip(theirs, ours, strict=True)), (theirs, ours)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.page)
def test_a_guide_shows_both_programs(guide: Guide) -> None:
    marks = [block.mark for block in pages.blocks(DOCS / guide.page)]
    assert any(mark.startswith("not run: needs ") for mark in marks)
    assert any(mark.startswith("not run: output of ") for mark in marks)
    assert "output" in marks
    assert len((DOCS / guide.page).read_text("utf-8").splitlines()) < 200
