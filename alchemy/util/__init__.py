"""Names imported by projects written for alchemy 0.x; alchemy itself does not use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.data.loader import batch_to_device as batch_to_device

__all__ = [
    "batch_to_device",
    "filter_optional_cfg",
    "line_count",
    "merge_max_position_constraints",
    "new_huggingface_model",
    "warn_unused_kwargs",
]


# `alchemy.util.sym` must not import torch, so names that need it are imported lazily
__getattr__, _ = lazy("alchemy", {"batch_to_device": "data.loader"})


def filter_optional_cfg(
    cfg: Mapping[str, Any], optional_keys: Collection[str], level: str = "WARNING"
) -> dict[str, Any]:
    """Return the entries of `cfg` whose keys are in `optional_keys`, and log the missing keys.

    >>> Tagger(num_tags=5, **filter_optional_cfg(self.model_cfg, {"dropout"}))  # doctest: +SKIP
    """
    found = {key: cfg[key] for key in cfg if key in optional_keys}
    missing = [key for key in sorted(optional_keys) if key not in found]
    if missing:
        logger.opt(depth=1).log(level, "using the defaults of {}", ", ".join(missing))
    return found


def merge_max_position_constraints(*constraints: int | None) -> int | None:
    """Return the smallest limit; None means no limit.

    >>> merge_max_position_constraints(512, None, 128)
    128
    """
    return min((limit for limit in constraints if limit is not None), default=None)


def new_huggingface_model(config: object) -> Any:
    """Build an untrained transformers model from a PretrainedConfig, a dict with `model_type`, or a local folder."""
    from transformers import AutoConfig, AutoModel

    if isinstance(config, str | Path):
        config = AutoConfig.from_pretrained(str(config), local_files_only=True)
    elif isinstance(config, Mapping):
        config = AutoConfig.for_model(**config)
    return AutoModel.from_config(config)


def warn_unused_kwargs(kwargs: Mapping[str, Any], called_by: str | None = None, level: str = "WARNING") -> None:
    """Log the unused keywords of a part, except `type`, which is passed to every part."""
    unused = [key for key in kwargs if key != "type"]
    if unused:
        logger.opt(depth=1).log(level, "{} does not use {}", called_by or "this part", ", ".join(unused))


def line_count(path: str | Path = "", *, file: str | Path = "") -> int:
    """Return the number of lines of a file, including an unterminated last line. `file` is the old name of `path`."""
    count, last = 0, b"\n"
    with open(path or file, "rb") as opened:
        while block := opened.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
