"""Model outputs become rows, and rows become lists and files."""

import csv
import json

import numpy as np
import pytest
import torch

from alchemy.errors import AlchemyError
from alchemy.pipeline import OutputPipeline
from alchemy.pipeline.output import Classify, Collect, PredictionFile, SaveAppend, WritePredictions

LOGITS = torch.tensor([[0.0, 2.0], [1.0, 0.0]])


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_classify_turns_scores_into_rows():
    outputs = {"logits": LOGITS.to(torch.bfloat16), "loss": 0.5}
    rows = Classify(names=["neg", "pos"], keep=["text"])(outputs, {"label": torch.tensor([1, 1]), "text": ["好", "b"]})
    assert [(row["pred"], row["pred_name"], row["label"], row["text"]) for row in rows] == [
        (1, "pos", 1, "好"),
        (0, "neg", 1, "b"),
    ]
    assert rows[0]["prob"] == pytest.approx(0.881, abs=1e-2)
    assert "label" not in Classify()(outputs, {})[0]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"scores": 1}, "the model outputs have no 'logits', only scores"),
        ([1], "only a list"),
        ({"logits": torch.zeros(3)}, r"of shape \[samples, classes\], got \[3\]"),
    ],
)
def test_classify_says_what_it_misses(outputs, message):
    with pytest.raises(AlchemyError, match=message):
        Classify()(outputs, {})
    with pytest.raises(AlchemyError, match="keep lists 'text', but the batch has no such field"):
        Classify(keep=["text"])({"logits": LOGITS}, {})


def test_collect_gathers_the_rows_of_all_batches(run):
    collect = Collect("preds")
    assert collect([{"a": 1}], {}) == [{"a": 1}]
    collect({"pred": torch.tensor([3, 4]), "text": ["x", "y"], "loss": 0.1}, {})
    assert run.symbols.get_global("preds") == [{"a": 1}, {"pred": 3, "text": "x"}, {"pred": 4, "text": "y"}]


@pytest.mark.parametrize("outputs", [{"a": [1, 2], "b": [1]}, {"loss": 0.5}])
def test_outputs_that_cannot_be_told_apart_are_refused(run, outputs):
    with pytest.raises(AlchemyError, match="Collect cannot split the batch into samples"):
        Collect("preds")(outputs, {})
    with pytest.raises(AlchemyError, match="expects a list of samples or a dict of columns, got Tensor"):
        Collect("preds")(LOGITS, {})


def test_save_append_writes_lines_with_the_step_in_the_name(training, tmp_path):
    training.train_sched.cur_step = 7
    pipe = SaveAppend("out/preds.jsonl")
    for _ in range(2):
        assert pipe([{"x": np.float32(0.5), "t": torch.ones(2), "s": {"好"}}], {})
    assert read(tmp_path / "out" / "preds_step7.jsonl") == [{"x": 0.5, "t": [1.0, 1.0], "s": ["好"]}] * 2


def test_save_append_works_where_nothing_is_trained_and_without_a_record(run, tmp_path):
    SaveAppend("preds.jsonl")([1], {})
    assert read(tmp_path / "preds.jsonl") == [1]
    run.record_dir = None
    assert SaveAppend("other.jsonl")([1], {}) == [1]
    assert not (tmp_path / "other.jsonl").exists()


def test_a_tag_can_be_left_out(training, tmp_path):
    SaveAppend("a.jsonl", step_tag=False)([1], {})
    assert (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_predictions_are_written_row_by_row_and_anew_each_pass(training, tmp_path, suffix):
    pipe = WritePredictions(filename=f"p.{suffix}")
    for step in (0, 1):
        with training.metrics.scope("dev", root=True):  # as in an evaluation
            for text in ('a,"b"\n', "好"):
                pipe([{"pred": step, "text": text, "spans": [1, 2]}], {})
    path = tmp_path / "results" / f"p.{suffix}"
    if suffix == "jsonl":
        rows = read(path)
    else:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [
                {"pred": int(r["pred"]), "text": r["text"], "spans": json.loads(r["spans"])}
                for r in csv.DictReader(file)
            ]
    assert rows == [{"pred": 1, "text": text, "spans": [1, 2]} for text in ('a,"b"\n', "好")]


def test_csv_refuses_rows_that_differ(run):
    pipe = WritePredictions(filename="p.csv")
    pipe([{"a": 1}], {})
    with pytest.raises(AlchemyError, match=r"not all rows have the fields \['a', 'b'\]; write jsonl"):
        pipe([{"b": 1}], {})
    with pytest.raises(AlchemyError, match=r"written to a .jsonl or .csv file, got 'p.txt'"):
        WritePredictions(filename="p.txt")


class NoPipes:
    outputpipes = ()


def test_the_prediction_file_of_a_run_is_in_its_record_or_where_it_is_told(run, tmp_path):
    run.task = NoPipes()
    with PredictionFile.of(run) as file:
        file.write([1, 2])
    assert (file.rows, file.path) == (2, tmp_path / "results" / "predictions.jsonl")
    with PredictionFile.of(run, str(tmp_path / "mine.csv")) as file:
        file.write({"pred": torch.tensor([1, 0])})
    assert file.path.read_text() == "pred\n1\n0\n"


def test_without_a_record_predictions_are_only_counted(run, capture_log):
    run.task, run.record_dir = NoPipes(), None
    with PredictionFile.of(run) as file:
        file.write([1])
    assert (file.rows, file.path) == (1, None)
    assert "predictions are not written" in capture_log.text


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(AlchemyError, match=r"cannot write .*p\.jsonl'"):
        WritePredictions(filename="p.jsonl")([1], {})


def test_a_pipe_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"OutputPipeline must define __call__\(self, outputs, inputs\)"):
        OutputPipeline()([], {})
