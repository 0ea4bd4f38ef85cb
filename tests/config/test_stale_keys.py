"""Another `type` in a later layer drops the keys that the new part does not accept, with a message."""

import pytest

from alchemy.cli import main
from alchemy.config.check import check
from alchemy.config.load import prepare_cfg

BASE = """\
seed = 1
tag = "x"
[optim]
type = "alchemy.optim.AdamW"
lr = 0.1
betas = [0.9, 0.99]
amsgrad = true
max_grad_norm = 1.0
[variant.sgd.optim]
type = "torch.optim.SGD"
momentum = 0.9
[variant.short.optim]
type = "SGD"
[variant.same.optim]
type = "AdamW"
[variant.typo.optim]
type = "torch.optim.SGD"
momentun = 0.9
[variant.more.optim]
betas = [0.5, 0.6]
[variant.back.optim]
type = "alchemy.optim.AdamW"
[variant.own.optim]
type = "src.Optim"
[variant.drawn.optim]
type = "${chosen}"
[variant.drawn]
chosen = "torch.optim.SGD"
"""
DROPPED = "type changed from AdamW to SGD; dropped betas, amsgrad"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(BASE)
    (tmp_path / "src.py").write_text("class Optim:\n    def __init__(self, **kwargs):\n        pass\n")
    (tmp_path / "over.toml").write_text('base = "a.toml"\n[optim]\ntype = "torch.optim.SGD"\n')
    return tmp_path


def notes(doc):
    return [str(row) for row in doc.notes if row.note]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("a.toml#sgd", "a.toml:10"),
        ("a.toml#short", "a.toml:13"),
        ("over.toml", "over.toml:3"),
        ("a.toml#drawn", "a.toml:26"),
    ],
)
def test_what_the_new_part_does_not_take_is_dropped_and_told(source, place):
    doc = prepare_cfg(source)
    assert notes(doc) == [f"{place} [optim] {DROPPED}"]
    assert set(doc["optim"]) - {"momentum"} == {"type", "lr", "max_grad_norm"}
    assert not [row for row in check(doc) if row.section == "optim" and not row.note]


@pytest.mark.parametrize(
    "overrides",
    [["optim.type=torch.optim.SGD", "optim.momentum=0.5"], ["optim.momentum=0.5", "optim.type=torch.optim.SGD"]],
)
def test_the_command_line_changes_the_type(overrides):
    doc = prepare_cfg("a.toml", overrides=overrides)
    assert notes(doc) == [f"command line [optim] {DROPPED}"]
    assert doc["optim"].plain() == {"type": "torch.optim.SGD", "lr": 0.1, "max_grad_norm": 1.0, "momentum": 0.5}


@pytest.mark.parametrize(
    ("source", "overrides", "wrong"),
    [
        ("a.toml#typo", [], "SGD has no option 'momentun'; did you mean 'momentum'?"),
        ("a.toml#sgd+more", [], "SGD has no option 'betas'"),
        ("a.toml#sgd", ["optim.betas.0=0.5"], "SGD has no option 'betas'"),
        ("a.toml", ["optim.momentun=0.5", "optim.type=torch.optim.SGD"], "SGD has no option 'momentun'"),
    ],
)
def test_what_is_given_for_the_new_part_stays_an_error(source, overrides, wrong):
    said = [str(row) for row in check(prepare_cfg(source, overrides=overrides)) if row.section == "optim" and row.error]
    assert len(said) == 1 and wrong in said[0]


@pytest.mark.parametrize("source", ["a.toml", "a.toml#same", "a.toml#short+back", "a.toml#own"])
def test_nothing_is_dropped_where_the_part_takes_it_or_nobody_knows(source):
    doc = prepare_cfg(source)
    assert {"betas", "amsgrad"} < doc["optim"].keys() and notes(doc) == []


def test_a_part_of_a_list_and_a_part_inside_a_part_change_too():
    pipes = [{"type": "alchemy.pipeline.itr.Batch", "batch_size": 2, "drop_last": True}]
    encoder = {"type": "alchemy.models.encoders.Transformer", "dim": 8, "heads": 2}
    data = {
        "task": {
            "datasets": {
                "train": {"pipes": pipes},
                "dev": {"like": "train", "pipes": {"Batch": {"type": "alchemy.pipeline.itr.Shuffle"}}},
            }
        },
        "model": {"type": "alchemy.models.TextClassifier", "encoder": encoder},
        "variant": {"v": {"model": {"encoder": {"type": "alchemy.models.encoders.Recurrent"}}}},
    }
    doc = prepare_cfg(data, variant="v")
    assert doc["task"]["datasets"]["dev"]["pipes"] == [{"type": "alchemy.pipeline.itr.Shuffle"}]
    assert "heads" not in doc["model"]["encoder"]
    assert [row.section for row in doc.notes if row.note] == ["task.datasets.dev.pipes.0", "model.encoder"]


def test_a_note_is_no_warning(capsys):
    main(["check", "over.toml"])
    shown = capsys.readouterr().out
    assert f"note: over.toml:3 [optim] {DROPPED}" in shown
    main(["check", "over.toml", "--json"])
    assert '"note": true' in capsys.readouterr().out
