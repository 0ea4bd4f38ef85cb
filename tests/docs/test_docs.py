"""Run every command, config and code block of the documentation, page by page; see pages.py for the rules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs import pages

ROOT = pages.ROOT
DOCS = ROOT / "docs"
CHINESE = [ROOT / "README.zh.md", *sorted(DOCS.glob("*.zh.md"))]
PAGES = [ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    """Return a page without its code blocks."""
    return pages.BLOCK.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    names = [
        re.sub(r"[^\w\- ]", "", name.lower()).strip().replace(" ", "-") for _, name in HEADING.findall(text_of(page))
    ]
    return set(names)


# another test checks that the blocks of a Chinese page are those of the English one
@pytest.mark.parametrize("page", [page for page in PAGES if page not in CHINESE], ids=lambda page: page.name)
def test_the_page_runs_as_it_stands(page: Path, tmp_path: Path, programs: Path) -> None:
    pages.Terminal(tmp_path, programs).run(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert not anchor or path.suffix != ".md" or anchor in anchors(path), link


@pytest.mark.parametrize("chinese", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_follows_the_english_one(chinese: Path) -> None:
    """Check that two translations have the same headings and blocks, and link to the same pages in their language."""
    english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))
    shapes = [[len(marks) for marks, _ in HEADING.findall(text_of(page))] for page in (english, chinese)]
    assert shapes[0] == shapes[1]
    runs = [
        [(block.kind, block.body, block.mark.partition(":")[0]) for block in pages.blocks(page)]
        for page in (english, chinese)
    ]
    assert runs[0] == runs[1]
    named = [
        [link.replace(".zh.md", ".md") for link in LINK.findall(text_of(page)) if link != other.name]
        for page, other in ((english, chinese), (chinese, english))
    ]
    assert named[0] == named[1]


def test_every_page_can_be_reached_from_the_index() -> None:
    linked = set(LINK.findall(text_of(DOCS / "index.md")))
    assert {page.name for page in DOCS.glob("*.md")} - linked == {"index.md"}


# pages that describe the parts of a kind
PLACES = {
    "runner": "run.md", "plugin": "plugins.md", "task": "training.md", "optim": "training.md", "sched": "training.md",
    "backward": "training.md", "loss": "training.md", "data pipe": "data.md", "collate": "data.md",
    "output pipe": "training.md", "eval pipe": "training.md", "sched pipe": "training.md", "stop rule": "stopping.md",
    "average": "precision.md", "precision": "precision.md", "checkpoint": "checkpoints.md",
    "tokenizer": "tokenizers.md", "column": "batches.md", "image transform": "images.md", "model": "text-tasks.md",
    "encoder": "text-tasks.md", "head": "text-tasks.md",
    "network": "translation.md", "search": "translation.md",
}  # fmt: skip
# packages whose parts have separate pages
ROOMS = {
    "alchemy.models.ImageClassifier": "images.md",
    "alchemy.models.Segmenter": "images.md",
    "alchemy.tasks.ImageClassification": "images.md",
    "alchemy.tasks.Segmentation": "images.md",
    "alchemy.pipeline.processors.Proteins": "proteins.md",
    "alchemy.data.collate_images.": "images.md",
    "alchemy.nn.pixel_loss.": "images.md",
    "alchemy.tasks.Translation": "translation.md",
    "alchemy.models.Translator": "translation.md",
    "alchemy.tasks.": "text-tasks.md",
    "alchemy.pipeline.processors.": "processors.md",
    "alchemy.pipeline.corpora.": "corpora.md",
    "alchemy.pipeline.log_media.": "media.md",
    "alchemy.pipeline.encode.": "batches.md",
    "alchemy.pipeline.windows.": "batches.md",
    "alchemy.data.collate.": "batches.md",
    "alchemy.pipeline.cache.": "cache.md",
    "alchemy.pipeline.image_transforms.": "images.md",
    "alchemy.pipeline.report.": "evaluation.md",
}
WITHOUT_TYPE = ("precision", "checkpoint")  # tables with only one part, which configs do not name
GIVEN = ("state_dir",)  # created by the run, not by a config


def test_every_part_is_described_with_every_parameter(tmp_path: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "alchemy", "parts", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for part in json.loads(listed.stdout):
        for kind in set(part["kinds"]) & set(PLACES):
            place = next((page for room, page in ROOMS.items() if part["type"].startswith(room)), PLACES[kind])
            page = (DOCS / place).read_text("utf-8")
            name = part["type"].rpartition(".")[2]
            assert kind in WITHOUT_TYPE or re.search(rf"(`(\w+\.)*|## ){name}\b", page), f"{place}: {name}"
            params = [row["name"] for row in part["params"] if row["name"] not in GIVEN]
            missing = [param for param in params if not re.search(rf"\b{param}\b", page)]
            assert missing == [], f"{place}: {name}"


def test_every_command_and_option_is_described() -> None:
    from alchemy.cli import COMMANDS
    from alchemy.cli.options import build_parser

    page = (DOCS / "command-line.md").read_text("utf-8")
    for name in COMMANDS:
        parser = build_parser(name)
        options = [option for row in parser.nested().values() or [parser] for option in row.options()]
        missing = [option for option in options if option not in ("-h", "--help") and f"`{option}" not in page]
        assert f"alchemy {name}" in page, name
        assert missing == [], name


def test_every_key_of_a_record_is_described(tmp_path: Path) -> None:
    from alchemy.records import Record

    record = Record.create(tmp_path, name="x", tag="x")
    record.log({"a": 1.0}, update=0, step=0, epoch=0)
    record.finish("finished")
    row = json.loads((tmp_path / "x" / "metrics.jsonl").read_text())
    page = (DOCS / "record.md").read_text("utf-8")
    assert [key for key in (*record.info, *row) if f"`{key}`" not in page] == []


def test_every_key_of_the_other_files_of_a_record_is_described(tmp_path: Path) -> None:
    from alchemy.records import Record
    from alchemy.records.ledger import Ledger

    record, ledger = Record.create(tmp_path, name="x", tag="x"), Ledger(tmp_path / "x" / "ledger.jsonl")
    record.resume(from_update=0, from_line=0, seconds=0.0)
    ledger.add_step([0])
    ledger.close_update(1, 0)
    ledger.close_epoch(0, 2, [1])
    ledger.flush()
    ledger.close()
    record.finish("finished")
    text = (tmp_path / "x" / "metrics.jsonl").read_text() + (tmp_path / "x" / "ledger.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    page = (DOCS / "record.md").read_text("utf-8")
    assert [row.get("event") for row in rows] == ["resume", None, "epoch"]
    assert {key for row in rows for key in row if f"`{key}`" not in page} == set()
    names = [*(path.name for path in (tmp_path / "x").iterdir()), "state/last/", "bad/u<update>.json", "cfg.<gen>.toml"]
    assert [name for name in names if f"`{name}" not in page] == []


def test_every_test_that_a_page_names_is_there() -> None:
    found = set()
    for path in ROOT.glob("tests/**/test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)) | {path.stem}
    named = {name for page in PAGES for name in re.findall(r"\b(test_\w+)", text_of(page))}
    assert named - found == set()


def test_every_message_shown_is_one_that_the_check_is_tested_to_give() -> None:
    cases = tomllib.loads((ROOT / "tests/config/wrong.toml").read_text("utf-8")).values()
    tested = {(case["message"], bool(case.get("warns"))) for case in cases}
    rows = re.findall(r"^\| [^|]+ \| (W )?`([^`]+)` \|$", (DOCS / "check.md").read_text("utf-8"), re.MULTILINE)
    shown = {(message, bool(warns)) for warns, message in rows}
    assert len(shown) > 40
    assert shown - tested == set()
