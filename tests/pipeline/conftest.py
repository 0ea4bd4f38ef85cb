"""Shared by the tests of pipes: a run with a record folder, and one that trains."""

import pytest

from alchemy.context import Run


class Counts:
    """The part of a schedule that pipes use."""

    def __init__(self):
        self.cur_step = self.cur_epoch = -1
        self.num_updates = 0
        self.epochs, self.finished, self.pipes = 3, False, []

    def is_pending(self, moment):
        return False

    def after_eval(self, results):
        pass


@pytest.fixture
def run(tmp_path):
    with Run({"tag": "pipes"}) as run:
        run.record_dir = tmp_path
        yield run


@pytest.fixture
def training(run):
    run.train_sched = Counts()
    return run
