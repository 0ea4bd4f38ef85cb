"""Keep the output that a new training run replaces until its first update; restore it if the run fails before."""

import shutil
from pathlib import Path

ASIDE, GONE = (
    ".before",
    ".checkpoint-before",
)  # GONE looks like an unfinished checkpoint, which can be removed


def set_aside(paths: list[Path], output: Path) -> None:
    (output / ASIDE).mkdir()
    for path in paths:
        path.rename(output / ASIDE / path.name)


def put_back(output: Path) -> bool:
    """Restore the former output in place of the new one; return whether there was any."""
    aside = output / ASIDE
    if not aside.is_dir():
        return False
    for path in list(aside.iterdir()):
        remove(output / path.name)
        path.rename(output / path.name)
    aside.rmdir()
    return True


def forget(output: Path) -> None:
    """Remove the former output, once the new training run has made an update."""
    if (output / ASIDE).is_dir():
        remove(output / GONE)
        (output / ASIDE).rename(output / GONE)  # rename first: partly removed output must not be restored
        remove(output / GONE)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
