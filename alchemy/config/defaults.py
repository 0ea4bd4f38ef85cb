"""Fill in defaults: the top-level keys that a config file omits, and the default values of its parts."""

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
    """Return whether a config describes a complete experiment, as opposed to, for example, a base for other configs."""
    return isinstance(doc.get("task"), Table) and isinstance(doc.get("model"), Table)


def add_defaults(doc: Document, user_dir: str, problems: list[Problem]) -> None:
    """Add the tag, runner and plugins (console, record) that a config file does not set.

    A table `[plugins.NAME]` changes or adds to the default plugins; `plugins = []` disables all plugins.
    """
    stem = os.path.splitext(os.path.basename(doc.path))[0]
    first: dict[str, Any] = {
        "tag": f"{stem}-{doc.variant}" if doc.variant else stem,
        "runner": RUNNER,
        "plugins": _default_plugins(user_dir),
    }
    given, whole = doc.get("plugins"), Table(origin=DEFAULT)
    if isinstance(given, Table):
        whole.put("plugins", first["plugins"], DEFAULT)
        merge(whole, Table({"plugins": given}, origin=given.origin), problems)
        doc.put("plugins", whole["plugins"], DEFAULT)
    rest = dict(doc)
    doc.clear()  # put the defaults first, where users usually write them
    for key, value in first.items():
        if key not in rest:
            doc.put(key, value, DEFAULT)
    dict.update(doc, rest)


def _default_plugins(user_dir: str) -> Array:
    backup = [{"type": "alchemy.plugins.Backup", "paths": [user_dir]}] if os.path.isdir(user_dir) else []
    setup, logger = {"type": "alchemy.plugins.BasicSetup"}, {"type": "alchemy.plugins.FileLogger", "log_dir": LOG_DIR}
    return Array([setup, logger, *backup], origin=DEFAULT)


def defaults(doc: Document, roots: Sequence[str] = (".",)) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield `(section, part, {parameter: default})` for each typed part that relies on defaults."""
    for slot in collect_slots(doc, Sources(roots)).slots:
        if slot.part is None or slot.part.old_style:
            continue
        hidden = {"type", "datapipe", *GIVEN.get(slot.kind, ())}
        left = [param for param in slot.part.params if not param.required and param.name not in slot.table]
        values = {param.name: param.default for param in left if param.name not in hidden}
        if values:
            yield slot.section, slot.name, values


def render_defaults(doc: Document, roots: Sequence[str] = (".",)) -> str:
    """Render the defaults, one line per part: `optim AdamW: eps = 1e-08, amsgrad = False`."""
    rows = (
        (section, name, ", ".join(f"{k} = {v}" for k, v in values.items()))
        for section, name, values in defaults(doc, roots)
    )
    return "\n".join(f"{section} {name}: {text}" for section, name, text in rows)
