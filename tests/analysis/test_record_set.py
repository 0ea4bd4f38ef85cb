"""Records in Python: `alchemy.records(..)`."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import alchemy
from alchemy.cli import main
from alchemy.errors import AlchemyError, MissingKey
from tests.analysis.fake_runs import write_run
from tests.hidden import HIDE, python
from tests.toy import config

EVIL = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two settings with two seeds each, and the test of the best run."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "records"
    for number, (lr, seed, f1) in enumerate([(0.1, 1, 0.6), (0.1, 2, 0.8), (0.01, 1, 0.7), (0.01, 2, 0.5)]):
        config = {"optim": {"lr": lr}, "plugins": [{"type": "x.Seeding", "seed": seed}], "model": {"depth": 2}}
        name = write_run(root, number, {"dev/f1": f1, "dev/loss": 1 - f1}, config, seed=seed)
        if f1 == 0.8:
            best = name
    write_run(root, 9, {"test/f1": 0.75}, kind="test", parent=best)
    return alchemy.records("records")


def test_a_set_is_a_sequence_of_training_runs_newest_first(runs):
    assert len(runs) == 4
    assert [record.seed for record in runs] == [2, 1, 2, 1]
    assert runs[0].started > runs[-1].started
    assert [record.id for record in runs[:2]] == [runs[0].id, runs[1].id]
    assert (runs[0].tag, runs[0].status, runs[0].kind) == ("demo", "finished", "train")
    assert [record.kind for record in alchemy.records("records", kind="test")] == ["test"]
    assert len(alchemy.records(kind="")) == 5


def test_queries_narrow_a_set(runs):
    narrow = runs.query("lr<0.05 or seed:2").query("dev/f1>0.6", sort="dev/f1")
    assert [record["optim.lr"] for record in narrow] == [0.1, 0.01]
    assert [record.kind for record in runs.query("kind:test")] == ["test"]
    assert len(runs.query("")) == 4
    with pytest.raises(AlchemyError, match=r"unexpected '\)'\n  a\) or \(b\n   \^"):
        narrow.query("a) or (b")


def test_the_best_record_is_found_by_dev_and_test_metrics(runs):
    best = runs.best("dev/f1")
    assert best.best == ("dev/f1", 0.8, 2)
    assert runs.best("dev/loss").id == runs.best("test/f1").id == best.id
    assert runs.query("lr<0.05").best("dev/f1")["lr"] == 0.01
    assert runs.find(best.path).id == runs.find(best.id).id == best.id


def test_names_are_looked_up_within_the_set(runs):
    low = runs.query("lr=0.01 or lr=3")
    assert low.find("best(dev/f1)").best == ("dev/f1", 0.7, 2)
    assert low.find("best(dev/f1, seed=2 or seed=3)").best == ("dev/f1", 0.5, 2)
    assert runs.query("lr=0.1").find("last~1").id == runs[-1].id
    with pytest.raises(AlchemyError, match=r"found only 2 training runs for 'lr=0\.01 or lr=3'"):
        low.find("last~2")
    tests = alchemy.records("records", kind="test")
    assert tests.find("last").id == tests.best("test/f1").id == tests[0].id


@pytest.mark.parametrize("sort", ["dev/f1", "dev/loss", "created", "lr", "seed"])
def test_sets_are_sorted_as_the_list(runs, sort, capsys):
    for reverse in ([], ["--reverse"]):
        assert main(["ls", "--each", "--json", "--columns", "id", "--sort", sort, *reverse]) == 0
        listed = [line["columns"]["id"] for line in json.loads(capsys.readouterr().out)]
        assert [record.id for record in runs.query("", sort=f"{'-' * len(reverse)}{sort}")] == listed


def test_config_values_are_found_by_key(runs):
    record = runs.best("dev/f1")
    assert record.config["optim"] == record["optim"] == {"lr": 0.1}
    assert record["optim.lr"] == record["lr"] == 0.1
    assert record["plugins.Seeding.seed"] == 2
    assert "depth" in record and "width" not in record and record.get("width", 3) == 3
    with pytest.raises(MissingKey, match=r"has no config key 'model.dept'; did you mean 'model.depth'"):
        record["model.dept"]


def test_metrics_are_names_with_values_and_arrays(runs):
    record = runs.best("dev/f1")
    assert record.metrics == {"dev/f1": 0.8, "dev/loss": pytest.approx(0.2), "test/f1": 0.75}
    updates, values = record.metric("dev/f1")
    np.testing.assert_array_equal(updates, [2])
    np.testing.assert_array_equal(values, [0.8])
    assert (updates.dtype, values.dtype) == (np.int64, np.float64)
    assert record.metric("test/f1")[1].tolist() == [0.75]
    with pytest.raises(MissingKey, match="has no metric 'dev/f2'; did you mean 'dev/f1'"):
        record.metric("dev/f2")


def test_nan_and_infinity_stay_in_the_arrays(runs):
    rows = [{"update": n, "values": {"dev/f1": v}} for n, v in enumerate(["nan", "inf", 0.5])]
    (runs[0].path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.testing.assert_array_equal(runs[0].metric("dev/f1")[1], [np.nan, np.inf, 0.5])


def test_a_table_has_chosen_or_changing_columns(runs):
    table = runs.table(["lr", "seed", "dev/f1", "created"])
    assert table.columns == ["lr", "seed", "dev/f1", "created"]
    assert table["dev/f1"] == [0.5, 0.7, 0.8, 0.6]
    assert next(iter(table))["created"] == datetime.datetime(2026, 3, 1, 15, tzinfo=datetime.UTC)
    assert runs.table("dev/f1")["dev/f1"] == [0.5, 0.7, 0.8, 0.6]
    assert "optim.lr" in runs.table().columns
    folded = runs.table(["lr", "dev/f1"], fold=True)
    assert folded.columns == ["lr", "dev/f1", "dev/f1 std", "runs"]
    assert folded["dev/f1"] == [pytest.approx(0.6), pytest.approx(0.7)]
    assert repr(folded).splitlines()[2].split() == ["0.1", "0.7", "0.1414", "2"]
    assert runs.query("seed=2").table("updates", fold=True).columns == ["updates"]
    write_run(runs[0].path.parent, 5, {"dev/f1": 0.5}, {"optim": {"lr": 3}}, seed=1)
    write_run(runs[0].path.parent, 6, {"dev/f1": 0.5}, {"optim": {"lr": 3}}, seed=2)
    assert runs.query("lr=3").table("dev/f1", fold=True)["dev/f1 std"] == [0.0]
    with pytest.raises(AlchemyError, match="unknown column 'width'"):
        runs.table(["width"])


def test_notebooks_show_escaped_html(runs, tmp_path):
    folder = runs[0].path
    (folder / "README.md").write_text(f"# demo\n\n{EVIL}\n\nTags: <b>\n")
    (folder / "cfg.toml").write_text(f'tag = "{EVIL[:25]}"\n"<i>" = 1\n')
    runs = alchemy.records("records")
    for shown in (runs._repr_html_(), runs[0]._repr_html_(), runs.table(["id", "purpose"])._repr_html_()):
        assert "&lt;script&gt;" in shown
        assert "<script" not in shown and "<b>" not in shown and "<i>" not in shown and "\x1b" not in shown
    assert alchemy.records(tmp_path / ".alchemy")._repr_html_() == "<p>no records</p>"


def test_data_frames_have_the_columns_of_the_table(runs):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = runs.to_pandas(["lr", "dev/f1", "purpose"])
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("lr")["dev/f1"].mean().tolist() == pytest.approx([0.6, 0.7])
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert isinstance(runs.to_polars(["lr", "created"]), polars.DataFrame)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named(runs, package):
    code = f"import alchemy\ntry: alchemy.records('records').to_{package}()\nexcept Exception as error: print(error)"
    assert python(_PATH + HIDE.format(hidden=[package]) + code) == (
        f"to_{package}() needs the package {package}; pip install {package}\n"
    )


_PATH = f"import sys\nsys.path.insert(0, {str(Path(alchemy.__file__).parents[1])!r})\n"


def test_the_package_is_callable_and_stays_a_package(runs):
    from alchemy import records
    from alchemy.records import Record, folder

    package = sys.modules["alchemy.records"]
    assert records is alchemy.records is package
    assert package.Record is Record is folder.Record
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing
    with pytest.raises(AlchemyError, match="folder not found: 'recrods'"):
        alchemy.records("recrods")


def test_the_model_of_a_record_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alchemy.run([config("records", sched__epochs=1)], device=[-1])
    (record,) = alchemy.records("records")
    with record.load(checkpoint="last") as model:
        assert [tuple(weight.shape) for weight in model.module.parameters()] == [(1, 1), (1,)]


def test_finding_records_imports_neither_torch_nor_numpy(runs):
    code = "import alchemy\nprint('alchemy.records' in sys.modules)\nruns = alchemy.records('records')\n"
    code += "runs.best('dev/f1').metrics, runs.table()\nprint(*({'torch', 'numpy', 'loguru'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", _PATH + code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n\n"


def test_a_record_that_is_gone_or_damaged_has_no_metrics(runs):
    (runs[0].path / "metrics.jsonl").unlink()
    (runs[0].path / "cfg.toml").write_text("[[[")
    assert runs[0].config == {}
    with pytest.raises(MissingKey, match="has no metric 'dev/f1'"):
        runs[0].metric("dev/f1")
