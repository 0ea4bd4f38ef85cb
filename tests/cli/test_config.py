"""`alchemy config`, `alchemy data` and `alchemy parts`."""

import json
import tomllib

import pytest

from alchemy.cli import main


def test_show_prints_the_resolved_config(project, capsys):
    assert main(["config", "show", "train.toml#tiny", "--set", "optim.lr=0.5"]) == 0
    text = capsys.readouterr().out
    shown = tomllib.loads(text)
    assert shown["model"]["hidden"] == 4
    assert shown["optim"]["lr"] == 0.5
    assert "variant" not in shown
    assert "# Which arm of a spiral" in text


def test_show_as_json(project, capsys):
    assert main(["config", "show", "train.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sched"]["num_warmup_steps"] == 30


def test_explain_says_what_was_overridden(project, capsys):
    assert main(["config", "explain", "train.toml#tiny", "model.hidden", "--set", "model.hidden=7"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model.hidden = 7")
    assert "command line" in out
    assert "train.toml:" in out


def test_diff_in_words(project, capsys):
    assert main(["config", "diff", "train.toml", "train.toml#tiny"]) == 0
    assert capsys.readouterr().out.startswith("model.hidden: 64")
    assert main(["config", "diff", "train.toml", "train.toml"]) == 0
    assert "identical" in capsys.readouterr().out


def test_schema_is_json(capsys):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "object"


@pytest.mark.parametrize("kind", ["data-pipe", "DataPipes", "data_pipe"])
def test_parts_of_a_kind(kind, capsys):
    assert main(["parts", kind]) == 0
    out = capsys.readouterr().out
    assert out.startswith("data pipe\n")
    assert "  alchemy.pipeline.itr.Shuffle(datapipe: object, buffer_size: int[>=1] = 1000)\n" in out


def test_parts_as_json(capsys):
    assert main(["parts", "--json"]) == 0
    parts = {row["type"]: row for row in json.loads(capsys.readouterr().out)}
    params = {row["name"]: row for row in parts["alchemy.sched.LineWarmup"]["params"]}
    assert params["num_warmup_steps"]["default"] == "0"
    assert parts["alchemy.plugins.FileLogger"]["kinds"] == ["plugin"]
    assert parts["alchemy.plugins.FileLogger"]["params"][0]["required"] is True


def test_peek_shows_what_flows(project, capsys):
    assert main(["data", "peek", "train.toml", "--split", "dev", "-n", "2"]) == 0
    out = capsys.readouterr().out
    assert "src.data.ReadPoint" in out
    assert "{point: list[2] of float, label: int}" in out
    assert "{point: tensor float32[2, 2], label: tensor int64[2]}" in out


def test_peek_names_the_splits(project, capsys):
    assert main(["data", "peek", "train.toml", "--split", "trian"]) == 2
    assert "no split 'trian'; did you mean 'train'?" in capsys.readouterr().err


def test_parts_show_what_a_config_can_give(capsys):
    assert main(["parts", "--json"]) == 0
    taken = {row["type"]: {param["name"] for param in row["params"]} for row in json.loads(capsys.readouterr().out)}
    assert "alchemy.optim.Adam" in taken and "alchemy.optim.Optimizers" not in taken
    assert "every" in taken["alchemy.checkpoint.keeper.Checkpoints"]
    assert "datapipe" in taken["alchemy.pipeline.lst.SequenceWrapper"]  # for a pipe in first position
    filled_in = {"state_dir", "cfg", "device_info", "params", "parts"}
    assert {path: names & filled_in for path, names in taken.items() if names & filled_in} == {}


def test_parts_of_the_project_come_first(project, capsys):
    (project / "src" / "old.py").write_text(
        "from alchemy.model import AlchemyModel\nfrom torch import nn\nclass Tagger(nn.Module): ...\n"
        '@AlchemyModel.register("Tagger")\nclass AlchemyTagger(AlchemyModel): ...\n'
    )
    assert main(["parts", "model"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  src.model.PointClassifier(hidden: int = 64")
    assert [line for line in lines if ".old." in line] == ["  src.old.Tagger()"]
