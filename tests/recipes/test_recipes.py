"""The recipes match the table, and the table matches the records."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from alchemy.analysis.table_files import read_table_file
from alchemy.analysis.table_results import load_results
from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from tests.recipes.kitchen import FILES, ROOT, TABLE, loaded, name_of, set_out, shorten, small
from tests.tasks.texts import config
from tests.text.sets import DATA

GAN = ROOT.parent / "examples" / "gan" / "gan.toml"  # also in the table
PAGES = (ROOT / "README.md", ROOT.parent / "docs" / "recipes.md")


def test_the_table_names_every_recipe_and_the_seeds_of_its_results() -> None:
    rows = {row.name: row.cells["command"].value for row in read_table_file(TABLE).rows}
    recipes = {tomllib.loads(path.read_text("utf-8"))["tag"]: path for path in (*FILES, GAN)}
    assert rows.keys() == recipes.keys()
    results = load_results(TABLE.with_suffix(".json"))
    for name, command in rows.items():
        assert f"alchemy run {recipes[name].relative_to(GAN.parent if name == 'mnist-gan' else ROOT)}" in command
        seeds = ",".join(run.seed for run in results.get((name, "test"), []))
        assert f"--seeds {seeds}" in command or name == "multi30k-tiny"


def test_the_pages_show_what_the_results_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a folder without records
    assert main(["table", "show", str(TABLE), "--format", "markdown"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for page in PAGES:
        shown = page.read_text("utf-8").partition("<!-- table recipes -->")[2].partition("<!-- end of table -->")[0]
        assert shown.strip() == printed.out.strip()


@pytest.mark.slow
def test_results_come_from_the_records_of_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TABLE.parent, "tables")
    cfg: dict[str, Any] = config(tmp_path, "classes")
    cfg["tag"], cfg["plugins"][0]["log_dir"] = "trec-textcnn", "records/train"
    cfg["task"]["datasets"]["test"] = cfg["task"]["datasets"]["dev"]
    cfg["task"]["evalpipes"] = [{"type": "alchemy.pipeline.eval.SaveBest", "monitor": "accuracy"}]
    Path("c.toml").write_text(dumps(cfg))
    assert main(["run", "c.toml", "--seeds", "1,2", "--test", "--device", "-1"]) == 0
    other = ["run", "c.toml", "--seeds", "1", "--test", "--device", "-1", "--set", "optim.lr=0.1"]
    monkeypatch.setattr(sys, "argv", ["alchemy", *other])  # as in a record
    assert main(other) == 0
    assert main(["table", "show", "recipes"]) == 0
    assert "trec-textcnn / test is stale: 2 newer runs fit" in capsys.readouterr().err
    assert main(["table", "save", "recipes"]) == 0
    assert "trec-textcnn / test is unchanged: seeds 3, 4, 5 are only in" in capsys.readouterr().err
    assert main(["table", "save", "recipes", "--replace"]) == 0
    runs = load_results(Path("tables/recipes.json"))["trec-textcnn", "test"]
    assert [run.seed for run in runs] == ["1", "2"]  # the run with --set does not count
    assert all(run.metrics["test/accuracy"] == max(run.curve["dev/accuracy"]) == 1.0 for run in runs)
    capsys.readouterr()
    assert main(["table", "show", "recipes", "--format", "markdown"]) == 0
    assert "| 0 | accuracy | 100.00 ± 0.00 (2) | 91.2 (Kim 2014)" in capsys.readouterr().out


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten("multi30k_en_de", tmp_path / "recipes" / "data", lines=60)
    shutil.copytree(ROOT / "multi30k", tmp_path / "recipes" / "multi30k", ignore=shutil.ignore_patterns("corpus"))
    shutil.copy(ROOT / "base.toml", tmp_path / "recipes")
    shutil.copytree(TABLE.parent, tmp_path / "recipes" / "tables")
    monkeypatch.chdir(tmp_path / "recipes")
    assert loaded("multi30k/prepare").prepare() == 0
    short = ["sched.num_training_steps=4", "sched.num_warmup_steps=2", "task.limits={max_length=4}", "log_every=1"]
    sets = [word for one in short for word in ("--set", one)]
    assert main(["run", "multi30k/tiny.toml", "--device", "-1", *sets]) == 0
    (record,) = (str(path) for path in Path("../runs/recipes/train").iterdir())
    mean = f"{record}/state/averaged"
    assert main(["checkpoint", "average", record, "--last", "2", "--to", mean]) == 0
    assert main(["test", record, "--set", f"model.model_path={mean}", "--device", "-1"]) == 0
    assert main(["table", "save", "recipes", "--in", "../runs/recipes"]) == 0
    (run,) = load_results(Path("tables/recipes.json"))["multi30k-tiny", "test"]
    assert run.seed == "1" and 0 <= run.metrics["test/bleu_words"] <= 100 and run.curve["dev/bleu_words"]
    capsys.readouterr()
    assert main(["table", "show", "recipes", "--format", "markdown"]) == 0
    assert f"| bleu\\_words | {run.metrics['test/bleu_words']:.2f} | 41.02" in capsys.readouterr().out
    metrics = ["--metric", "train/loss,dev/loss", "--metric", "dev/bleu_words"]
    assert main(["plot", record, *metrics, "--out", str(tmp_path / "curves.svg")]) == 0
    assert (tmp_path / "curves.svg").read_text("utf-8").count('class="line') >= 4
