"""Hostile records in the index: every other record is listed as before, with one warning at most."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.index.record_index import RecordIndex
from tests.hostile import code_records, damaged_records
from tests.hostile.damaged_records import ESCAPES, NESTED
from tests.hostile.sandbox import NEWER, OLDER, Sandbox
from tests.index.contents import read_contents

Capture = pytest.CaptureFixture[str]
CONTROLS = ("\x1b", "\x07", "\x9b", "\x00")
LISTINGS = (
    ("ls", "--all", "--each"),
    ("ls", "--each", "not status:running", "--columns", "id,status,purpose,reason,train/loss,optim.lr"),
    ("ls", "--each", "train/loss<100", "--sort", "train/loss", "--csv"),
    ("ls", "--each", "Classification"),
    ("search", "Classification"),
)


def write_json(record: Path, **fields: Any) -> None:
    info = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps(info | fields))


def add_rows(record: Path, *values: Any) -> None:
    with open(record / "metrics.jsonl", "a") as file:
        for number, value in enumerate(values):
            row = {"update": number, "step": 0, "epoch": 0, "t": 0.0, "gen": 0, "values": value}
            file.write(json.dumps(row) + "\n")


def write_readme(text: str) -> Any:
    return lambda record: (record / "README.md").write_text(text, "utf-8", "surrogatepass")


# what the index reads, and other commands do not
CASES = {
    **damaged_records.CASES,
    **code_records.CASES,
    "README.md is a FIFO": damaged_records.fifo("README.md"),
    "README.md links to itself": damaged_records.loop("README.md"),
    "README.md has a gigabyte": damaged_records.sparse("README.md"),
    "README.md has escapes": write_readme(f"# {ESCAPES}\n\n{ESCAPES}\n\nTags: {ESCAPES}\n\n## Notes\n\n- {ESCAPES}\n"),
    "README.md has lone surrogates": write_readme("# \ud800\n\n\udfff\n\nTags: \ud800\n"),
    "README.md has many tags": write_readme("# x\n\nTags: " + ", ".join(f"t{number}" for number in range(90_000))),
    "README.md has many notes": write_readme("# x\n\n## Notes\n\n" + "- a\n  b\n" * 100_000),
    "README.md has many headings": write_readme("# x\n" + "## Notes\n" * 100_000),
    "README.md is one long word": write_readme("# x\n\n" + "x" * 10**6),
    "README.md is Chinese": write_readme("# x\n\n" + "焦点损失" * 80_000),
    "mail.json is a FIFO": damaged_records.fifo("mail.json"),
    "mail.json is nested": damaged_records.write("mail.json", NESTED),
    "mail.json has a gigabyte": damaged_records.sparse("mail.json"),
    "mail.json has escapes": damaged_records.write("mail.json", json.dumps({"traceback": ESCAPES})),
    "a metric has escapes": lambda record: add_rows(record, {ESCAPES: 1.0, "\ud800": 2.0, "x" * 10**5: 3.0}),
    "metrics have strange values": lambda record: add_rows(record, {"a": [], "b": {}, "c": "1e999", "d": 10**400}),
    "there are many metrics": lambda record: add_rows(record, {f"m{number}": 1.0 for number in range(10_000)}),
    "a resume event has strange lines": damaged_records.append(
        "metrics.jsonl", '{"event": "resume", "from_line": -5}', '{"event": "resume", "from_line": 1e300}'
    ),
    "the config has many keys": damaged_records.append("cfg.toml", "[many]", *(f"k{n} = {n}" for n in range(90_000))),
    "the config has long keys": damaged_records.append("cfg.toml", f"[{'x' * 10**5}]", f"{'y' * 10**5} = '{'z' * 99}'"),
    "the config has strange values": damaged_records.append(
        "cfg.toml", "[strange]", 'a = "\\u0000"', 'b = "\\ud7ff"', "c = 1e308", "d = nan", f"e = {'9' * 4000}"
    ),
    "the config has deep keys": damaged_records.append("cfg.toml", f"[{'.'.join(['a'] * 900)}]", "x = 1"),
    "the seed is a table": lambda record: write_json(record, seed={"a": [1]}),
    "the seed is huge": lambda record: write_json(record, seed=10**400),
    "the best is strange": lambda record: write_json(record, best={"metric": ESCAPES, "value": "x", "update": 1e300}),
    "times overflow": lambda record: write_json(record, started="9999-12-31T23:59:59-14:00", ended="0001-01-01"),
    "it derives from itself": lambda record: write_json(record, parent=record.name, kind="test"),
    "it derives from a long name": lambda record: write_json(record, parent="x" * 10**6, kind=ESCAPES, host="y" * 999),
    "its time is zero": lambda record: os.utime(record / "record.json", (0, 0)),
}  # fmt: skip


SAMPLE = (
    "record.json is a FIFO",
    "record.json has strange fields",
    "files cannot be read",
    "cfg.toml is nested",
    "rows are nested",
    "README.md has escapes",
    "a metric has escapes",
    "the config has strange values",
    "it derives from itself",
)


@pytest.fixture
def project(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project with a valid record and one to damage."""
    for name in ("outside/secret.txt", "project/.alchemy/.keep"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("# untouched\n")
    shutil.copytree(sandbox.projects / "texts", tmp_path / "project", symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("HOSTILE_MARKER", str(tmp_path / "marker"))
    monkeypatch.chdir(tmp_path / "project")
    yield tmp_path / "project"
    assert (tmp_path / "outside/secret.txt").read_text() == "# untouched\n"
    assert not list(tmp_path.glob("marker*"))


def find_older(contents: dict[str, Any]) -> Any:
    (found,) = (values for path, values in contents["records"].items() if path.endswith(OLDER))
    return found


@pytest.mark.parametrize("case", SAMPLE)
def test_a_sample(project: Path, capsys: Capture, case: str) -> None:
    check_other_records(project, capsys, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_other_records_are_listed_as_before(project: Path, capsys: Capture, case: str) -> None:
    check_other_records(project, capsys, case)


def check_other_records(project: Path, capsys: Capture, case: str) -> None:
    before = find_older(read_contents())
    CASES[case](project / "records" / NEWER)
    contents = read_contents()
    assert find_older(contents) == before
    assert read_contents(rebuild=True) == contents
    capsys.readouterr()
    for words in LISTINGS:
        assert main([*words]) == 0, (words, capsys.readouterr())
        output, errors = capsys.readouterr()
        assert OLDER.partition(".")[0] in output, words
        assert len(errors.splitlines()) <= 1
        assert not any(letter in output + errors for letter in CONTROLS)


@pytest.mark.slow
def test_all_cases_at_once(project: Path, capsys: Capture) -> None:
    """Among all hostile records, a valid one is found and listed, and the index stays small."""
    before = find_older(read_contents())
    for number, case in enumerate(CASES):
        record = project / "records" / f"2025-01-01_00-00-00.{number:06d}"
        shutil.copytree(project / "records" / NEWER, record, symlinks=True)
        CASES[case](record)
    assert find_older(read_contents()) == before
    capsys.readouterr()
    for words in LISTINGS:
        assert main([*words, "-n", "0"]) == 0
        output, errors = capsys.readouterr()
        assert OLDER.partition(".")[0] in output
        assert len(errors.splitlines()) <= 1
    assert (project / ".alchemy" / "index.db").stat().st_size < 100 * 2**20
    with RecordIndex.open() as index:
        assert index.find(OLDER).status == "finished"
