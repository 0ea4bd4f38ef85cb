"""Records that nobody would have written, through every command that reads one."""

from __future__ import annotations

import pytest

from tests.hostile import damaged_records
from tests.hostile.commands import NOT_READING, READING, all_commands
from tests.hostile.sandbox import Sandbox

# another corpus is one more name here, `*code_records.CASES`
CASES = {**damaged_records.CASES}
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
SLOW = {"run", "check", "verify resume", "verify determinism"}  # seconds each; they read the config of a record alone


def test_every_command_is_known_to_read_records_or_not() -> None:
    assert {name.partition(" --")[0] for name in READING} - {"__complete"} >= all_commands() - NOT_READING.keys()
    assert not all_commands() & NOT_READING.keys() & READING.keys()
    assert len(CASES) >= 60


@pytest.mark.parametrize("command", READING)
def test_a_whole_record_is_read(sandbox: Sandbox, command: str) -> None:
    outcome = sandbox.run(READING[command], lambda record: None)
    assert outcome.code in (0, 2 if command.startswith("stop") else 1 if command == "find lr" else 0), outcome.output
    assert "Traceback" not in outcome.output
    assert not outcome.touched


@pytest.mark.parametrize("case", SAMPLE)
def test_a_sample_of_damages(sandbox: Sandbox, case: str) -> None:
    assert not faults(sandbox, case, set(READING) - SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_damage_through_every_command(sandbox: Sandbox, case: str) -> None:
    assert not faults(sandbox, case, set(READING))


def faults(sandbox: Sandbox, case: str, commands: set[str]) -> list[str]:
    """What went wrong with a damaged record, command by command."""
    wrong = []
    for name in sorted(commands):
        code, output, touched = vars(sandbox.run(READING[name], CASES[case])).values()
        told = f"{name}: exit code {code}, touched {touched}\n{output[-3000:]}"
        controls = any(mark in output for mark in ("\x1b]", "\x1b[2J", "\x1b[31m", "\x07", "\x9b", "\x00"))
        if code not in (0, 1, 2) or "Traceback" in output or touched or controls:
            wrong.append(told)
    return wrong
