"""Files that a resume needs from its record and project: a missing or changed file makes it another run."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

KILL, TERM = signal.SIGKILL, signal.SIGTERM
CPU = ("--device", "-1")
BEST = {"type": "alchemy.pipeline.eval.SaveBest", "monitor": "loss", "mode": "min"}
PIPES = [{"type": "tests.resume.parts.Draw"}, BEST]
NET = """from tests.resume.parts import Net
from src.sizes import SIZE


class Own(Net):
    size = SIZE

    def state_dict(self):
        import src.late  # imported at the first save

        return super().state_dict()
"""


def stopped(lab: Lab, folder: Path, **changes: Any) -> Path:
    assert lab.start(folder, [["end_step", 8, TERM]], **changes) == 128 + TERM
    return record_of(folder)


def test_a_missing_ledger_is_refused_unless_allowed(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    (record / "ledger.jsonl").unlink()
    before = (record / "record.json").read_bytes()
    for _ in range(2):  # the first attempt must not repair it
        assert lab.command(tmp_path, "resume", str(record), *CPU) == 2
        assert "ledger.jsonl lacks 9 rows of the checkpoint" in text_of(tmp_path)
        assert "--allow ledger" in text_of(tmp_path)
    assert (record / "record.json").read_bytes() == before
    assert lab.command(tmp_path, "resume", str(record), "--allow", "ledger", *CPU) == 0, text_of(tmp_path)


def test_missing_weights_of_the_best_are_refused_unless_allowed(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline(task__evalpipes=PIPES)
    record = stopped(lab, tmp_path, task__evalpipes=PIPES)
    shutil.rmtree(record / "checkpt")
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 2
    assert "checkpt: missing: checkpt/best" in text_of(tmp_path)
    assert lab.command(tmp_path, "resume", str(record), "--allow", "checkpt", *CPU) == 0, text_of(tmp_path)
    assert differences(baseline, record) == []
    assert (record / "checkpt" / "best" / "model.safetensors").exists()


def test_a_record_that_had_no_best_needs_none(lab: Lab, tmp_path: Path) -> None:
    record = stopped(lab, tmp_path)
    shutil.rmtree(record / "checkpt")
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 0, text_of(tmp_path)


def write_project(lab: Lab, folder: Path) -> tuple[str, ...]:
    (folder / "src").mkdir()
    (folder / "src" / "__init__.py").write_text("")
    (folder / "src" / "net.py").write_text(NET)
    (folder / "src" / "sizes.py").write_text("SIZE = 3\n")
    (folder / "src" / "late.py").write_text("")
    return ("run", lab.write(folder, model__type="src.net.Own"), *CPU)


@pytest.mark.parametrize("name", ["net", "sizes", "late"])
def test_code_that_was_imported_is_named(lab: Lab, tmp_path: Path, name: str) -> None:
    assert lab.command(tmp_path, *write_project(lab, tmp_path), bombs=[["end_step", 8, KILL]]) == -KILL
    record = record_of(tmp_path)
    own = {file for file in read_info(record)["code"] if file.startswith("src/")}
    assert own == {"src/__init__.py", "src/net.py", "src/sizes.py", "src/late.py"}
    (tmp_path / "src" / "unrelated.py").write_text("a note\n")
    with open(tmp_path / "src" / f"{name}.py", "a") as file:
        file.write("# changed\n")
    assert lab.command(tmp_path, "resume", str(record), *CPU) == 2
    assert f"code: src/{name}.py has changed; revert it, or resume anyway" in text_of(tmp_path)
    assert lab.command(tmp_path, "resume", str(record), "--allow", "code", *CPU) == 0, text_of(tmp_path)


def test_a_new_file_that_nobody_imports_blocks_nothing(lab: Lab, tmp_path: Path) -> None:
    words = write_project(lab, tmp_path)
    assert lab.command(tmp_path, *words, bombs=[["end_step", 8, KILL]]) == -KILL
    (tmp_path / "src" / "unrelated.py").write_text("def broken(:\n")
    assert lab.command(tmp_path, *words, "--resume", "auto") == 0, text_of(tmp_path)
    assert "since the record was written" not in text_of(tmp_path)
    assert "resuming" in text_of(tmp_path)
