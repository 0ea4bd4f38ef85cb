"""Text lengths are reported at the start, and unusually long texts are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loguru import logger

from alchemy.config.load import prepare_cfg
from alchemy.runner import run_task
from alchemy.tasks.length_report import log_lengths
from tests.config.mistake import NEWS


@pytest.fixture
def told() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line).strip()), format="{level} {message}", level="INFO")
    yield lines
    logger.remove(sink)


def test_the_spread_is_one_line(told: list[str]) -> None:
    log_lengths("train", np.arange(1, 101), 100, lambda: "nowhere")
    assert told == ["INFO lengths of train: median 51, 95% 96, max 100 tokens"]


def test_an_outlier_is_warned_of(told: list[str]) -> None:
    log_lengths("dev", np.array([18] * 99), 1204, lambda: "dev.csv:7", "source")
    (warning,) = told  # lengths of splits other than train go to the log file
    assert warning.startswith("WARNING dev.csv:7: the longest source of dev has 1,204 tokens, 95% have at most 18")


def test_the_longest_text_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rows = "".join(f"a short text,{label}\n" for label in ("sport", "money") * 20)
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.csv").write_text(f"title,category\n{rows}{'word ' * 300},sport\n")
    (tmp_path / "train.toml").write_text(NEWS.replace('{ type = "BasicSetup" }, ', ""))
    run_task(prepare_cfg("train.toml"), no_file=True, raise_errors=True, fast_dev_run=1)
    assert any("lengths of train: median 3, 95% 3, max 300 tokens" in line for line in told), told
    assert any("data/train.csv:42: the longest text of train has 300 tokens" in line for line in told)
