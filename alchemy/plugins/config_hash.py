"""Hashes of a config: of its values, without its secrets, and without its seed; a run does not read `[sweep]`."""

from __future__ import annotations

import json
from typing import Any

from alchemy.config.secrets import as_written, without_secrets
from alchemy.config.tree import Document
from alchemy.files import hash_text

# keys of plugins in which repeated runs may differ
FOLDED = {"Seeding": ("seed",), "FileLogger": ("log_dir",)}


def values_hash(cfg: Document) -> str:
    """Return a hash of the values of a config, used on resume to detect edits to `cfg.toml`."""
    return hash_text(json.dumps(as_written(cfg), sort_keys=True, default=str))


def config_hash(cfg: Document) -> str:
    """Return a hash of a config that ignores a seed drawn only for this run."""
    drawn = "seed" in cfg and cfg.origin_of("seed").kind == "drawn"
    values = _read_values(cfg)
    if drawn:
        del values["seed"]
    return hash_text(json.dumps(values, sort_keys=True, default=str))


def fold_hash(cfg: Document) -> str:
    """Return a hash of a config that is the same for runs that differ only in their seed or in `log_dir`.

    For a test or a prediction, the record that its weights come from counts only through its own `fold_hash`.
    """
    values = _read_values(cfg)
    values.pop("seed", None)
    for plugin in values.get("plugins") or []:
        for key in FOLDED.get(str(plugin.get("type")).rpartition(".")[2], ()):
            plugin.pop(key, None)
    if cfg.parent and cfg.parent_fold:
        values = _replace_paths(values, cfg.parent, cfg.parent_fold)
    return hash_text(json.dumps(values, sort_keys=True, default=str))


def _read_values(cfg: Document) -> dict[str, Any]:
    """Return what a run reads: all values except secrets and the settings of sweeps."""
    return {key: value for key, value in without_secrets(cfg).items() if key != "sweep"}


def _replace_paths(value: Any, record: str, fold: str) -> Any:
    """Replace the path of a record in all strings.

    >>> _replace_paths({"model_path": ["records/train/2026/state/best"]}, "2026", "3fa2")
    {'model_path': ['3fa2/state/best']}
    """
    if isinstance(value, dict):
        return {key: _replace_paths(inner, record, fold) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace_paths(inner, record, fold) for inner in value]
    return fold + value.rpartition(record)[2] if isinstance(value, str) and record in value else value
