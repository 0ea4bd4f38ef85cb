"""Messages about a damaged record: one line, and the next valid file is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alchemy.checkpoint.manifest import checkpoints
from tests.hostile.commands import READING
from tests.hostile.damaged_records import CASES, NESTED
from tests.hostile.sandbox import Sandbox


def damage_newest(content: str) -> Callable[[Path], None]:
    def damage(record: Path) -> None:
        (checkpoints(record / "state")[-1] / "manifest.json").write_text(content)

    return damage


@pytest.mark.parametrize(
    ("content", "reason"),
    [(NESTED, "invalid manifest.json: it is nested too deeply"), ("[1]", "expected a JSON object")],
)
def test_a_resume_falls_back_to_the_next_valid_checkpoint(sandbox: Sandbox, content: str, reason: str) -> None:
    outcome = sandbox.run(READING["resume"], damage_newest(content))
    (line,) = (line for line in outcome.output.splitlines() if "skipping" in line)
    assert "skipping state/u8: " in line
    assert reason in line
    assert "/state/u4 (update 4)" in outcome.output
    assert outcome.code == 0


@pytest.mark.parametrize("case", ["the state is {}", "the state is [1]", "the state is nested"])
def test_a_forged_state_is_passed_over(sandbox: Sandbox, case: str) -> None:
    outcome = sandbox.run(READING["resume"], CASES[case])
    assert "skipping state/u8: cannot read state.json: it " in outcome.output
    assert outcome.code == 0


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("record.json is a FIFO", "record.json cannot be read: it is not a regular file"),
        ("record.json is nested", "record.json cannot be read: invalid JSON"),
        ("gen is 10**300", "expected an integer >= 0"),
    ],
)
@pytest.mark.parametrize("command", ["run --resume", "verify ledger latest"])
def test_the_newest_record_is_skipped_with_one_line(sandbox: Sandbox, command: str, case: str, reason: str) -> None:
    outcome = sandbox.run(READING[command], CASES[case])
    (line,) = (line for line in outcome.output.splitlines() if "skipping a record" in line)
    assert reason in line
    assert outcome.code == 0


@pytest.mark.parametrize(
    ("command", "case", "error"),
    [
        ("resume", "record.json is a FIFO", "record.json cannot be read: it is not a regular file"),
        ("resume", "gen is 10**300", "record.json: invalid gen = 1000"),
        ("resume", ".lock is a folder", "/.lock is a folder, expected a file; remove it"),
        ("resume", "env.json is nested", "env.json: it is nested too deeply; restore it"),
        ("resume", "env.json is mistyped", "env.json: its 'device' is not a JSON object; restore it"),
        ("predict", "state/best is a file", "model.safetensors not found in "),
        ("test", "state/best is a FIFO", "model.safetensors not found in "),
        ("checkpoint show best", "state/*/model.safetensors is a FIFO", "model.safetensors': it is not a regular file"),
        ("predict", "labels/task.json is nested", "labels/task.json invalid JSON: it is nested too deeply"),
        ("stop", "pid is that of another process", "is not running: killed"),
    ],
)
def test_a_command_gives_one_clear_error(sandbox: Sandbox, command: str, case: str, error: str) -> None:
    outcome = sandbox.run(READING[command], CASES[case])
    (line,) = (line for line in outcome.output.splitlines() if line.startswith("error: ") or " ERROR " in line)
    assert error in line
    assert outcome.code in (1, 2)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("a checkpoint has another name", "its name refers to update 9999, but its manifest to update 8"),
        ("a manifest names a file outside", "secret.txt' is not a file name inside the folder"),
        ("a manifest names an absolute path", "'/etc/passwd' is not a file name inside the folder"),
        ("a manifest has a huge update", "update is not a valid count"),
        ("a manifest has escapes", "must be printable text"),
    ],
)
def test_a_checkpoint_is_broken(sandbox: Sandbox, case: str, reason: str) -> None:
    outcome = sandbox.run(READING["checkpoint verify"], CASES[case])
    assert reason in outcome.output
    assert outcome.code == 1
