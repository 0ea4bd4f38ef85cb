"""Load the weights that match a module, and report the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from loguru import logger
from torch import Tensor, nn

SHOWN = 8  # names in each line of a report


@dataclass
class LoadReport:
    """The result of a partial load. `reshaped` lists tensors whose shapes differ: `name: saved [2], here [3]`."""

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of tensors in the module."""
        return len(self.loaded) + len(self.missing) + len(self.reshaped)

    def log(self, file: Path) -> None:
        """Log the report, as a warning if fewer than half of the tensors were loaded."""
        if 2 * len(self.loaded) < self.total:
            text = "{}: fewer than half of the model's tensors match: is it the file of another architecture?\n{}"
            logger.warning(text, file, self)
        else:
            logger.info("{}: {}", file, self)

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} of {self.total} tensors loaded"]
        for names, text in (
            (self.missing, "unchanged, missing from the file"),
            (self.reshaped, "unchanged, shapes differ"),
            (self.unexpected, "ignored, not in the model"),
        ):
            if names:
                more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                lines.append(f"{len(names)} {text}: {', '.join(names[:SHOWN])}{more}")
        return "\n".join(lines)


def load_partial(module: nn.Module, tensors: Mapping[str, Tensor]) -> LoadReport:
    """Copy the tensors whose names and shapes match into `module`, and report all others."""
    report = LoadReport()
    own = module.state_dict()
    for name, target in own.items():
        if not isinstance(target, Tensor):
            continue
        if name not in tensors:
            report.missing.append(name)
        elif tensors[name].shape != target.shape:
            report.reshaped.append(f"{name}: saved {list(tensors[name].shape)}, here {list(target.shape)}")
        else:
            with torch.no_grad():
                target.copy_(tensors[name])
            report.loaded.append(name)
    _drop_tied(report, own)
    report.unexpected = [name for name in tensors if name not in own]
    return report


def _drop_tied(report: LoadReport, own: Mapping[str, Tensor]) -> None:
    """Remove missing names that are tied to a loaded tensor from the report."""
    filled = {own[name].data_ptr() for name in report.loaded}
    report.missing = [name for name in report.missing if own[name].data_ptr() not in filled or not own[name].numel()]
