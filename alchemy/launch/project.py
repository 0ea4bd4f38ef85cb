"""Where a project's own modules are found, however alchemy was started."""

from __future__ import annotations

import os
import sys


def roots(user_dir: str = "src") -> list[str]:
    """The folders that imports such as `src.model` start from: the one that holds `user_dir`, and the working one."""
    return list(dict.fromkeys((os.path.dirname(os.path.abspath(user_dir)), os.getcwd())))


def reach(user_dir: str = "src") -> None:
    """Makes the project importable under the installed command as it is under `python -m`."""
    for folder in reversed(roots(user_dir)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
