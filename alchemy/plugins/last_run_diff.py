"""What differs from the last run of the same tag and runner, said before the new one starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.config.explain import diff
from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.records.folder import read_info
from alchemy.records.symlinks import refuse_links

# how many of the newest records are looked at: the last run of a tag is among them, or it is no longer of interest
NEWEST = 200
NAMES = 4  # of changed keys on the console; the log file has all of them, with their values


def compare_with_last(cfg: Document, info: dict[str, Any], folder: Path) -> None:
    """Logs the differences to the newest record with this tag; an equal one that has finished is worth a warning.

    A test is compared with tests and a training with trainings, also if all of them lie in one folder.
    """
    same_tag = [(other, last) for other, last in _records(folder) if last.get("tag") == info["tag"]]
    for other, last in same_tag:
        if last["status"] == "finished" and _key(last) == _key(info):
            logger.warning("{} has finished with the same config, seed and code", other.name)
            return
    for other, last in same_tag:
        changes = _changes(other, cfg)
        if changes is not None:
            code = "the same" if last["code_hash"] == info["code_hash"] else "changed"
            logger.debug(
                "since the last run of this tag, {} ({}):\n{}\ncode: {}", other.name, last["status"], changes, code
            )
            if not cfg.parent:  # what a test differs in is the training that it tests
                logger.info("since {} ({}): {}; code {}", other.name, last["status"], _shorten(changes), code)
            return


def _shorten(changes: str) -> str:
    """The names of what has changed; with a single change the whole line.

    >>> _shorten('optim.lr: 0.1 (a.toml:3) -> 0.2 (b.toml:3)\\nseed: 1 (a.toml:1) -> 2 (b.toml:1)')
    'optim.lr, seed changed'
    """
    lines = changes.splitlines()
    if len(lines) == 1:
        return changes
    names = [line.partition(": ")[0] for line in lines]
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{', '.join(names[:NAMES])}{more} changed"


def _key(info: dict[str, Any]) -> tuple[str, str]:
    return info["cfg_hash"], info["code_hash"]


def _changes(other: Path, cfg: Document) -> str | None:
    """The differences to the config of a record; None if that is the config of another runner."""
    try:
        before = prepare_cfg(refuse_links(other) / "cfg.toml", compare=True)
        return diff(before, cfg) if before.get("runner") == cfg.get("runner") else None
    except AlchemyError as error:
        return f"its config cannot be compared: {error}"


def _records(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for other in sorted(folder.parent.iterdir(), reverse=True)[:NEWEST]:
        if other != folder and (other / "record.json").is_file():
            try:
                yield other, read_info(other)
            except AlchemyError:
                continue
