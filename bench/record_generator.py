"""Generate records as runs leave them behind: thousands of short ones, and one with a long `metrics.jsonl`."""

from __future__ import annotations

import datetime
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alchemy.config.toml_writer import dumps
from alchemy.files import hash_text
from alchemy.plugins.file_logger import environment, versions
from alchemy.records import Ledger, Record
from alchemy.records.metrics_file import encode

KEYS, ROWS, SEEDS = 200, 100, 3  # config keys, rows per metric, runs per setting
TRAIN = ("train/loss", "train/lr", "train/grad_norm", "time/step", "time/steps_per_s", "time/targets_per_s")
DEV = ("dev/loss", "dev/accuracy", "dev/f1")
METRICS = (*TRAIN, "system/rss", *DEV)
WORDS = ("focal", "loss", "dropout", "baseline", "ablation", "warmup", "decay", "paper", "焦点", "损失", "学习率")
FIRST = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LASTS = datetime.timedelta(minutes=5)
DEV_EVERY = 1000  # updates of the long run
CODE = "".join(f"def layer{number}(x):\n    return x * {number}\n\n\n" for number in range(50))
TRACEBACK = """2026-01-01 00:05:00.000 | ERROR    | alchemy.runner:90 | the run failed
Traceback (most recent call last):
  File "src/model.py", line 41, in forward
    return self.layers(batch["tokens"])
RuntimeError: mat1 and mat2 shapes cannot be multiplied

"""


class RecordGenerator:
    """Writes records to a folder; number `n` is the same in each generator with the same seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info, self.ledgers = _run_once()
        self.environment = json.dumps(environment({"device": "cpu"}), indent=1, default=str) + "\n"
        self.sections = dumps({f"section{number}": _section(number) for number in range(KEYS // 10 - 1)})

    def write(self, number: int) -> str:
        """Write a record and return its id."""
        draw, setting = random.Random(number), number // SEEDS
        name = (FIRST + number * LASTS).strftime("%Y-%m-%d_%H-%M-%S.%f")
        failed = draw.random() < 0.05
        head = _config(setting, number % SEEDS + 1)
        text = dumps(head) + "\n" + self.sections
        lines, code = list(_metric_lines(draw)), f"SETTING = {setting}\n{CODE}"
        info = self.info | {
            "id": name,
            "tag": head["tag"],
            "purpose": " ".join(draw.choices(WORDS, k=6)),
            "status": "failed" if failed else "finished",
            "reason": "RuntimeError: mat1 and mat2 shapes cannot be multiplied" if failed else "",
            "seed": head["seed"],
            "started": _iso(FIRST + number * LASTS),
            **dict.fromkeys(("ended", "heartbeat"), _iso(FIRST + (number + 1) * LASTS)),
            "seconds": LASTS.total_seconds(),
            **dict.fromkeys(("cfg_hash", "cfg_values"), hash_text(text)),
            "fold_hash": hash_text(f"setting {setting}"),
            "code": {"src/model.py": hash_text(code)},
            "best": {"metric": "dev/f1", "value": json.loads(lines[-1])["values"]["dev/f1"], "update": 10 * ROWS},
        }
        files = {
            "backup/src/model.py": code,
            "README.md": f"# {info['tag']}\n\n{info['purpose']}\n\nTags: group{number % 7}\n",
            "cfg.toml": text,
            "env.json": self.environment,
            "ledger.jsonl": self.ledgers[number % SEEDS],
            "metrics.jsonl": "".join(f"{line}\n" for line in lines),
            "run.log": TRACEBACK if failed else "",
        }
        self._write_files(name, files, info)
        return name

    def write_long(self, rows: int, *, real: bool) -> str:
        """Write a record with many rows in `metrics.jsonl`; each has one value, or if `real`, those of a real run.

        A real run logs the values of an evaluation from time to time, too.
        """
        draw, name = random.Random(0), FIRST.strftime("%Y-%m-%d_%H-%M-%S.999999")
        names = METRICS[: -len(DEV)] if real else TRAIN[:1]
        self._write_files(name, {"cfg.toml": dumps(_config(0, 1))}, self.info | {"id": name})
        with open(self.folder / name / "metrics.jsonl", "w") as file:
            for update in range(1, rows + 1):
                file.write(_line(draw, update, names) + "\n")
                if real and update % DEV_EVERY == 0:
                    file.write(_line(draw, update, DEV) + "\n")
        return name

    def _write_files(self, name: str, files: dict[str, str], info: dict[str, Any]) -> None:
        for place in ("checkpt", "backup/src"):
            (self.folder / name / place).mkdir(parents=True)
        files = files | {".lock": "", "record.json": json.dumps(info, ensure_ascii=False, indent=1) + "\n"}
        for file, text in files.items():
            (self.folder / name / file).write_text(text, encoding="utf-8")


def _run_once() -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a finished record, in the current format, and the ledger of a run for each seed."""
    with tempfile.TemporaryDirectory() as folder:
        record = Record.create(folder, name="template", tag="template", versions=versions(), code_hash="c" * 64)
        record.finish("finished")
        return record.info, [_ledger(Path(folder) / f"{seed}.jsonl", seed) for seed in range(SEEDS)]


def _ledger(path: Path, seed: int) -> str:
    ledger, draw = Ledger(path), random.Random(seed)
    for update in range(1, ROWS + 1):
        ledger.add_step(draw.sample(range(10**6), 32))
        ledger.close_update(update, 0)
    ledger.flush()
    ledger.close()
    return path.read_text()


def _config(setting: int, seed: int) -> dict[str, Any]:
    """Return the 10 keys in which settings differ, or that alchemy reads."""
    draw = random.Random(f"setting {setting}")
    return {
        "tag": f"experiment{setting % 20}",
        "runner": "alchemy.runner.Trainer",
        "seed": seed,
        "optim": {"type": "torch.optim.AdamW", "lr": round(10 ** draw.uniform(-5, -1), 7), "weight_decay": 0.01},
        "model": {"type": "src.model.Model", "depth": draw.choice([2, 4, 6]), "dropout": draw.choice([0.0, 0.1, 0.3])},
        "sched": {"epochs": 10},
    }


def _section(number: int) -> dict[str, Any]:
    return {f"key{key}": key * number / 7 if key % 2 else f"value {key}" for key in range(10)}


def _metric_lines(draw: random.Random) -> Iterator[str]:
    """Yield the rows of a short run: training and dev metrics alternate."""
    for row in range(1, ROWS + 1):
        yield _line(draw, 10 * row, METRICS[: -len(DEV)])
        yield _line(draw, 10 * row, DEV)


def _line(draw: random.Random, update: int, names: tuple[str, ...]) -> str:
    place = {"update": update, "step": update - 1, "epoch": update // 100, "t": round(update * 0.05, 3), "gen": 0}
    return encode(place | {"values": {name: draw.random() for name in names}})


def _iso(time: datetime.datetime) -> str:
    return time.isoformat(timespec="milliseconds")
