"""Determine which updates of a record can be replayed, and from which state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alchemy.checkpoint.manifest import WHOLE, checkpoints, parse_name, read_manifest, read_parts
from alchemy.checkpoint.manifest import verify as why_invalid
from alchemy.errors import AlchemyError
from alchemy.files import read_table
from alchemy.records.failure import find_failed_updates
from alchemy.records.ledger import NAME, read_ledger
from alchemy.records.metrics_file import read_metrics
from alchemy.records.status import read_info, refuse_running


def check_replayable(folder: Path, update: int) -> None:
    """Raise an error if an update of a record cannot be replayed."""
    info = read_info(folder)
    refuse_running(folder, info)
    if not checkpoints(folder / "state") and not (folder / NAME).is_file():
        hint = "test and prediction records and records from older versions have neither"
        raise AlchemyError(f"{folder} has neither training states nor a ledger", hint=hint)
    last = _find_last_update(folder)
    failed = [
        number for number in find_failed_updates(folder, info["reason"]) if number > last
    ]  # the other updates succeeded after the run was resumed
    # an unfinished run may have failed in the update after the last recorded one
    end = max([last + (info["status"] != "finished"), *failed])
    if not 1 <= update <= end:
        which = (
            f", and failed in update {', '.join(map(str, failed))}"
            if failed
            else f", and may have failed in update {end}"
        )
        raise AlchemyError(
            f"{folder} has no update {update}", hint=f"it has updates 1 to {last}{which if end > last else ''}"
        )


def _find_last_update(folder: Path) -> int:
    """Return the last recorded update; the ledger of a killed run may be behind its metrics."""
    series = read_metrics(folder / "metrics.jsonl") if (folder / "metrics.jsonl").is_file() else ()
    rows = [*(row for _, row in read_ledger_rows(folder)), *series]
    states = [parse_name(path)[0] for path in checkpoints(folder / "state")]
    return max([0, *states, *(row["update"] for row in rows)])


def find_state_before(folder: Path, update: int) -> Path | None:
    """Return the state that a failed run saved for replay, or the latest valid state before the update."""
    written = folder / "bad" / f"u{update - 1}"
    if written.is_dir() and not why_invalid(written):
        return written
    for path in reversed(checkpoints(folder / "state")):
        if parse_name(path)[0] < update and not why_invalid(path) and read_manifest(path).kind == WHOLE:
            return path
    return None


def count_processes(folder: Path, state: Path | None) -> int:
    """Return the number of processes of a run; raise an error if a single process cannot replay its updates."""
    for path in [*([] if state is None else [state]), *checkpoints(folder / "state")]:
        try:
            parts = read_parts(path)
            count, data = len(parts["metrics"]["ranks"]), parts["data"]
        except (OSError, ValueError, LookupError, TypeError):  # weights only, or damaged
            continue
        if count > 1 and (data.get("window") is not None or data.get("ranks") is not None):
            raise AlchemyError(
                f"{folder} was trained by {count} processes with separate batches: a single process cannot replay it",
                section="task.datasets.train",
                hint="replay needs batches that are split across all processes",
            )
        return count
    return 1


def read_bad_update(folder: Path, update: int) -> dict[str, Any]:
    """Read the file that the run wrote if it ended because this update was not finite; return {} if there is none."""
    path = folder / "bad" / f"u{update}.json"
    try:
        return read_table(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise AlchemyError(f"cannot read {path}: {error}") from error


def read_ledger_rows(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    return read_ledger(folder / NAME) if (folder / NAME).is_file() else []
