"""Hostile records, with every command that reads one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Set
from pathlib import Path

import pytest

from alchemy.trust import digest_of
from tests.hostile import code_records, damaged_records
from tests.hostile.commands import CPU, NOT_READING, READING, Reading, all_commands
from tests.hostile.sandbox import Outcome, Sandbox, is_store

CASES = damaged_records.CASES | code_records.CASES
# each command meets the first case and a third of the others; the slow tests have them all meet all
SAMPLE = (
    "model_is_os_system",
    "state/*/manifest.json is nested",
    "record.json is a FIFO",
    "state/*/model.safetensors is a FIFO",
    ".lock is a folder",
    "state/best is a file",
    "the state is [1]",
    "a manifest names a file outside",
    "texts have escapes",
)
TRAINING = {"run", "run --resume", "predict --split"}  # excluded from the sample because they are slow
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
    """Valid records work, or the tests of damaged ones would show nothing; a config command needs no other file."""
    damage = keep_config_alone if READING[command].reads_config_alone else lambda record: None
    outcome = sandbox.run(READING[command], damage)
    assert outcome is not None
    # nothing is running; three updates are too few for a learning rate; a rerun needs trust
    assert outcome.code == {"stop": 2, "stop latest": 2, "find lr": 1, "rerun": 2}.get(command, 0), outcome.output
    assert not outcome.touched


@pytest.mark.parametrize(("case", "number"), [(case, number) for number, case in enumerate(SAMPLE)])
def test_a_sample(sandbox: Sandbox, case: str, number: int) -> None:
    commands = sorted(READING.keys() - TRAINING)
    assert not faults(sandbox, case, set(commands[number % 3 :: 3] if number else commands))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_hostile_record_through_every_command(sandbox: Sandbox, case: str) -> None:
    assert not faults(sandbox, case, READING.keys())


# what a rerun reads, apart from the config
RERUN = ("record.json", "env.json", "metrics.jsonl", "ledger.jsonl", "the ledger", "row", "a row", "texts", "versions")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in damaged_records.CASES if case.startswith(RERUN)])
def test_a_trusted_record_that_is_damaged_is_rerun_or_refused(sandbox: Sandbox, case: str) -> None:
    def damage(record: Path) -> None:
        environment = json.loads((record / "env.json").read_text())
        (record / "env.json").write_text(json.dumps(environment | {"cwd": str(sandbox.work / "project")}))
        trusted = sandbox.work / "home" / ".config" / "alchemy" / "trusted"
        trusted.parent.mkdir(parents=True)
        trusted.write_text(f'{digest_of((record / "cfg.toml").read_bytes())}  ""\n')
        trusted.chmod(0o600)
        CASES[case](record)

    outcome = sandbox.run(Reading(("rerun", "R", "--set", "sched.epochs=1", *CPU)), damage)
    assert outcome is not None
    outcome.touched = [name for name in outcome.touched if not is_store(name)]
    assert not fault("rerun", outcome)


def faults(sandbox: Sandbox, case: str, commands: Set[str]) -> list[str]:
    """Return the failures for a record, command by command."""
    outcomes = {name: sandbox.run(READING[name], CASES[case]) for name in sorted(commands)}
    return [told for name, outcome in outcomes.items() if outcome and (told := fault(name, outcome))]


def fault(name: str, outcome: Outcome) -> str:
    """Describe what a command did wrong; an empty string if it did not."""
    is_raw = any(text in outcome.output for text in CONTROLS)
    if outcome.code not in (0, 1, 2) or "Traceback" in outcome.output or outcome.touched or is_raw:
        return f"{name}: exit code {outcome.code}, touched {outcome.touched}\n{outcome.output[-3000:]}"
    return ""
