"""Installed packages, and `env.json`, the environment of a run."""

from __future__ import annotations

import functools
import os
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.files import read_table

# environment variables that affect results; the others are not saved, since they may contain secrets
ENV_NAMES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED")


def read_environment(path: Path) -> dict[str, Any]:
    """Read `env.json`; an empty table if there is none."""
    try:
        content = read_table(path) if path.exists() else {}
        for key in ("device", "packages"):
            if not isinstance(content.get(key, {}), dict):
                raise ValueError(f"its {key!r} is not a JSON object")
    except (OSError, ValueError) as error:
        hint = "restore it, or remove it to skip the comparison of machines"
        raise AlchemyError(f"cannot read {path}: {error}", hint=hint) from error
    return content


def installed_packages() -> dict[str, str]:
    """Return the name and version of every installed package, sorted by name."""
    found = {name: version for folder in sys.path for name, version in _read_packages(folder, _changed_at(folder))}
    return dict(sorted(found.items(), key=lambda row: row[0].lower()))


@functools.lru_cache(maxsize=32)  # reading hundreds of files takes longer than a small run; installing touches a folder
def _read_packages(folder: str, changed_at: int) -> list[tuple[str, str]]:
    return [(str(row["Name"]), str(row["Version"])) for row in (dist.metadata for dist in distributions(path=[folder]))]


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
