"""`alchemy replay`: an update of a finished run, and of one that ended in a NaN."""

import json
import re

import pytest

from alchemy.cli import main

QUICK = ["--device", "-1", "--set", "sched.epochs=1", "--set", "log_every=1", "--set", "checkpoint.every=10"]


@pytest.fixture
def trained(project, capsys):
    """The record of a short run."""

    def train(*words):
        main(["run", "train.toml", *QUICK, *words])
        capsys.readouterr()
        (record,) = (project / "records" / "train").iterdir()
        return record

    return train


def test_an_update_is_shown_and_the_record_stays_as_it_is(trained, capsys):
    record = trained()
    before = sorted((path, path.stat().st_mtime_ns) for path in record.rglob("*"))
    assert main(["replay", str(record), "--update", "12", "--device", "-1"]) == 0
    out, err = capsys.readouterr()
    assert "  {point: tensor float32[32, 2], label: tensor int64[32]}" in out.splitlines()
    assert out.splitlines()[-1] == "the samples match the record"
    assert err.count("\n") == 1
    assert sorted((path, path.stat().st_mtime_ns) for path in record.rglob("*")) == before


def test_json_has_the_loss_of_the_run(trained, capsys):
    record = trained()
    rows = [json.loads(line) for line in (record / "metrics.jsonl").read_text().splitlines()]
    losses = {row["update"]: row["values"]["train/loss"] for row in rows if "train/loss" in row["values"]}
    for word in ("--update", "--step"):
        assert main(["replay", record.name, word, "7", "--json", "--device", "-1"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["loss"], found["finite"]) == (losses[7], True)


def test_a_nan_is_traced_to_the_line_of_the_project(project, trained, capsys):
    model = project / "src" / "model.py"
    lines = model.read_text().splitlines()
    place = lines.index("        return self.layers(point)")
    lines[place:] = [
        "        scores = self.layers(point)",
        "        if self.training and current_run().update == 4:",
        "            scores = scores * (scores * 0 / 0)",
        "        return scores",
    ]
    lines[2] += "; from alchemy import current_run"
    model.write_text("\n".join(lines) + "\n")
    record = trained()
    assert main(["replay", str(record), "--update", "5", "--debug", "--device", "-1"]) == 0
    out = capsys.readouterr().out
    assert "the run ended here: the loss is not finite in update 5" in out
    assert f"the first NaN comes from div at src/model.py:{place + 3}" in out
    assert "  loss nan over 32: not finite" in out.splitlines()
    assert re.search(r"the update fails: RuntimeError: Function '\w+Backward0' returned nan", out)
    assert "Traceback" not in out


def test_a_nan_of_the_data_is_told_before_the_operations_on_it(project, trained, capsys):
    rows = (project / "data" / "train.csv").read_text().splitlines()
    rows[499] = "nan,0.1,red"  # sample 498, below the header line
    (project / "data" / "train.csv").write_text("\n".join(rows) + "\n")
    record = trained()
    (bad,) = (record / "bad").glob("u*.json")
    update = bad.stem[1:]
    assert main(["replay", str(record), "--update", update, "--debug", "--device", "-1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "  the batch itself is not finite: NaN in point of sample 498" in out
    told = out.index(f"the batch of step {int(update) - 1} itself is not finite: NaN in point of sample 498")
    assert out[told + 1].startswith("among the operations on it, the first NaN comes from ")
    assert main(["replay", str(record), "--update", update, "--json", "--device", "-1"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert step["stains"] == [{"name": "point", "what": "NaN", "samples": [498]}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--update", "1"], "record not found: 'nowhere'"),
        ([".", "--update", "1"], "is not a record"),
        (["x"], "the following arguments are required: --update"),
        (["x", "--update", "one"], "invalid int value"),
    ],
)
def test_bad_input_is_one_error(project, capsys, words, message):
    assert main(["replay", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_running_record_and_an_update_that_is_not_there(trained, capsys):
    import os

    from alchemy.records.status import process_start

    record = trained()
    assert main(["replay", str(record), "--update", "99"]) == 2
    assert "has no update 99; it has updates 1 to 29" in capsys.readouterr().err
    info = json.loads((record / "record.json").read_text())
    info |= {"status": "running", "pid": os.getpid(), "pid_started": process_start(os.getpid())}
    (record / "record.json").write_text(json.dumps(info))
    assert main(["replay", str(record), "--update", "1"]) == 2
    assert "is still running, as process" in capsys.readouterr().err
