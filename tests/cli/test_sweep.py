"""`alchemy sweep`: mistakes are one clear line each, before the first run; `show` and `ls` present what was found."""

import json
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.cli.completion import complete
from alchemy.queue import NewEntry, Queue
from tests.cli.run_command import run
from tests.sweep.trivial import make_plan, make_settings, open_study

SWEEP = """
[sweep]
optim.lr = { log = [1e-3, 1e-1] }
model.hidden = [4, 16]
"""


def refuse(capsys, *words):
    """Run a command that must fail before anything is started, and return its errors."""
    text = run(capsys, "sweep", "train.toml", *words, code=2)
    assert not Path(".alchemy/queue").exists()
    assert not Path("records").exists()
    return [line for line in text.splitlines() if line.startswith("error")]


def add_sweep(text):
    path = Path("train.toml")
    path.write_text(path.read_text() + text)


MISTAKES = [
    ("", [], "the sweep has no keys to search; add a key to [sweep]"),
    ("optim.lrr = [0.1]", [], "train.toml:79 [optim] AdamW has no option 'lrr'; did you mean 'lr'?"),
    ("modle.hidden = [1]", [], "train.toml:79 [sweep] the config has no 'modle'; did you mean 'model'?"),
    ("optim.lr = { log = [1e-2, 1e-5] }", [], "the lower bound 0.01 is not below the upper bound 1e-05"),
    ("optim.lr = { log = [0, 1] }", [], "a logarithmic range needs a lower bound above 0, not 0"),
    ("optim.lr = { uniform = [1] }", [], "uniform must be a list of two numbers, not [1]"),
    (
        "optim.type = ['alchemy.optim.AdamW', 'torch.optim.SGD']\noptim.momentum = [0.5]",
        [],
        "AdamW has no option 'momentum'; if only some types have it, add when = { optim.type = [..] }",
    ),
    ("optim.lr = { lgo = [1, 2] }", [], "optim.lr is not a set of values; did you mean 'log'?"),
    ("optim.lr = { log = [1e-3, 1], stpe = 2 }", [], "optim.lr: { log = .. } has no 'stpe'"),
    ("optim.lr = 0.1", [], "optim.lr is not a set of values; write a list of values, or a table such as"),
    ("optim.lr = [0.1, 0.1]", [], "optim.lr: 0.1 is listed twice"),
    ("optim.lr = []", [], "optim.lr: expected a list with at least one value"),
    ("optim.lr = [0.1, 'x']", [], "AdamW: lr must be a number, not the string 'x'"),
    ("optim = [{ lr = 1 }]", [], "a value is a table; search its keys one by one"),
    ("metod = 'grid'\noptim.lr = [0.1]", [], "metod is not a set of values; did you mean 'method'?"),
    ("optim.lr = [0.1]\nmetric = 'dev/acuracy'", [], "no evaluation computes 'acuracy'; did you mean 'accuracy'?"),
    ("optim.lr = [0.1]\ntrials = 0", [], "trials must be at least 1, not 0"),
    ("optim.lr = [0.1]\nseeds = [-1, 1]", [], "seeds must be integers from 0 to 2**63 - 1, not -1"),
    ("optim.lr = { log = [1e-3, 1], uniform = [0, 1] }", [], "optim.lr has log and uniform, of which only one"),
    (
        "model.hidden = [4, 8]\noptim.lr = { choice = [0.1, 0.2], when = { model.hidden = [4, 8] } }\n"
        "optim.weight_decayy = { choice = [0.1], when = { model.hidden = [8], optim.lr = [0.2] } }",
        [],
        "AdamW has no option 'weight_decayy'",
    ),
    (
        "model.hidden = [4, 8]\noptim.lr = { choice = [0.1, 0.2], when = { model.hidden = [4] } }\n"
        "optim.weight_decay = { choice = [0.1], when = { model.hidden = [8], optim.lr = [0.2] } }",
        [],
        "the conditions of optim.weight_decay contradict each other",
    ),
    ("optim.lr = [0.1]\nseeds = [1, 1]", [], "seeds must be different numbers, got [1, 1]"),
    (
        "optim.lr = { log = [1e-3, 1] }\nmethod = 'grid'",
        [],
        "grid needs keys with listed values, but optim.lr is a range",
    ),
    ("optim.lr = [0.1, 0.2]\nmethod = 'cmaes'", [], "cmaes needs at least two keys with numbers"),
    ("optim.lr = { choice = [0.1], when = { model.hiden = [4] } }", [], "which the sweep does not search"),
    (
        "optim.lr = { choice = [0.1], when = { model.hidden = 5 } }\nmodel.hidden = [4]",
        [],
        "optim.lr depends on model.hidden = 5, which is not one of its values; they are 4",
    ),
    (
        "optim.lr = { choice = [0.1], when = { model.hidden = 4 } }\n"
        "model.hidden = { choice = [4], when = { optim.lr = 0.1 } }",
        [],
        "the conditions of optim.lr, model.hidden depend on each other",
    ),
    ("optim.lr = { uniform = [-1e308, 1e308] }", [], "the range from -1e+308 to 1e+308 is too large"),
    ("optim.lr = { log = [1e-300, 1e300] }", [], "the range from 1e-300 to 1e+300 is too large"),
    ("model.hidden = { int = [1, 9007199254740993] }", [], "the bounds must be integers from -2**53 to 2**53"),
    ("optim.lr = { log = [1e-3, 1], points = 2000000000 }", [], "points must be at most 10000, not 2000000000"),
    ("optim.lr = [0.1]\nseeds = 3000000000", [], "seeds must be"),
    ("sweep.trials = [1, 2]", [], "a sweep cannot search sweep.trials; search a key that parts read"),
    (None, ["--grid", "optim.lr=0.1", "--seeds", "3000000000"], "--seeds [sweep] seeds must be"),
    (None, ["--grid", "seed=1,2"], "a sweep does not search the seed; use --seeds"),
    (None, ["--grid", "variant.small.optim.lr=1,2"], "a sweep cannot search variant.small.optim.lr"),
    (None, ["--grid", "base=a,b"], "a sweep cannot search base"),
    (None, ["--grid", "model.hidden=8", "--grid", "model.hidden=16"], "model.hidden is given twice; list all values"),
    (None, ["--grid", "model.hidden=8", "--grid", '"model"."hidden"=16'], "model.hidden is given twice"),
    (None, ["--grid", "optim.lrr=1e-3"], "--grid optim.lrr=1e-3 [optim] AdamW has no option 'lrr'; did you mean 'lr'?"),
    (None, ["--grid", "optim.lr"], "--grid optim.lr expected KEY=VALUE,VALUE"),
    (None, ["--grid", "optim.lr=0.1", "--method", "tpee"], "'tpee' is not a valid --method; did you mean 'tpe'?"),
    (None, ["--grid", "optim.lr=0.1", "--name", "a/b"], "invalid name 'a/b'"),
    (None, ["--grid", "optim.lr=0.1", "--name", "x" * 101], "use up to 100 letters"),
    (None, ["--grid", "optim.lr=0.1", "--slots", "0"], "--slots must be at least 1"),
]


@pytest.mark.parametrize(("table", "words", "message"), MISTAKES, ids=[row[2] for row in MISTAKES])
def test_a_mistake_is_one_clear_line(project, capsys, table, words, message):
    if table is not None:
        add_sweep(f"\n[sweep]\n{table}\n")
    (error,) = refuse(capsys, *words)
    assert message in error


def test_all_mistakes_are_reported_at_once(project, capsys):
    add_sweep("\n[sweep]\noptim.lrr = [1]\nmodle.x = [2]\nmodel.hidden = { int = [4, 1] }\ntrials = 'x'\n")
    errors = refuse(capsys)
    assert [error.split()[1] for error in sorted(errors)] == [f"train.toml:{line}" for line in (79, 80, 81, 82)]


def test_a_method_that_cannot_search_the_space_is_reported_before_the_configs_are_checked(project, capsys):
    words = [word for number in range(22) for word in ("--grid", f"model.x{number}=a,b")]
    (error,) = refuse(capsys, *words, "--method", "cmaes")
    assert "cmaes needs at least two keys with numbers" in error


def test_a_config_with_a_sweep_is_an_ordinary_config(project, capsys):
    add_sweep(SWEEP)
    assert run(capsys, "check", "train.toml", "--strict") == "ok\n"


def test_check_warns_about_the_mistakes_of_a_sweep(project, capsys):
    add_sweep("\n[sweep]\noptim.lrr = [1]\n")
    text = run(capsys, "check", "train.toml")
    assert "warning: train.toml:79 [optim] AdamW has no option 'lrr'; did you mean 'lr'?" in text


def test_a_missing_package_is_one_line(project, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    text = run(capsys, "sweep", "train.toml", "--grid", "optim.lr=0.1,0.2", "--method", "tpe", code=2)
    assert text == "error: the method tpe needs the package optuna; pip install 'alchemy[sweep]'\n"


def make_study():
    settings = make_settings(seeds=[1, 2], mode="max", metric="dev/f1")
    with open_study(make_plan(settings, overrides=["x=1"])) as study:
        for point in settings.space.list_points():
            own = {"1": float(str(point["a"])), "2": float(str(point["a"])) + 0.1}
            study.settle(study.ask(point), "done", value=own["1"] + 0.05, values=own, records=["r"])
        study.settle(study.trials[0], "failed", reason="out of memory")
    return study


def test_show_has_a_table_the_best_with_its_command_and_a_verdict(records, capsys):
    make_study()
    text = run(capsys, "sweep", "show", "toy")
    assert "sweep toy of toy.toml: grid, max of dev/f1, 2 seeds per point" in text
    assert "points of 6: 1 failed, 5 done" in text
    assert "alchemy run toy.toml --set x=1 --set a=3 --set 'b=\"x\"' --seeds 1,2" in text
    assert "point 4 and point 5 have the same dev/f1 (paired over 2 seeds)" in text
    assert "failed out of memory" in text


def test_show_prints_json(records, capsys):
    make_study()
    data = json.loads(run(capsys, "sweep", "show", "toy", "--json"))
    assert data["best"] == 4
    assert data["points"][4]["values"] == {"1": 3.0, "2": 3.1}
    assert data["points"][0]["reason"] == "out of memory"


def test_show_limits_its_rows(records, capsys):
    make_study()
    assert ".. and 4 more; `alchemy sweep show toy -n 0` shows all" in run(capsys, "sweep", "show", "toy", "-n", "2")


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_show_writes_pictures(records, capsys, name):
    make_study()
    run(capsys, "sweep", "show", "toy", "--out", name)
    assert Path(name).stat().st_size > 1000


def test_show_draws_in_the_terminal(records, capsys):
    make_study()
    assert "parallel coordinates" in run(capsys, "sweep", "show", "toy", "--plot")


def test_show_draws_and_writes_a_picture(records, capsys):
    make_study()
    assert run(capsys, "sweep", "show", "toy", "--out", "plot.svg") == "wrote plot.svg\n"
    assert "parallel coordinates" in run(capsys, "sweep", "show", "toy", "--plot", "--out", "plot.svg")
    assert Path("plot.svg").exists()
    assert "--out '': expected a file" in run(capsys, "sweep", "show", "toy", "--out", "", code=2)


def test_a_damaged_sweep_does_not_hide_the_others(records, capsys):
    damaged = make_study().folder.parent / "broken" / "study.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    assert main(["sweep", "ls"]) == 0
    out, err = capsys.readouterr()
    assert "toy.toml" in out
    assert err.startswith("warning: ") and "broken/study.json cannot be read" in err


def test_a_removed_sweep_leaves_the_queue(records, capsys):
    study = make_study()
    Queue().add([NewEntry(argv=("true",), group=study.group), NewEntry(argv=("true",), group="other")])
    assert run(capsys, "sweep", "rm", "toy") == "removed the sweep toy; its records stay\n"
    assert [entry.group for entry in Queue().list()] == ["other"] and not study.folder.exists()
    assert "there is no sweep 'toy'" in run(capsys, "sweep", "rm", "toy", code=2)


def test_help_names_the_options_of_a_sweep(capsys):
    assert "`alchemy sweep run --help` lists the options" in run(capsys, "sweep", "--help")


def test_the_shell_completes_options_and_names(records):
    make_study()
    assert complete(["sweep", "show", "t"]) == ["toy"]
    assert complete(["sweep", "train.toml", "--me"]) == ["--method", "--metric"]


def test_ls_lists_the_sweeps(records, capsys):
    assert run(capsys, "sweep", "ls") == "no sweeps; `alchemy sweep CFG` starts one\n"
    make_study()
    assert [line.split()[:4] for line in run(capsys, "sweep", "ls").splitlines()][1] == ["toy", "toy.toml", "grid", "6"]
    assert json.loads(run(capsys, "sweep", "ls", "--json"))[0]["points"] == 6


@pytest.mark.slow
def test_a_sweep_trains_and_continues(project, capsys):
    add_sweep(SWEEP + "trials = 2\nseeds = 2\n")
    quick = ["--set", "sched.epochs=1", "--device", "-1", "--slots", "2"]
    assert main(["sweep", "train.toml", *quick]) == 0
    text = capsys.readouterr().out
    assert text.count(": dev/accuracy ") == 2
    assert "best: point" in text
    assert len(list(Path("records/train").iterdir())) == 4
    assert main(["sweep", "train.toml", *quick]) == 0
    assert len(list(Path("records/train").iterdir())) == 4
    capsys.readouterr()
    listed = json.loads(run(capsys, "ls", "sweep:train", "--json"))
    assert run(capsys, "show", listed[0]["runs"][0]["id"]).count("sweep     train, point ") == 1
    small = ["--grid", "model.hidden=4", "--grid", "optim.lr=0.01", "--name", "small"]
    assert main(["sweep", "train.toml", *quick, *small]) == 0
    assert "the space has only 1 point, fewer than trials = 2" in capsys.readouterr().out
    assert main(["sweep", "train.toml", *quick, "--grid", "model.hidden=4,8"]) == 2
    assert "the sweep 'train' already exists, with another space" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_with_an_edited_config_has_no_value(project, capsys, monkeypatch):
    path, words = Path("train.toml"), ["sweep", "train.toml", "--grid", "model.hidden=4", "--device", "-1"]
    original = path.read_text().replace("epochs = 12", "epochs = 2")
    path.write_text(original)
    with monkeypatch.context() as patch:
        patch.setattr("alchemy.sweep.controller.Controller.run", lambda self: self.advance())  # interrupted
        main(words)
    path.write_text(original.replace("epochs = 2", "epochs = 1"))
    assert main(["queue", "start", "--until-empty", "--device", "-1"]) == 0
    path.write_text(original)
    assert main(words) == 1
    assert "was run with another config; --retry-failed runs it again" in capsys.readouterr().out
    assert main([*words, "--retry-failed"]) == 0
    assert len(list(Path("records/train").iterdir())) == 2


@pytest.mark.slow
def test_a_config_may_contain_the_time(project, capsys):
    words = ["--set", "sched.epochs=1", "--set", 'tag={dyn="time", format="%f"}', "--device", "-1"]
    assert main(["sweep", "train.toml", "--grid", "model.hidden=4,8", *words]) == 0
