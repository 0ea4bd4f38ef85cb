"""Records that nobody would have written, through every command that reads one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hostile import damaged_records
from tests.hostile.commands import NOT_READING, READING, all_commands
from tests.hostile.sandbox import Sandbox

CASES = {**damaged_records.CASES}  # another corpus is added here: **code_records.CASES
SAMPLE = (
    "state/*/manifest.json is nested",
    "record.json is a FIFO",
    "state/*/model.safetensors is a FIFO",
    ".lock is a folder",
    "state/best is a file",
    "the state is [1]",
    "a manifest names a file outside",
    "texts have escapes",
)
CONTROLS = ("\x1b]", "\x1b[2J", "\x1b[31m", "\x07", "\x9b", "\x00")  # of what the cases write


def test_every_command_is_known_to_read_records_or_not() -> None:
    reading = {name for name in all_commands() if any(name == key or key.startswith(f"{name} ") for key in READING)}
    assert reading | NOT_READING.keys() == all_commands()
    assert not reading & NOT_READING.keys()


def keep_config_alone(record: Path) -> None:
    for path in record.iterdir():
        if path.name == "cfg.toml":
            path.write_text(path.read_text() + "# the same\n")
        else:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("command", READING)
def test_a_whole_record_is_read(sandbox: Sandbox, command: str) -> None:
    """Or what a damaged one does would show nothing; a command on a config is to need nothing else of the record."""
    damage = keep_config_alone if READING[command].reads_config_alone else lambda record: None
    outcome = sandbox.run(READING[command], damage)
    assert outcome is not None
    # nothing is running; three updates are too few for a learning rate
    assert outcome.code == {"stop": 2, "stop latest": 2, "find lr": 1}.get(command, 0), outcome.output
    assert not outcome.touched


@pytest.mark.parametrize("case", SAMPLE)
def test_a_sample(sandbox: Sandbox, case: str) -> None:
    assert not faults(sandbox, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_hostile_record_through_every_command(sandbox: Sandbox, case: str) -> None:
    assert not faults(sandbox, case)


def faults(sandbox: Sandbox, case: str) -> list[str]:
    """What went wrong with a record, command by command."""
    wrong = []
    for name, reading in READING.items():
        outcome = sandbox.run(reading, CASES[case])
        if outcome is None:
            continue
        told = f"{name}: exit code {outcome.code}, touched {outcome.touched}\n{outcome.output[-3000:]}"
        is_raw = any(text in outcome.output for text in CONTROLS)
        if outcome.code not in (0, 1, 2) or "Traceback" in outcome.output or outcome.touched or is_raw:
            wrong.append(told)
    return wrong
