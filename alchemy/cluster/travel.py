"""What of a project travels to a node that does not see its folder."""

from __future__ import annotations

import os
from pathlib import Path

from alchemy.errors import AlchemyError

EXCLUDED = ("records", ".alchemy", ".venv", ".git", "__pycache__")
MAX_BYTES = 200 * 2**20
# variables of an entry that have a meaning on this machine only
HERE_NAMES, HERE_PREFIXES = ("PATH", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"), ("CONDA_",)


def is_portable(name: str) -> bool:
    """Return whether an environment variable has a meaning on other machines."""
    return name not in HERE_NAMES and not name.startswith(HERE_PREFIXES)


def check_size(project: Path) -> None:
    """Raise an error if a project is too large to be copied for each run."""
    total = 0
    for folder, folders, names in os.walk(project):
        folders[:] = [name for name in folders if name not in EXCLUDED]
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
        if total > MAX_BYTES:
            text = f"the project {project} is larger than {MAX_BYTES // 2**20} MiB without its records"
            hint = "move its data to a folder that the nodes share, or the whole project, which then does not travel"
            raise AlchemyError(text, hint=hint)
