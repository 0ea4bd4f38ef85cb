"""The recipes match the table, and the table matches the records."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from tests.recipes.kitchen import FILES, ROOT, loaded, name_of, set_out, shorten, small
from tests.tasks.texts import config
from tests.text.sets import DATA


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return loaded("table")


def test_the_table_names_every_recipe(table: ModuleType) -> None:
    there = {tomllib.loads(path.read_text("utf-8"))["tag"]: str(path.relative_to(ROOT)) for path in FILES}
    assert there == {tag: recipe.file for tag, recipe in table.RECIPES.items()}


def test_the_pages_show_what_the_results_say(table: ModuleType) -> None:
    for page in table.PAGES:
        shown = page.read_text("utf-8").partition(table.BEGIN)[2].partition(table.END)[0]
        assert shown.strip() == table.table()


@pytest.mark.slow
def test_results_come_from_the_records_of_tests(
    table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg: dict[str, Any] = config(tmp_path, "classes")
    cfg["tag"], cfg["plugins"][0]["log_dir"] = "trec-textcnn", "records/train"
    cfg["task"]["datasets"]["test"] = cfg["task"]["datasets"]["dev"]
    cfg["task"]["evalpipes"] = [{"type": "alchemy.pipeline.eval.SaveBest", "monitor": "accuracy"}]
    Path("c.toml").write_text(dumps(cfg))
    assert main(["run", "c.toml", "--seeds", "1,2", "--test", "--device", "-1"]) == 0
    monkeypatch.setattr(table, "HERE", tmp_path)
    table.collect(Path("records"))
    found = json.loads((tmp_path / "results" / "trec-textcnn.json").read_text("utf-8"))
    assert [row["seed"] for row in found["seeds"]] == [1, 2]
    assert all(row["test"] == max(row["dev"]) == 1.0 for row in found["seeds"])
    other = ["run", "c.toml", "--seeds", "1", "--test", "--device", "-1", "--set", "optim.lr=0.1"]
    monkeypatch.setattr(sys, "argv", ["alchemy", *other])  # as in a record
    assert main(other) == 0
    kept = tmp_path / "results" / "trec-textcnn.json"
    kept.write_text(kept.read_text("utf-8").replace('"seed": 2', '"seed": 7'), "utf-8")
    min(Path("records/test").glob("*/record.json")).write_text("")
    table.collect(Path("records"))
    told = capsys.readouterr().err
    assert "was run with --set" in told and "skipped" in told and "7] are only in results/" in told
    kept.write_text(kept.read_text("utf-8").replace('"seed": 7', '"seed": 2'), "utf-8")
    assert "--seeds 1,2 --test` | 0 min | accuracy 100.00 ± 0.00 (2 seeds) |" in table.table()


@pytest.fixture(params=FILES, ids=name_of)
def recipe(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a copy of the recipes folder with data, as the working folder."""
    (tmp_path / "data").symlink_to(DATA)
    monkeypatch.chdir(tmp_path)
    return set_out(request.param)


def test_a_recipe_has_no_fault_that_a_check_finds(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("minilm", "small-bert", "bert-base-chinese"):  # of weights, which the check does not open
        Path(folder).mkdir(exist_ok=True)
    assert main(["check", str(recipe)]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_a_recipe_trains_on_its_data(recipe: Path) -> None:
    assert main(["run", str(recipe), "--fast-dev-run", "2", "--device", "-1", *small(recipe)]) == 0


def test_the_commands_of_translation_lead_to_a_row_of_the_table(
    table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten("multi30k_en_de", tmp_path / "recipes" / "data", lines=60)
    shutil.copytree(ROOT / "multi30k", tmp_path / "recipes" / "multi30k", ignore=shutil.ignore_patterns("corpus"))
    shutil.copy(ROOT / "base.toml", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path / "recipes")
    monkeypatch.setattr(table, "HERE", tmp_path / "recipes")
    assert loaded("multi30k/prepare").prepare() == 0
    short = ["sched.num_training_steps=4", "sched.num_warmup_steps=2", "task.limits={max_length=4}", "log_every=1"]
    sets = [word for one in short for word in ("--set", one)]
    assert main(["run", "multi30k/tiny.toml", "--device", "-1", *sets]) == 0
    (record,) = (str(path) for path in Path("../runs/recipes/train").iterdir())
    mean = f"{record}/state/averaged"
    assert main(["checkpoint", "average", record, "--last", "2", "--to", mean]) == 0
    assert main(["test", record, "--set", f"model.model_path={mean}", "--device", "-1"]) == 0
    table.collect(Path("../runs/recipes"))
    (row,) = json.loads(Path("results/multi30k-tiny.json").read_text("utf-8"))["seeds"]
    assert row["seed"] == 1 and 0 <= row["test"] <= 100 and row["dev"]
    assert f"bleu_words {row['test']:.2f} (1 seed)" in table.table()
    loaded("curves").draw(Path(record), "bleu_words", tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text("utf-8").count("<path") > 5
    with pytest.raises(SystemExit, match="has no metric dev/blue"):
        loaded("curves").draw(Path(record), "blue", tmp_path / "curves.svg")
