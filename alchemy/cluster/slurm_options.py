"""The options of Slurm jobs, and where jobs are submitted to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optional_packages import import_package

VARIABLE = "ALCHEMY_SLURM"  # "local" runs jobs on this machine, for a rehearsal
LOCAL_JOB = "local-"  # prefix of the names of such jobs
DEFAULTS: dict[str, Any] = {"time": 60, "job_name": "alchemy", "stderr_to_stdout": True}
NUMBERS = ("time", "nodes", "cpus_per_task", "gpus_per_node", "signal_delay_s", "array_parallelism")
NO_SLURM = f"log in to a node that has sbatch, or set {VARIABLE}=local to run the jobs on this machine"


def is_rehearsal() -> bool:
    return os.environ.get(VARIABLE) == "local"


def parse_options(words: Sequence[str], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of jobs: `KEY=VALUE` words, or else those of a table; raise an error for unknown ones."""
    import_package("submitit", "--on slurm")
    from submitit.slurm.slurm import _get_default_parameters

    for word in (word for word in words if "=" not in word):
        raise AlchemyError(f"--slurm {word}: expected KEY=VALUE", hint="for example --slurm partition=gpu")
    known = sorted({*_get_default_parameters()} - {"num_gpus", "job_name", "stderr_to_stdout"})
    options = {**table, **dict(word.split("=", 1) for word in words)}
    options = {name.replace("-", "_"): value for name, value in options.items()}
    for name in (name for name in options if name not in known):
        hint = did_you_mean(name, known) or f"one of {', '.join(known)}"
        raise AlchemyError(f"--slurm {name}: unknown option", hint=hint)
    for name in NUMBERS:
        if name in options and not str(options[name]).isdecimal():
            unit = "minutes" if name == "time" else "a number"
            raise AlchemyError(f"--slurm {name}={options[name]}: expected {unit}", hint=f"for example {name}=60")
        if name in options:
            options[name] = int(options[name])
    if not is_rehearsal() and shutil.which("sbatch") is None:
        raise AlchemyError("there is no Slurm here: sbatch was not found", hint=NO_SLURM)
    return options
