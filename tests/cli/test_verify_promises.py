"""`alchemy verify resume | parallel | determinism`: output, exit codes, and invalid input."""

import json
import re

import pytest

from alchemy.cli import main


@pytest.mark.usefixtures("forked_runs")
def test_resume_tells_each_phase_and_what_it_has_compared(project, capsys):
    assert main(["verify", "resume", "train.toml", "--updates", "4", "--kill-at", "3", "--device", "-1"]) == 0
    out, err = capsys.readouterr()
    head, killed, equal = out.splitlines()
    assert head == "4 updates without interruption, without Backup"
    assert re.fullmatch(r"killed at update 3, resumed from the (beginning|state of update [12]):", killed)
    assert re.fullmatch(r"equal: \d+ tensors, 6 rows, 4 ledger updates", equal)
    assert err.splitlines() == [
        "training without interruption, 4 updates ..",
        "training again, with a kill -9 at update 3 ..",
        "resuming it ..",
    ]
    assert not (project / "records").exists()


def test_parallel_as_json_without_further_processes(project, capsys):
    assert main(["verify", "parallel", "train.toml", "--ranks", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is True
    assert found["what"] == "32 samples, float64"
    assert [row["cut"] for row in found["cuts"]] == ["1 process, 2 steps", "1 process, 4 steps"]


def test_a_gradient_that_depends_on_the_cut_ends_with_1(project, capsys):
    model = project / "src" / "model.py"
    model.write_text(model.read_text().replace("self.layers(point)", "self.layers(point) / len(point)"))
    assert main(["verify", "parallel", "train.toml", "--ranks", "1"]) == 1
    assert "not equal: with 1 process, 4 steps the gradient of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layer", "reason"),
    [("nn.BatchNorm1d(hidden), ", "BatchNorm"), ("", "the forward pass draws random numbers")],
    ids=["batch norm", "random numbers"],
)
def test_what_cannot_be_compared_is_null_with_the_reason_and_ends_with_0(project, capsys, layer, reason):
    model = project / "src" / "model.py"
    text = model.read_text().replace("nn.Linear(num_inputs, hidden),", f"nn.Linear(num_inputs, hidden), {layer}")
    model.write_text(text if layer else text.replace("layers(point)", "layers(point + point.new_empty(()).normal_())"))
    assert main(["verify", "parallel", "train.toml", "--ranks", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is None
    assert reason in found["reason"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resume", "train.toml", "--updates", "1"], "--updates must be at least 2, got 1"),
        (["resume", "train.toml", "--kill-at", "0"], "--kill-at must be at least 1, got 0"),
        (["resume", "train.toml", "--workers", "0,x"], "expected integers such as 1,2,3, got '0,x'"),
        (["parallel", "train.toml", "--ranks", "0"], "--ranks must be at least 1, got 0"),
        (["parallel", "train.toml", "--set", "task.datasets.train.batch_size=1"], "there is nothing to split"),
        (["determinism", "none.toml"], "none.toml"),
        (["determinism", "train.toml", "--set", "~task.datasets.train"], "like = 'train': there is no such split"),
        (["resum", "train.toml"], "did you mean 'resume'?"),
    ],
)
def test_bad_input_is_one_error(project, capsys, words, message):
    assert main(["verify", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_the_help_has_examples(capsys):
    assert main(["verify", "resume", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--kill-at N" in out and "alchemy verify resume train.toml --updates 30 --kill-at 17 --workers 0,2" in out
