"""What a new training replaces: it is kept aside until the first update, and put back if none is made."""

import shutil
from pathlib import Path

ASIDE, GONE = ".before", ".checkpoint-before"  # the second one counts as the rest of a checkpoint, which nobody misses


def set_aside(paths: list[Path], output: Path) -> None:
    (output / ASIDE).mkdir()
    for path in paths:
        path.rename(output / ASIDE / path.name)


def put_back(output: Path) -> bool:
    """Puts former things in the place of what a training has begun to write; whether there were any."""
    aside = output / ASIDE
    if not aside.is_dir():
        return False
    for path in list(aside.iterdir()):
        remove(output / path.name)
        path.rename(output / path.name)
    aside.rmdir()
    return True


def forget(output: Path) -> None:
    """Removes former things: a training has begun in their place."""
    if (output / ASIDE).is_dir():
        remove(output / GONE)
        (output / ASIDE).rename(output / GONE)  # at once: what is half removed must not be put back
        remove(output / GONE)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
