"""Compare a new run with the last run that has the same tag and runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.config.explain import diff
from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.records.status import read_info
from alchemy.records.symlinks import refuse_links

# only the newest records are compared
NEWEST = 200
NAMES = 4  # changed keys shown on the console; the log file lists all of them, with their values


def compare_with_last(cfg: Document, info: dict[str, Any], folder: Path) -> None:
    """Log the differences from the newest record with this tag; warn if an identical run has finished.

    Tests are compared with tests and training runs with training runs, even if all are in one folder.
    """
    same_tag = [(other, last) for other, last in _iter_records(folder) if last.get("tag") == info["tag"]]
    for other, last in same_tag:
        if last["status"] == "finished" and _run_key(last) == _run_key(info):
            logger.warning("{} has finished with the same config, seed and code", other.name)
            return
    for other, last in same_tag:
        changes = _diff_configs(other, cfg)
        if changes is not None:
            code = "the same" if last["code_hash"] == info["code_hash"] else "changed"
            logger.debug(
                "since the last run with this tag, {} ({}):\n{}\ncode: {}", other.name, last["status"], changes, code
            )
            if not cfg.parent:  # tests differ in the training run they evaluate
                logger.info("since {} ({}): {}; code {}", other.name, last["status"], _shorten(changes), code)
            return


def _shorten(changes: str) -> str:
    """Return the names of the changed keys, or the whole line for a single change.

    >>> _shorten('optim.lr: 0.1 (a.toml:3) -> 0.2 (b.toml:3)\\nseed: 1 (a.toml:1) -> 2 (b.toml:1)')
    'optim.lr, seed changed'
    """
    lines = changes.splitlines()
    if len(lines) == 1:
        return changes
    names = [line.partition(": ")[0] for line in lines]
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{', '.join(names[:NAMES])}{more} changed"


def _run_key(info: dict[str, Any]) -> tuple[str, int | None, str]:
    return info["cfg_hash"], info.get("seed"), info["code_hash"]


def _diff_configs(other: Path, cfg: Document) -> str | None:
    """Return the differences from the config of a record, or None if it uses a different runner."""
    try:
        before = prepare_cfg(refuse_links(other) / "cfg.toml", compare=True)
        return diff(before, cfg) if before.get("runner") == cfg.get("runner") else None
    except AlchemyError as error:
        return f"cannot compare its config: {error}"


def _iter_records(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for other in sorted(folder.parent.iterdir(), reverse=True)[:NEWEST]:
        if other != folder and (other / "record.json").is_file():
            try:
                yield other, read_info(other)
            except AlchemyError:
                continue
