"""Read `env.json`, the environment of a run."""

from __future__ import annotations

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
