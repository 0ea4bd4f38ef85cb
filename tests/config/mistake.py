"""A mistake: a change to a valid config or its files, and the message that a user sees."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from alchemy.config.check import check_all
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError, ConfigError
from alchemy.preview import preview_files

ROOT = str(Path(__file__).parents[2])
NEWS = """\
tag = "news"
runner = "Trainer"
plugins = [{ type = "BasicSetup" }, { type = "FileLogger", log_dir = "records" }]

[task]
type = "Classification"
tokenizer = "Words"

[task.data]
train = "data/train.csv"
dev = "data/dev.csv"
text = "title"
label = "category"
batch_size = 4

[model]
type = "TextClassifier"

[optim]
type = "AdamW"
lr = 0.001

[sched]
type = "LineWarmup"
epochs = 1

[checkpoint]
monitor = "dev/accuracy"
"""
POINTS = """\
tag = "points"
runner = "Trainer"
plugins = [{ type = "BasicSetup" }]

[task]
type = "Default"

[task.datasets.train]
batch_size = 4
pipes = [{ type = "tests.config.broken_models.Points" }]

[task.datasets.dev]
like = "train"

[model]
type = "tests.config.broken_models.Net"

[criterion]
type = "CrossEntropy"
target = "y"

[optim]
type = "AdamW"
lr = 0.001

[sched]
type = "LineWarmup"
epochs = 1
pipes = [{ type = "EvalEEPipeline", period = 1 }]
"""
TRAIN = """title,category
the match ends in a draw,sport
rates rise again,money
a goal in the last minute,sport
banks fall,money
"""
FILES = {"data/train.csv": TRAIN, "data/dev.csv": TRAIN}


@dataclass(frozen=True)
class Mistake:
    """Replace `old` by `new` in a valid config, or add `files`; with `run`, only running it reveals the mistake."""

    title: str
    old: str
    new: str
    message: str
    files: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"  # of the files
    config: str = NEWS
    run: bool = False
    warns: bool = False
    hidden: tuple[str, ...] = ()  # packages that are not installed

    def made(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the messages that a user sees, of the check or else of the run."""
        monkeypatch.chdir(folder)
        for package in self.hidden:
            monkeypatch.setitem(sys.modules, package, None)
        assert self.old in self.config, self.old
        text = self.config.replace(self.old, self.new, 1)
        for name, content in {"train.toml": text, **FILES, **self.files}.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode(self.encoding if name in self.files else "utf-8"))
        try:
            document = prepare_cfg("train.toml")
            problems = check_all([document], strict=False, roots=[".", ROOT], more=[preview_files])
        except ConfigError as error:
            problems = error.problems
        found = [problem for problem in problems if problem.error is not self.warns]
        if found or not self.run:
            return [_shown(str(problem)) for problem in found]
        from alchemy.runner import run_task

        with pytest.raises(AlchemyError) as failed:
            run_task(document, no_file=True, raise_errors=True)
        return [_shown(str(failed.value))]


def _shown(text: str) -> str:
    """Remove the folder of this repository, which differs between machines."""
    return text.replace(ROOT + os.sep, "")
