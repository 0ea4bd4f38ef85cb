"""A project written for alchemy 0.x runs unmodified: by the command, and by its own script."""

import json
import math

import pytest


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def only(folder):
    (record,) = [path for path in folder.iterdir() if path.is_dir()]
    return record


@pytest.fixture(scope="module")
def old(project, alchemy):
    """The record of `train.toml`, with the names of the older generation."""
    done = alchemy(project, "run", "train.toml", "--device", "-1", "--desc", "old names")
    return only(project / "records/weixin/tagger/train"), done


@pytest.fixture(scope="module")
def new(project, alchemy):
    """The record of `new.toml`, with the names of the newer generation."""
    done = alchemy(project, "run", "new.toml", "--device", "-1")
    return only(project / "records/new/train"), done


def test_the_record_is_laid_out_as_ever(old):
    record, _ = old
    for name in [
        "run.log",
        "README.md",
        "cfg.toml",
        "checkpt/best",
        "backup/alchemy/registry.py",
        "backup/src/sched.py",
        "detail_log",
    ]:
        assert (record / name).exists(), name
    assert list(record.glob("events.out.tfevents.*"))
    assert (record / "README.md").read_text() == "# ner tagger [old] {names}\n\nold names\n"
    assert json.loads((record / "record.json").read_text())["status"] == "finished"
    assert "project" not in (record / "backup").name
    assert not list(record.glob("backup/**/__pycache__"))


def test_it_learns_and_keeps_its_best_model(old):
    record, _ = old
    evals = lines(record / "evals.jsonl")
    best = json.loads((record / "best_info.json").read_text())
    scores = [row["score"]["f1_micro"] for row in evals]
    assert best["f1_micro"] == max(scores) > 0.8
    assert scores[0] < 0.3
    assert [row["step"] for row in evals if row["step"] < 0] == [-1]  # once before the first step
    assert (record / "checkpt/best/pytorch_model.bin").exists()
    assert (record / "detail_log" / f"dev_step{best['step']}.jsonl").exists()


def test_the_pipes_of_the_schedule_were_called_in_order(old):
    diary = lines(old[0] / "diary.jsonl")
    epochs, steps = [row for row in diary if "loss" not in row], [row for row in diary if "loss" in row]
    assert [row["step"] for row in steps] == list(range(36))
    assert [row["in_epoch"] for row in steps] == list(range(6)) * 6
    assert [row["epoch"] for row in epochs] == sorted(2 * list(range(6)))
    assert [row["pbar"] for row in epochs] == [False] * 12
    assert {row["pbar"] for row in steps} == {True}
    assert all(isinstance(row["loss"], float) for row in steps)


def test_the_rate_warms_up_and_starts_anew_with_the_model(old):
    rates = [row["lr"][0] for row in lines(old[0] / "diary.jsonl") if "loss" in row]
    assert rates[0] < rates[1] < rates[2]
    assert rates[11] < rates[2]
    assert rates[12] < rates[11]
    assert rates[12] < rates[13] < rates[14]


def test_the_command_says_nothing_against_it(old):
    _, done = old
    assert "never read" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_newer_names_with_workers_and_accumulation(new):
    record, _ = new
    best = json.loads((record / "best_info.json").read_text())
    assert best["f1_micro"] > 0.8
    diary = [row for row in lines(record / "diary.jsonl") if "loss" in row]
    assert len(diary) == 36
    assert (record / "detail_log/outputs_step-1.jsonl").exists()  # SaveAppend, before the first step
    assert {path.name for path in record.glob("detail_log/dev_step*")} >= {"dev_step-1.jsonl", "dev_step8.jsonl"}
    assert json.loads((record / "stopwatch.json").read_text()) == {"entered": True, "error": None}


def test_the_old_spelling_warms_up_and_is_told(new):
    record, done = new
    assert "lr_warmup_steps" in done.stdout + done.stderr
    rates = [row["lr"][0] for row in lines(record / "diary.jsonl") if "loss" in row]
    assert rates[0] < rates[1] or rates[1] < rates[2]
    assert rates[-1] < rates[6]


def test_mail_of_a_finished_run(new):
    mail = json.loads((new[0] / "mail.json").read_text())
    assert mail["status"] == "finished"
    assert mail["tag"] == "ner tagger, new names"
    assert mail["traceback"] is None
    assert mail["numbers"]["dev/loss"] >= 0
    assert mail["record"].endswith(new[0].name)


def test_the_smallest_task_with_a_loop_of_its_own_parts(project, alchemy):
    alchemy(project, "run", "mytask.toml", "--device", "-1")
    record = only(project / "records/mytask")
    losses = [row["values"]["dev/loss"] for row in lines(record / "metrics.jsonl") if "dev/loss" in row["values"]]
    assert len(losses) == 2
    assert losses[1] < 0.5 * losses[0] < 0.1
    rates = [row["lr"][0] for row in lines(record / "diary.jsonl") if "loss" in row]
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 80)) for t in range(1, 81)], abs=1e-9)


INFER = """
from pathlib import Path
import sys
from alchemy import prepare_cfg, run

record = Path(sys.argv[1])
cfg = prepare_cfg(record / "cfg.toml")
cfg["runner"] = "alchemy.runner.InferenceRunner"
for section in ("sched", "optim", "criterion", "backward"):
    cfg.pop(section)
cfg["task"]["datasets"]["inference"] = cfg["task"]["datasets"].pop("test")
cfg["model"]["model_path"] = str(record / "checkpt" / "best")
cfg["plugins"][1]["log_dir"] = "records/inferred"
result = run([cfg], device=[-1])[0]
if isinstance(result, Exception):
    raise result
"""


def test_inference_needs_no_tables_of_training(project, old, start):
    start(project, "-c", INFER, old[0])
    record = only(project / "records/inferred")
    (file,) = (record / "results").iterdir()
    rows = lines(file)
    assert [row["id"] for row in rows] == [f"test{i}" for i in range(16)]
    assert not (record / "best_info.json").exists()  # no evaluation pipes


def test_a_failure_is_in_record_mail_and_old_plugin(project, alchemy):
    words = ["--set", "model.buckets=1", "--set", "plugins.1.log_dir='records/failed'"]
    alchemy(project, "run", "new.toml", "--device", "-1", *words, code=1)
    record = only(project / "records/failed")
    mail = json.loads((record / "mail.json").read_text())
    assert mail["status"] == json.loads((record / "record.json").read_text())["status"] == "failed"
    assert "datapipe.py" in mail["traceback"]
    assert "ZeroDivisionError" in mail["subject"]
    assert json.loads((record / "stopwatch.json").read_text()) == {"entered": True, "error": "AlchemyError"}


def test_no_file_writes_nothing(project, start):
    before = sorted(project.rglob("*"))
    words = ["--set", "sched.epochs=1", "--set", "task.evalpipes=[]", "--set", "task.outputpipes=[]", "--no-file"]
    start(project, "-B", "-m", "alchemy", "run", "train.toml", "--device", "-1", *words)
    assert [path for path in sorted(project.rglob("*")) if path not in before] == []


NLP = """
import json, sys
from alchemy import sym_tbl
from alchemy.errors import AlchemyError
from alchemy.util.inference.nlp import AlchemyNLP

rows = [json.loads(line) for line in open("data/test.jsonl")]
nlp = AlchemyNLP(sys.argv[1], {"device": "cpu"}, bsz=int(sys.argv[2]))
answers = nlp.pipe(rows)
assert [row["id"] for row in answers] == [row["id"] for row in rows]
assert nlp.pipe([]) == [] and nlp.pipe(rows[:1]) == answers[:1]
nlp.close()
nlp.close()
assert sym_tbl().model is None
try:
    nlp.pipe(rows)
except AlchemyError as error:
    print(error)
print(sum(row["preds"] == row["entities"] for row in answers))
"""


@pytest.mark.parametrize("bsz", [1, 5])
def test_a_checkpoint_answers_through_alchemy_nlp(project, old, start, bsz):
    before = sorted(project.rglob("*"))
    done = start(project, "-B", "-c", NLP, old[0] / "checkpt/best", bsz)
    said = done.stdout.splitlines()
    assert said[-2] == "this AlchemyNLP is closed; create a new one"
    assert int(said[-1]) >= 14
    assert sorted(project.rglob("*")) == before  # nothing is written
