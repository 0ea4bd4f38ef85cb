"""Evaluation pipes; those for the best model are in test_best.py."""

import json

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.eval import Accuracy, LogTensorboard, SaveExamples

ROWS = [{"pred": 1, "label": 1}, {"pred": 0, "label": 1}, {"pred": 0, "label": 0}, {"pred": 1, "label": 1}]


class Writer:
    def __init__(self):
        self.rows = []

    def add_scalar(self, *row):
        self.rows.append(row)


def test_accuracy_counts_what_was_collected(run):
    pipe = Accuracy("preds")
    run.symbols.set_global("preds", ["left over"])
    pipe.begin_eval("dev")
    run.symbols.set_global("preds", list(ROWS))
    assert pipe("dev", loss=1.0) == {"loss": 1.0, "accuracy": 0.75, "preds": ROWS}
    assert not run.symbols.contains_global("preds")


def test_accuracy_says_what_it_misses(run):
    with pytest.raises(AlchemyError, match=r"nothing was collected as 'preds'; add .*Collect with varname = 'preds'"):
        Accuracy("preds")("dev")
    run.symbols.set_global("preds", [{"pred": 1}])
    with pytest.raises(AlchemyError, match=r"have no 'label'; they have \['pred'\]"):
        Accuracy("preds")("dev")


def test_examples_are_written(training, tmp_path):
    training.train_sched.cur_step = 3
    SaveExamples(only_wrong=True)("dev", preds=ROWS)
    assert json.loads((tmp_path / "results" / "dev_examples_step3.jsonl").read_text()) == ROWS[1]
    SaveExamples(limit=2, step_tag=False)("dev", preds=ROWS)
    assert len((tmp_path / "results" / "dev_examples.jsonl").read_text().splitlines()) == 2
    with pytest.raises(AlchemyError, match="no earlier pipe returned 'preds'"):
        SaveExamples()("dev")


def test_scores_go_to_tensorboard(training):
    writer = Writer()
    LogTensorboard()("dev", accuracy=0.5)
    training.symbols.set_global("summary_writer", writer)
    training.train_sched.cur_step = 9
    LogTensorboard()("dev", accuracy=0.5, preds=[])
    assert writer.rows == [("eval/dev/accuracy", 0.5, 9)]


def test_a_pipe_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"EvalPipeline must define __call__\(self, split"):
        EvalPipeline()("dev")
