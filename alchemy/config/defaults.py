"""The defaults in effect: what a config file, and every part of a config, gets without saying so."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from alchemy.config.known_tables import GIVEN
from alchemy.config.merge import merge
from alchemy.config.part_slots import collect_slots
from alchemy.config.part_source import Sources
from alchemy.config.tree import DEFAULT, Array, Document, Table
from alchemy.errors import Problem

RUNNER = "alchemy.runner.Trainer"
LOG_DIR = "records"


def is_experiment(doc: Document) -> bool:
    """Whether a config has what every run needs, rather than being a base for others or no config of a run."""
    return isinstance(doc.get("task"), Table) and isinstance(doc.get("model"), Table)


def fill_in(doc: Document, user_dir: str, problems: list[Problem]) -> None:
    """Gives a config file that does not say otherwise a tag, a runner, and plugins for the console and a record.

    A table `[plugins.NAME]` changes the default plugins, or adds one; `plugins = []` means none.
    """
    stem = os.path.splitext(os.path.basename(doc.path))[0]
    first: dict[str, Any] = {
        "tag": f"{stem}-{doc.variant}" if doc.variant else stem,
        "runner": RUNNER,
        "plugins": _plugins(user_dir),
    }
    given, whole = doc.get("plugins"), Table(origin=DEFAULT)
    if isinstance(given, Table):
        whole.put("plugins", first["plugins"], DEFAULT)
        merge(whole, Table({"plugins": given}, origin=given.origin), problems)
        doc.put("plugins", whole["plugins"], DEFAULT)
    rest = dict(doc)
    doc.clear()  # the defaults stand first, as people write them
    for key, value in first.items():
        if key not in rest:
            doc.put(key, value, DEFAULT)
    dict.update(doc, rest)


def _plugins(user_dir: str) -> Array:
    backup = [{"type": "alchemy.plugins.Backup", "paths": [user_dir]}] if os.path.isdir(user_dir) else []
    setup, logger = {"type": "alchemy.plugins.BasicSetup"}, {"type": "alchemy.plugins.FileLogger", "log_dir": LOG_DIR}
    return Array([setup, logger, *backup], origin=DEFAULT)


def defaults(doc: Document, roots: Sequence[str] = (".",)) -> Iterator[tuple[str, str, dict[str, str]]]:
    """`(section, part, {parameter: default})` of each part with typed parameters that leaves some to their defaults."""
    for slot in collect_slots(doc, Sources(roots)).slots:
        if slot.part is None or slot.part.old_style:
            continue
        hidden = {"type", "datapipe", *GIVEN.get(slot.kind, ())}
        left = [param for param in slot.part.params if not param.required and param.name not in slot.table]
        values = {param.name: param.default for param in left if param.name not in hidden}
        if values:
            yield slot.section, slot.name, values


def render_defaults(doc: Document, roots: Sequence[str] = (".",)) -> str:
    """One line a part: `optim AdamW: eps = 1e-08, amsgrad = False`."""
    rows = (
        (section, name, ", ".join(f"{k} = {v}" for k, v in values.items()))
        for section, name, values in defaults(doc, roots)
    )
    return "\n".join(f"{section} {name}: {text}" for section, name, text in rows)
