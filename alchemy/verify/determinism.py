"""Whether the same config and seed give the same bits, whatever the number of loader workers."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.config.tree import Document
from alchemy.verify.equal import Comparison, compare, is_stream, last_update
from alchemy.verify.trial import Ended, Tell, Trial, finished, go, record_in

WORKERS = 2
SWITCH = "use_deterministic_algorithms = true of the plugin Seeding makes torch refuse what gives other bits each time"
ON_CPU = f"not shown on a CPU: what cuDNN chooses and the order in which a GPU adds (atomics); there {SWITCH}"
STREAM = "the data is a stream: its order may depend on num_workers, so only the number of the config was tried"


@dataclass
class Report:
    """What `verify determinism` found: each pair that was compared, and what could not be shown."""

    updates: int
    pairs: list[tuple[str, Comparison]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(found.equal for _, found in self.pairs)

    def plain(self) -> dict[str, Any]:
        pairs = [{"what": what} | found.plain() for what, found in self.pairs]
        return {"equal": self.equal, "updates": self.updates, "pairs": pairs, "notes": self.notes}

    def __str__(self) -> str:
        lines = [f"{what}:\n{found}" for what, found in self.pairs]
        return "\n".join([f"{self.updates} updates each", *lines, *self.notes])


def check(
    doc: Document,
    *,
    updates: int | None = None,
    device: int = -1,
    user_dir: str = "src",
    tell: Tell = lambda text: None,
) -> Report:
    """Trains twice with the same seed, and once with another number of workers, in fresh processes; compares."""
    trial = Trial.of(doc, updates=updates, device=device, user_dir=user_dir)
    own = int(trial.document["task"]["datasets"]["train"].peek("num_workers") or 0)
    other = 0 if own else WORKERS
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name:
        one, two, third = (Path(name) / word for word in ("one", "two", "other"))
        tell("training twice with the same seed")
        finished(go([trial.train(one), trial.train(two)]))
        first = record_in(one)
        report = Report(last_update(first), [("a second time", compare(first, record_in(two)))])
        report.notes += [f"left out: {', '.join(trial.left_out)}"] if trial.left_out else []
        if is_stream(first):
            report.notes.append(STREAM)
        elif report.equal:  # else it says nothing about the workers
            tell(f"training with {other} workers in place of {own}")
            what = f"with {other} workers in place of {own}"
            (answer,) = go([trial.train(third, workers=other)])
            if isinstance(answer, Ended) and answer.failed:  # data that cannot be sent to a worker
                report.notes.append(f"not compared {what}: {answer.failed}")
            else:
                finished([answer])
                report.pairs.append((what, compare(first, record_in(third))))
    report.notes.append(ON_CPU if device < 0 else f"on this device; {SWITCH}")
    return report
