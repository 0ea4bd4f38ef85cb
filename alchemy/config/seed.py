"""Determine the seed of a config from the command line, the config or its Seeding plugin, or draw one at random."""

from __future__ import annotations

import os
from typing import TypeGuard

from alchemy.config.merge import assign, format_brief
from alchemy.config.tree import COMMAND_LINE, Array, Document, Origin, Table
from alchemy.errors import Problem

_LARGEST = 2**63 - 1  # largest seed that torch and numpy accept


def resolve_seed(doc: Document, problems: list[Problem]) -> None:
    """Set the seed of a document: its own, the Seeding plugin's, or a random one."""
    plugin = _find_seeding(doc)
    holder: Table = doc
    if "seed" not in doc:
        if plugin is None or "seed" not in plugin:
            doc.put("seed", int.from_bytes(os.urandom(4), "big") >> 1, Origin(kind="drawn"))
            return
        holder = plugin
    if not _is_seed(holder.get("seed")):
        message = f"seed must be an integer from 0 to 2**63 - 1, not {format_brief(holder.get('seed'))}"
        hint = "omit it to draw and record a random one"
        problems.append(Problem(message, holder.where("seed"), "" if holder is doc else "plugins", hint=hint))
    elif holder is doc and plugin is not None and "seed" in plugin and doc.origin_of("seed").kind == "command line":
        # a seed from the command line applies to everything
        assign(plugin, "seed", doc.get("seed"), COMMAND_LINE)


def seed_of(doc: Document) -> int:
    """Return the seed of a prepared document: its own, or the Seeding plugin's."""
    plugin = _find_seeding(doc)
    seed = doc.get("seed") if "seed" in doc or plugin is None else plugin.get("seed")
    return seed if _is_seed(seed) else 0


def _find_seeding(doc: Document) -> Table | None:
    plugins = doc.get("plugins")
    for plugin in plugins if isinstance(plugins, Array) else ():
        if isinstance(plugin, Table) and str(plugin.get("type")).rpartition(".")[2] == "Seeding":
            return plugin
    return None


def _is_seed(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
