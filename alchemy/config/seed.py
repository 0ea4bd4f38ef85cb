"""The seed of a config: asked for, written in it, its Seeding plugin's, or drawn."""

from __future__ import annotations

import os
from typing import TypeGuard

from alchemy.config.merge import assign, brief
from alchemy.config.tree import COMMAND_LINE, Array, Document, Origin, Table
from alchemy.errors import Problem

_LARGEST = 2**63 - 1  # what torch and numpy can be seeded with


def settle_seed(doc: Document, problems: list[Problem]) -> None:
    """Gives the document its seed: its own, the Seeding plugin's, or one that is drawn now."""
    plugin = _seeding(doc)
    holder: Table = doc
    if "seed" not in doc:
        if plugin is None or "seed" not in plugin:
            doc.put("seed", int.from_bytes(os.urandom(4), "big") >> 1, Origin(kind="drawn"))
            return
        holder = plugin
    if not _is_seed(holder.get("seed")):
        message = f"seed is {brief(holder.get('seed'))}, not a whole number from 0 to 2**63 - 1"
        hint = "leave it out to have one drawn and recorded"
        problems.append(Problem(message, holder.where("seed"), "" if holder is doc else "plugins", hint=hint))
    elif holder is doc and plugin is not None and "seed" in plugin and doc.origin_of("seed").kind == "command line":
        # a seed asked for on the command line is meant for everything
        assign(plugin, "seed", doc.get("seed"), COMMAND_LINE)


def seed_of(doc: Document) -> int:
    """The seed of a settled document: its own, else the Seeding plugin's."""
    plugin = _seeding(doc)
    seed = doc.get("seed") if "seed" in doc or plugin is None else plugin.get("seed")
    return seed if _is_seed(seed) else 0


def _seeding(doc: Document) -> Table | None:
    plugins = doc.get("plugins")
    for plugin in plugins if isinstance(plugins, Array) else ():
        if isinstance(plugin, Table) and str(plugin.get("type")).rpartition(".")[2] == "Seeding":
            return plugin
    return None


def _is_seed(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
