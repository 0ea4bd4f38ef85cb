"""`alchemy queue release`: start an entry again, from its last checkpoint or from the beginning."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from alchemy.checkpoint.manifest import checkpoints
from alchemy.cli.options import build_parser
from alchemy.errors import AlchemyError
from alchemy.queue import Entry, Queue
from alchemy.queue.attempts import find_code_changes, find_training, has_failed, release_entry
from alchemy.queue.entry import DONE, HELD, RUNNING, WAITING, split_command
from alchemy.records.status import try_read_info


def release(queue: Queue, ids: list[int], *, restart: bool) -> None:
    """Release entries; raise an error before the first one if a run cannot continue its record."""
    notes = {id: _describe_start(queue, queue.get(id), restart=restart) for id in ids}
    for id, note in notes.items():
        if queue.get(id).state == RUNNING:
            queue.update(id, _keep_waiting)
        else:
            release_entry(queue, id, restart=restart)
        print(f"released {id}{note}")


def _keep_waiting(entry: Entry) -> Entry:
    """Return an entry that is being stopped, and goes back into the queue instead of being held."""
    return replace(entry, then=WAITING) if entry.then == HELD else entry


def _describe_start(queue: Queue, entry: Entry, *, restart: bool) -> str:
    """Return from where an entry starts; raise an error if the code, or the config of a failed run, has changed."""
    if entry.state == DONE or (entry.state == RUNNING and entry.then != HELD):
        raise AlchemyError(f"entry {entry.id} is {entry.state}: there is nothing to release")
    if restart and entry.state == RUNNING:
        raise AlchemyError(f"entry {entry.id} is still being stopped", hint="release it when it is held")
    record = find_training(queue.list_records(entry.id)) if split_command(entry.argv)[1] else None
    if record is None:
        return ""
    if restart:
        return "; it starts from the beginning"
    if not checkpoints(record / "state"):
        return f"; it starts from the beginning: {record.name} has no checkpoint"
    config = _find_config_changes(entry, record)
    if changes := [*(config if has_failed(entry) else ()), *find_code_changes(entry, record)]:
        text = f"entry {entry.id} cannot continue {record.name}: {'; '.join(changes)}"
        hint = f"`alchemy queue release {entry.id} --restart` starts it from the beginning, in a new record"
        raise AlchemyError(text, hint=hint)
    without = f", without the changes of its config ({'; '.join(config)})" if config else ""
    return f"; it continues {record.name}{without}"


def _find_config_changes(entry: Entry, record: Path) -> list[str]:
    """Return what has changed in the config of an entry since its record was written."""
    from alchemy.config.explain import differences
    from alchemy.config.load import expand, prepare_cfg
    from alchemy.config.merge import format_brief
    from alchemy.plugins.config_hash import config_hash

    args = build_parser("run").parse_args(list(split_command(entry.argv)[1][1:]))
    options = {"overrides": args.overrides, "allow_code": args.allow_code, "user_dir": args.user_dir}
    with contextlib.chdir(entry.cwd):
        (document,) = expand(args.cfgs, seeds=args.seeds, **options)
        if config_hash(document) == try_read_info(record).get("cfg_hash"):
            return []
        rows = differences(prepare_cfg(record / "cfg.toml", compare=True), document)
    ignored = {*document.dynamic, "seed"}  # values such as the date differ each time
    return [
        f"{key}: {format_brief(before)} -> {format_brief(after)}"
        for key, before, after in rows
        if key not in ignored and not key.startswith("sweep.")
    ]
