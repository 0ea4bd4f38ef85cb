"""What is copied of a project to a node that does not see its folder."""

from __future__ import annotations

import os
from pathlib import Path

from alchemy.errors import AlchemyError
from alchemy.records.status import INFO

EXCLUDED = ("records", ".alchemy", ".venv", ".git", "__pycache__")
MAX_BYTES = 200 * 2**20
# variables of an entry that have a meaning on this machine only
HERE_NAMES, HERE_PREFIXES = ("PATH", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"), ("CONDA_",)


def is_portable(name: str) -> bool:
    """Return whether an environment variable has a meaning on other machines."""
    return name not in HERE_NAMES and not name.startswith(HERE_PREFIXES)


def list_excluded(project: Path) -> list[str]:
    """Return what stays at home, as patterns of gitignore; raise an error if the rest is too large to be copied."""
    total, records = 0, []
    for folder, folders, names in os.walk(project):
        if INFO in names:
            records.append(f"/{os.path.relpath(folder, project)}")
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in EXCLUDED]
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
        if total > MAX_BYTES:
            text = f"the project {project} is larger than {MAX_BYTES // 2**20} MiB without its records"
            hint = "move its data to a folder that the nodes share, or the whole project, which is then not copied"
            raise AlchemyError(text, hint=hint)
    return [*EXCLUDED, *records]
