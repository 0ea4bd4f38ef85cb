"""Texts have a length limit even if neither config nor model sets one; truncation is counted and reported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError
from alchemy.runner import run_task
from tests.dist.start import ROOT
from tests.tasks.pairs import config as pairs_config
from tests.tasks.texts import BMES, MARKED, TEXTS, config, refused

LONG = "on and " * 2000
CUT = "truncated 1 of {} texts that exceed 1,024 tokens"


def with_long(root: Path, kind: str, **task: Any) -> dict[str, Any]:
    """A config whose data have one text of 4,000 tokens, for an encoder without a limit."""
    cfg = config(root, kind, **task)
    cfg["sched"]["epochs"] = 1
    text = {
        "classes": "".join(f"{label}\t{text}\n" for label, text in [*TEXTS, ("good", LONG)]),
        "relation": "\n".join([*MARKED, f"cause\tthe <e1> rain </e1> made <e2> mud </e2> {LONG}"]),
        "tagging": BMES + "在 O\n" * 4000 + "\n",
    }[kind]
    (root / "data.txt").write_text(text)
    return cfg


@pytest.mark.parametrize(("kind", "count"), [("classes", 17), ("relation", 13), ("tagging", 13)])
def test_texts_without_a_limit_are_cut_and_counted(kind: str, count: int, tmp_path: Path, warnings: list[str]) -> None:
    result = run_task(with_long(tmp_path, kind), raise_errors=True)
    told = [line for line in warnings if "truncated " in line]
    assert len(told) == 2 and all(CUT.format(count) in line for line in told)  # of train, and of dev
    asked = {"classes": LONG, "relation": f"<e1> a </e1> <e2> b </e2> {LONG}", "tagging": "在" * 4000}[kind]
    warnings.clear()
    with alchemy.load(result.record_dir) as model:
        answers = model.predict([asked, asked])
        model.predict([asked])
    assert len(answers) == 2 and len([line for line in warnings if "truncated 2 of 2 texts" in line]) == 1


def test_a_limit_of_the_config_is_held_instead(tmp_path: Path, warnings: list[str]) -> None:
    run_task(with_long(tmp_path, "classes", max_length=4000), raise_errors=True)
    assert not [line for line in warnings if "truncated " in line]
    refused(
        with_long(tmp_path, "classes", max_length=3999), "data.txt:17: a text has 4000 tokens, more than max_length"
    )


def test_pairs_are_cut_to_the_limit_too(tmp_path: Path, warnings: list[str]) -> None:
    cfg = config(tmp_path, "classes", pair=True)
    (tmp_path / "data.csv").write_text(f"text,pair,label\na day,sun,good\n{LONG},{LONG},bad\n")
    pipe = {
        "type": "alchemy.pipeline.processors.TextClassification",
        "path": str(tmp_path / "data.csv"),
        "pair": "pair",
    }
    cfg["task"]["datasets"] = {"train": {"pipes": [pipe], "batch_size": 2}}
    cfg["sched"]["epochs"] = 1
    run_task(cfg, raise_errors=True)
    assert [line for line in warnings if CUT.format(2) in line]


def test_a_mark_beyond_the_limit_is_told_before_the_training(tmp_path: Path) -> None:
    cfg = with_long(tmp_path, "relation")
    (tmp_path / "data.txt").write_text("\n".join([*MARKED, f"cause\t{LONG} <e1> rain </e1> <e2> mud </e2>"]))
    cfg["sched"]["pipes"] = [{"type": "tests.toy.FailAt", "step": 0}]
    refused(cfg, r"data.txt:13: .*was truncated; increase max_length")


def test_a_translation_refuses_what_is_longer(corpora: Path, tmp_path: Path) -> None:
    cfg = pairs_config(corpora, tmp_path, max_length=4)
    with pytest.raises(AlchemyError, match=r"train.en:\d+ .*the source has 5 tokens, but the limit is 4.*max_length"):
        run_task(cfg, raise_errors=True)
    cfg["model"]["network"] = {**cfg["model"]["network"], "places": "learned", "max_positions": 3}
    with pytest.raises(AlchemyError, match="max_length = 4, but the network takes at most 3 tokens"):
        run_task(cfg, raise_errors=True)


def measured(*words: str, into: Path) -> tuple[int, int]:
    """Return the exit code of `alchemy words`, and its peak memory in MB."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with into.open("w") as out:
        places = [(os.POSIX_SPAWN_DUP2, out.fileno(), number) for number in (1, 2)]
        child = os.posix_spawn(sys.executable, [sys.executable, "-m", "alchemy", *words], env, file_actions=places)
        _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss // 1024


@pytest.mark.slow
def test_a_line_of_300_000_characters_takes_no_more_memory_than_others(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes", tokenizer="alchemy.text.Characters")
    line = "abcdefghij" * 30_000
    (tmp_path / "data.txt").write_text("".join(f"{label}\t{text}\n" for label, text in [*TEXTS, ("good", line)]))
    cfg["model"]["encoder"] |= {"dim": 128, "hidden": 128}
    cfg["sched"]["epochs"] = 1
    (tmp_path / "c.toml").write_text(dumps(cfg))
    code, megabytes = measured("run", str(tmp_path / "c.toml"), "--device", "-1", into=tmp_path / "out")
    assert code == 0 and megabytes < 2000 and CUT.format(17) in (tmp_path / "out").read_text()
    (record,) = (tmp_path / "records").iterdir()
    (tmp_path / "in.txt").write_text(f"a fine day\n{line}\n")
    words = ("predict", str(record), "--file", str(tmp_path / "in.txt"), "--device", "-1")
    code, megabytes = measured(*words, into=tmp_path / "out")
    assert code == 0 and megabytes < 2000 and "1 of 2 texts are longer" in (tmp_path / "out").read_text()
