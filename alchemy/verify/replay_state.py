"""What a record still has of its updates: which can be made again, and from which state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from alchemy.checkpoint.manifest import WHOLE, checkpoints, parse_name, read_manifest, read_parts
from alchemy.checkpoint.manifest import verify as why_invalid
from alchemy.errors import AlchemyError
from alchemy.files import read_table
from alchemy.records.folder import read_info, refuse_running
from alchemy.records.ledger import NAME, read_ledger
from alchemy.records.metrics_file import read_metrics


def refuse_replay(folder: Path, update: int) -> None:
    """An error where a record, or this update of it, cannot be replayed."""
    info = read_info(folder)
    refuse_running(folder, info)
    if not checkpoints(folder / "state") and not (folder / NAME).is_file():
        hint = "records of older versions, and of tests and predictions, have none"
        raise AlchemyError(f"{folder} has neither states nor a ledger of a training", hint=hint)
    last = _last(folder)
    failed = [number for number in _failed(folder, info["reason"]) if number > last]  # others were made after a resume
    # a run that did not come to its end may have failed in the update after the last that it has written down
    end = max([last + (info["status"] != "finished"), *failed])
    if not 1 <= update <= end:
        named = f", and failed in {', '.join(map(str, failed))}" if failed else f", and may have failed in {end}"
        raise AlchemyError(f"{folder} has no update {update}", hint=f"it has 1 to {last}{named if end > last else ''}")


def _last(folder: Path) -> int:
    """The last update that a record tells of; the ledger of a run that was killed may be behind its numbers."""
    series = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").is_file() else ()
    rows = [*(row for _, row in ledger_rows(folder)), *series]
    states = [parse_name(path)[0] for path in checkpoints(folder / "state")]
    return max([0, *states, *(row["update"] for row in rows)])


def _failed(folder: Path, reason: str) -> list[int]:
    """The updates that a run could not make, by what it has left of them and by the reason that it gave."""
    left = [path.stem[1:] for path in (folder / "bad").glob("u*.json")]
    return sorted({int(update) for update in left + re.findall(r"update (\d+), step", reason) if update.isdecimal()})


def state_before(folder: Path, update: int) -> Path | None:
    """The state that a failed run has written for this, else the newest valid one from which it can be made."""
    written = folder / "bad" / f"u{update - 1}"
    if written.is_dir() and not why_invalid(written):
        return written
    for path in reversed(checkpoints(folder / "state")):
        if parse_name(path)[0] < update and not why_invalid(path) and read_manifest(path).kind == WHOLE:
            return path
    return None


def processes_of(folder: Path, state: Path | None) -> int:
    """How many processes made a record, as far as its states tell; an error where one cannot make their updates."""
    for path in [*([] if state is None else [state]), *checkpoints(folder / "state")]:
        try:
            parts = read_parts(path)
            count, data = len(parts["metrics"]["ranks"]), parts["data"]
        except (OSError, ValueError, LookupError, TypeError):  # of weights alone, or damaged
            continue
        if count > 1 and (data.get("window") is not None or data.get("ranks") is not None):
            raise AlchemyError(
                f"{folder} was made by {count} processes, each with batches of its own: one cannot make their update",
                section="task.datasets.train",
                hint="an update can be made again where its batches are cut for all processes",
            )
        return count
    return 1


def left_of(folder: Path, update: int) -> dict[str, Any]:
    """What a run left that ended because this update was not finite."""
    path = folder / "bad" / f"u{update}.json"
    try:
        return read_table(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise AlchemyError(f"{path} cannot be read: {error}") from error


def ledger_rows(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    return read_ledger(folder / NAME) if (folder / NAME).is_file() else []
