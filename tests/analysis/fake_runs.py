"""Write small records of runs, as a run would leave them, without running anything."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from alchemy.config.toml_writer import dumps

_START = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


def write_run(
    root: Path,
    number: int,
    metrics: dict[str, float],
    config: dict[str, Any] | None = None,
    *,
    seed: int = 1,
    tag: str = "demo",
    status: str = "finished",
    kind: str = "train",
    parent: str = "",
    minutes: float = 5.0,
) -> str:
    """Write a record that started `number` hours after the first one; return its id."""
    started = _START + datetime.timedelta(hours=number)
    name = started.strftime("%Y-%m-%d_%H-%M-%S.000000")
    folder = root / name
    folder.mkdir(parents=True)
    cfg = {"tag": tag, "seed": seed, **(config or {})}
    (folder / "cfg.toml").write_text(dumps(cfg), "utf-8")
    ended = started + datetime.timedelta(minutes=minutes)
    info = {
        "format": 1, "id": name, "tag": tag, "purpose": "", "status": status, "reason": "", "pid": 1,
        "pid_started": 1, "host": "elsewhere", "started": started.isoformat(), "ended": ended.isoformat(),
        "heartbeat": ended.isoformat(), "cmd": ["/bin/alchemy", "run", "a.toml"], "cfg_hash": f"{number:064x}",
        "code_hash": "", "code": {}, "seed": seed, "versions": {"alchemy": "1.0"}, "parent": parent or None, "gen": 0,
        "variant": "", "delta": {}, "kind": kind,
        "best": {"metric": "dev/f1", "value": metrics["dev/f1"], "update": 2} if "dev/f1" in metrics else None,
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(info), "utf-8")
    (folder / "README.md").write_text(f"# {tag}\n", "utf-8")
    row = {"update": 2, "step": 1, "epoch": 0, "t": 1.0, "gen": 0, "values": metrics}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    return name
