"""Read the source and target vocabulary sizes of a translation task from files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from alchemy.config.part_slots import Layout, Slot
from alchemy.errors import AlchemyError
from alchemy.files import read_table

_SIDES = ("source", "target")
_CORPUS = ".json"  # the manifest of a corpus, next to its tokens


def network_sizes(slot: Slot, layout: Layout) -> dict[str, int]:
    """Return the vocabulary sizes that a model passes to its network, if they are known in advance."""
    model = slot.parent
    if model is None or slot.part is None or "network" not in slot.part.kinds:
        return {}
    sizes = {side: model.table.get(f"{side}_size", 0) or _vocabulary_size(side, layout) for side in _SIDES}
    return {f"{side}_size": size for side, size in sizes.items() if isinstance(size, int) and size}


def _vocabulary_size(side: str, layout: Layout) -> int:
    task = layout.at("task")
    if task is None or not task.is_a("Translation"):
        return 0
    tokenizer = task.table.get(f"{side}_tokenizer")
    if tokenizer is not None:
        return _tokenizer_size(tokenizer) if isinstance(tokenizer, str) else 0
    pipes = [pipe for split in layout.splits for pipe in layout.inside(f"task.datasets.{split}.pipes")]
    pipes = [pipe for pipe in pipes if not pipe.is_a("ParallelText")]  # its `source` and `target` are columns
    paths = [path for pipe in pipes if isinstance(path := pipe.table.get(side), str)]
    return int(_read(Path(f"{paths[0]}{_CORPUS}")).get("vocabulary", 0)) if paths else 0


def _tokenizer_size(folder: str) -> int:
    """Return the size of an alchemy tokenizer, or 0 for other classes, which would have to be imported."""
    from alchemy.text.base import MANIFEST, load_tokenizer  # slower than the rest of the check

    home = Path(os.path.expanduser(folder))
    if str(_read(home / MANIFEST).get("type", "")).startswith("alchemy."):
        with contextlib.suppress(AlchemyError):
            return load_tokenizer(home).size
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_table(path)
    except (OSError, ValueError):
        return {}
