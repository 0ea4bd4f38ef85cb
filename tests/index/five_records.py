"""Five runs A to E, and a test of A, that differ in everything that filters look at."""

from __future__ import annotations

from pathlib import Path

from alchemy.records.readme import add_note, set_purpose, set_tags
from tests.analysis.fake_curves import change_info, write_curves
from tests.analysis.fake_runs import write_run


def write_five(project: Path) -> None:
    a = write_run(project, 0, {"dev/f1": 0.5}, {"optim": {"lr": 1e-3}, "name": "ABC"}, seed=1, tag="Base")
    b = write_run(
        project,
        1,
        {"dev/f1": 0.8},
        {"optim": {"lr": 5e-3}, "depth": 4, "name": "b_%"},
        seed=2,
        status="failed",
        minutes=9,
    )
    c = write_run(project, 2, {"dev/f1": 0.9}, {"optim": {"lr": 1e-2}, "depth": 6}, seed=1)
    d = write_curves(project, 3, {"dev/loss": [2.0, 9.0, float("nan")]}, {"depth": 8}, seed=10)
    e = write_run(project, 4, {}, {"flag": True, "nothing": float("nan"), "drink": "Café"}, seed=1)
    write_run(project, 5, {"test/f1": 0.6}, kind="test", parent=a)
    change_info(project / b, code_hash="ABcd".lower())
    set_purpose(project / a, "focal 焦点损失")
    set_purpose(project / b, "Focal-loss")
    set_purpose(project / c, "Äpfel 损失 函数")
    set_purpose(d, "50% of a\\b")
    set_tags(project / a, add=["paper", "v2"])
    set_tags(project / c, add=["paper"])
    set_tags(project / e, add=["paper2"])
    add_note(project / a, "look again LATER")
